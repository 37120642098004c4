"""The values of context features on their way from the event log to their codes: one string an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import ContextConfig
from recsys_cg.data.identifiers import to_strings

__all__ = ["JOINED", "count_values", "counts_schema", "join_values", "split_values"]

JOINED: Final = "context"
"""Column of an events table that holds the values of all categorical features."""

_SEPARATOR: Final = "\x1f"

counts_schema: Final = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""Training events by context feature and value."""


def join_values(table: pa.Table, configs: Sequence[ContextConfig]) -> pa.Array | None:
    """Return the values of all categorical features of each row as one string; None when there is no such feature.

    White space around a value is not part of it; an empty value is missing.

    Args:
        table: raw rows with the columns of ``configs``.
        configs: the ``[[interactions.context]]``.

    Raises:
        SourceError: a column is nested or no UTF-8.
    """
    names = [config.source_column for config in configs if config.source_column is not None]
    if not names:
        return None
    columns = [
        pc.utf8_trim_whitespace(pc.replace_substring(to_strings(table.column(name), name), _SEPARATOR, " "))
        for name in names
    ]
    return pc.binary_join_element_wise(*columns, _SEPARATOR, null_handling="replace", null_replacement="")


def split_values(joined: pa.Array, count: int) -> list[pa.Array]:
    """Return the ``count`` columns that `join_values` joined, null where a value is missing."""
    flat = pc.list_flatten(pc.split_pattern(joined, _SEPARATOR))
    columns = [flat.take(pa.array(np.arange(place, len(flat), count))) for place in range(count)]
    return [pc.if_else(pc.equal(pc.binary_length(column), 0), None, column) for column in columns]


def count_values(joined: pa.Array, codes: npt.NDArray[np.int32], configs: Sequence[ContextConfig]) -> pa.Table:
    """Count events by feature and value, as `counts_schema`.

    Args:
        joined: distinct strings of `join_values`.
        codes: int32 ``[n]``, the string of each event to count.
        configs: the ``[[interactions.context]]``.
    """
    names = [config.name for config in configs if config.source_column is not None]
    counts = np.bincount(codes, minlength=len(joined))
    parts = [counts_schema.empty_table()]
    for name, values in zip(names, split_values(joined, len(names)), strict=True):
        chosen = np.flatnonzero((counts > 0) & np.asarray(values.is_valid(), dtype=bool))
        table = pa.table({"value": values.take(pa.array(chosen)), "count": counts[chosen]})
        grouped = table.group_by("value").aggregate([("count", "sum")])
        label = pa.array([name] * grouped.num_rows, pa.string())
        parts.append(pa.table([label, grouped.column("value"), grouped.column("count_sum")], schema=counts_schema))
    return pa.concat_tables(parts)
