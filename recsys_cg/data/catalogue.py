"""The catalogue: raw blocks become one clean row an item, in the types its features are fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import FeatureConfig, ItemsConfig
from recsys_cg.data.blocks import Block, naming_source, reject_rows
from recsys_cg.data.identifiers import to_strings
from recsys_cg.data.times import parse_times
from recsys_cg.data.values import dense_rows

__all__ = [
    "CleanCatalogue",
    "catalogue_columns",
    "clean_catalogue_block",
    "empty_catalogue",
    "merge_catalogue",
    "nested_columns",
]

ID: Final = "@item_id"
TITLE: Final = "@title"
FROM: Final = "@available_from_us"
UNTIL: Final = "@available_until_us"
SOURCE: Final = "@source"
ROW: Final = "@row"
"""Names of our own columns; the feature columns beside them keep the names that the source gives them."""


@dataclass(frozen=True)
class CleanCatalogue:
    """What became of a block of the catalogue: ``rows`` = kept + rejects."""

    items: pa.Table
    rejects: pa.Table
    rows: int


def catalogue_columns(config: ItemsConfig) -> list[str]:
    """Return the source columns that `clean_catalogue_block` needs, each once."""
    named = [config.item, config.title, config.available_from, config.available_until]
    features = [feature.source_column for feature in config.features]
    return list(dict.fromkeys([name for name in named if name is not None] + features))


def nested_columns(config: ItemsConfig) -> list[str]:
    """Return the source columns in which a value may be a list: those of categorical, text and dense features alone."""
    plain = {config.item, config.title, config.available_from, config.available_until}
    plain |= {feature.source_column for feature in config.features if feature.kind == "numeric"}
    return [name for name in catalogue_columns(config) if name not in plain]


def clean_catalogue_block(block: Block, config: ItemsConfig) -> CleanCatalogue:
    """Check identifiers, availability times and dense vectors; keep the columns that features are made of.

    A row is refused for ``missing_item``, ``unreadable_time`` (an availability that is there and cannot be read) or
    ``bad_vector`` (a dense feature of another length, or not finite).

    Raises:
        SourceError: a column is nested or no UTF-8, or cannot be what its feature says; the message names the file.
    """
    with naming_source(block.source):
        return _clean(block, config)


def _clean(block: Block, config: ItemsConfig) -> CleanCatalogue:
    table = block.table
    ids = to_strings(table.column(config.item), config.item)
    count = table.num_rows
    reasons = {"missing_item": np.asarray(pc.is_null(ids), dtype=bool)}
    times = []
    for name in (config.available_from, config.available_until):
        raw = pa.nulls(count, pa.int64()) if name is None else table.column(name).combine_chunks()
        parsed = raw if name is None else parse_times(raw, config.time_unit, config.time_zone)
        bad = pc.and_(pc.is_valid(raw), pc.is_null(parsed))
        reasons["unreadable_time"] = reasons.get("unreadable_time", False) | np.asarray(bad, dtype=bool)
        times.append(parsed)
    reasons["bad_vector"] = _bad_vectors(table, config.features)
    titles = (
        pa.nulls(count, pa.string()) if config.title is None else to_strings(table.column(config.title), config.title)
    )
    columns = {ID: ids, TITLE: titles, FROM: times[0], UNTIL: times[1]}
    columns[SOURCE] = pa.array([block.source] * count, type=pa.string())
    columns[ROW] = pa.array(block.numbers)
    for feature in config.features:
        columns[feature.source_column] = _settle(table.column(feature.source_column).combine_chunks(), feature)
    rejects = pa.concat_tables([block.rejects, reject_rows(block, reasons)])
    refused = np.logical_or.reduce(list(reasons.values()))
    return CleanCatalogue(pa.table(columns).filter(pa.array(~refused)), rejects, block.rows)


def _bad_vectors(table: pa.Table, features: Sequence[FeatureConfig]) -> npt.NDArray[np.bool_]:
    bad = np.zeros(table.num_rows, dtype=bool)
    for feature in features:
        if feature.dim is not None:
            bad |= dense_rows(table.column(feature.source_column), feature.source_column, feature.dim)[1]
    return bad


def _settle(array: pa.Array, feature: FeatureConfig) -> pa.Array:
    """Bring a column to one of few types: list<float32>, list<string>, float64 or string."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    name = feature.source_column
    if feature.dim is not None:
        rows, _ = dense_rows(pa.chunked_array([array]), name, feature.dim)
        offsets = np.concatenate([[0], np.cumsum(np.where(np.asarray(array.is_valid()), feature.dim, 0))])
        flat = pa.array(rows[np.asarray(array.is_valid())].reshape(-1))
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat, mask=array.is_null())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        values = to_strings(pc.list_flatten(array), name)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values)
    kind = array.type
    if feature.kind == "numeric" and (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    ):
        return array.cast(pa.float64(), safe=False)
    return to_strings(array, name)


def merge_catalogue(tables: Sequence[pa.Table]) -> tuple[pa.Table, int]:
    """Put cleaned blocks together, one row an item: of several rows the first by file name and row number.

    Returns:
        the catalogue ordered by item_id, and the number of rows left out (``duplicate_item``).
    """
    table = pa.concat_tables(_align(tables))
    table = table.sort_by([(ID, "ascending"), (SOURCE, "ascending"), (ROW, "ascending")]).combine_chunks()
    ids = table.column(ID)
    is_first = np.ones(table.num_rows, dtype=bool)
    if table.num_rows:
        is_first[1:] = np.asarray(pc.not_equal(ids.slice(1), ids.slice(0, table.num_rows - 1)), dtype=bool)
    return table.filter(pa.array(is_first)), int((~is_first).sum())


def _align(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Give all tables one schema: where a column's types differ, text, or lists of text."""
    names = tables[0].column_names
    aligned = list(tables)
    for name in names:
        types = {table.column(name).type for table in tables}
        if len(types) > 1:
            aligned = [_retype(table, name, any(pa.types.is_list(kind) for kind in types)) for table in aligned]
    return aligned


def _retype(table: pa.Table, name: str, to_lists: bool) -> pa.Table:
    array = table.column(name).combine_chunks()
    if to_lists and not pa.types.is_list(array.type):
        present = np.asarray(array.is_valid(), dtype=np.int32)
        offsets = pa.array(np.concatenate([[0], np.cumsum(present)]).astype(np.int32))
        array = pa.ListArray.from_arrays(offsets, to_strings(array.drop_null(), name))
    elif not to_lists:
        array = to_strings(array, name)
    return table.set_column(table.column_names.index(name), name, array)


def empty_catalogue() -> pa.Table:
    """Return a catalogue without rows and features, for projects that have none."""
    text, whole = pa.string(), pa.int64()
    return pa.schema(
        [(ID, text), (TITLE, text), (FROM, whole), (UNTIL, whole), (SOURCE, text), (ROW, whole)]
    ).empty_table()
