"""Content of items as dense arrays: what the item tower reads, in training and in serving, checked on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.errors import DataError, NonFiniteError

__all__ = ["ContentFeature", "column_name", "content_arrays", "is_embedded", "scaled_floats"]

Content = dict[str, NDArray[np.generic]]


class ContentFeature(Protocol):
    """What the model needs to know of a fitted feature (`recsys_cg.data.content.Feature` has it)."""

    @property
    def name(self) -> str:
        """Name, without the ``f_`` of its column."""

    @property
    def kind(self) -> str:
        """One of categorical, text, numeric, dense."""

    @property
    def size(self) -> int:
        """Rows of the embedding table, padding included; 0 for numeric and dense."""

    @property
    def width(self) -> int:
        """Floats an item; 0 for categorical and text."""

    @property
    def max_values(self) -> int:
        """Longest list of entries an item."""


def is_embedded(feature: ContentFeature) -> bool:
    """Tell whether ``feature`` is looked up in a table (categorical, text) rather than multiplied (numeric, dense)."""
    return feature.kind in ("categorical", "text")


def scaled_floats(feature: ContentFeature) -> int:
    """Return how many floats of ``feature``, the first ones, have a scale; the others are shares of knots, 0 to 1."""
    return min(feature.width, 2) if feature.kind == "numeric" else feature.width


def column_name(feature: ContentFeature) -> str:
    """Return the name of the feature's column in items.parquet and of its input in the item tower."""
    return f"f_{feature.name}"


def content_arrays(features: Iterable[ContentFeature], table: pa.Table) -> Content:
    """Turn content columns into arrays, row for row.

    Args:
        features: the fitted features.
        table: has a column ``f_<name>`` for each: list<int32> of entries from 1, or a fixed-size list of floats.

    Returns:
        ``f_<name>`` -> int32 [rows, max_values], entries left-aligned and padded with 0, or float32 [rows, width].

    Raises:
        DataError: a column is missing, an entry lies outside the vocabulary, or a row has the wrong length.
        NonFiniteError: a float is NaN or infinite; the feature and the first row are named.
    """
    return {column_name(feature): _feature_array(feature, table) for feature in features}


def _feature_array(feature: ContentFeature, table: pa.Table) -> NDArray[np.generic]:
    name = column_name(feature)
    if name not in table.column_names:
        raise DataError(f"feature {feature.name!r}: the item table has no column {name!r}; build the dataset again")
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return _entries(feature, column) if is_embedded(feature) else _floats(feature, column)


def _entries(feature: ContentFeature, column: pa.ListArray) -> NDArray[np.int32]:
    lengths = np.asarray(column.value_lengths().fill_null(0), dtype=np.int64)
    values = np.asarray(column.flatten(), dtype=np.int32)
    if len(values) and not (values.min() >= 1 and values.max() < feature.size):
        raise DataError(
            f"feature {feature.name!r} has entry {int(values.min())} .. {int(values.max())}, "
            f"outside 1 .. {feature.size - 1}; build the dataset again"
        )
    padded = np.zeros((len(lengths), feature.max_values), dtype=np.int32)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kept = places < feature.max_values
    padded[rows[kept], places[kept]] = values[kept]
    return padded


def _floats(feature: ContentFeature, column: pa.FixedSizeListArray) -> NDArray[np.float32]:
    if column.null_count or column.type.list_size != feature.width:
        raise DataError(f"feature {feature.name!r}: expected {feature.width} floats an item; build the dataset again")
    floats = np.asarray(column.flatten(), dtype=np.float32).reshape(len(column), feature.width)
    finite = np.isfinite(floats).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise NonFiniteError(
            f"feature {feature.name!r} is NaN or infinite, first at item row {row}; mend the catalogue"
        )
    return floats
