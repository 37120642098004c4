"""Ragged values: what a catalogue column says of each item, as (row, value) pairs, whatever type the file gave it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.identifiers import to_strings
from recsys_cg.errors import SourceError

__all__ = ["Ragged", "dense_rows", "numeric_column", "numeric_values", "split_values", "tokenize"]

_NUMBER: Final = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$"


@dataclass(frozen=True)
class Ragged:
    """Values of rows: ``values[j]`` belongs to row ``rows[j]``; ``rows`` does not decrease."""

    rows: npt.NDArray[np.int64]
    values: pa.Array

    def filter(self, mask: pa.Array | npt.NDArray[np.bool_]) -> Ragged:
        """Keep the pairs that ``mask`` marks."""
        chosen = np.asarray(mask, dtype=bool)
        return self if chosen.all() else Ragged(self.rows[chosen], self.values.filter(pa.array(chosen)))

    def distinct(self) -> Ragged:
        """Keep the first of each value of a row."""
        codes = np.asarray(self.values.dictionary_encode().indices, dtype=np.int64)
        keys = self.rows * (int(codes.max(initial=0)) + 1) + codes
        order = np.argsort(keys, kind="stable")
        mask = np.zeros(len(order), dtype=bool)
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = keys[order][1:] != keys[order][:-1]
        mask[order[is_first]] = True
        return self.filter(mask)

    def limit(self, most: int) -> Ragged:
        """Keep the first ``most`` values of each row."""
        begins = np.searchsorted(self.rows, self.rows)
        return self.filter(np.arange(len(self.rows)) - begins < most)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _pairs(column: pa.ChunkedArray, name: str) -> Ragged:
    array = _plain(column)
    if _is_list(array.type):
        rows = np.asarray(pc.list_parent_indices(array)).astype(np.int64)
        strings = to_strings(pc.list_flatten(array), name)
    else:
        rows, strings = np.arange(len(array), dtype=np.int64), to_strings(array, name)
    return Ragged(rows, strings).filter(pc.is_valid(strings))


def split_values(column: pa.ChunkedArray, name: str, separator: str | None) -> Ragged:
    """Read a categorical column: one value, a list of values, or text that ``separator`` splits.

    White space around a value is not part of it; empty values are none; a value counts once an item.

    Example:
        >>> split_values(pa.chunked_array([["Drama|War", None]]), "genres", "|").values.to_pylist()
        ['Drama', 'War']
    """
    pairs = _pairs(column, name)
    if separator is not None:
        pairs = _explode(pairs, pc.split_pattern(pairs.values, separator))
    pairs = Ragged(pairs.rows, pc.utf8_trim_whitespace(pairs.values))
    return pairs.filter(pc.not_equal(pc.binary_length(pairs.values), 0)).distinct()


def tokenize(column: pa.ChunkedArray, name: str) -> Ragged:
    """Read a text column as tokens: NFKD, lower case, then the runs of letters, marks and digits; each once an item.

    The order of first occurrence is kept. Scripts without spaces (Chinese, Japanese, Thai) give one token a run.

    Example:
        >>> tokenize(pa.chunked_array([["Se7en, The"]]), "title").values.to_pylist()
        ['se7en', 'the']
    """
    pairs = _pairs(column, name)
    text = pc.utf8_lower(pc.utf8_normalize(pairs.values, form="NFKD"))
    tokens = _explode(pairs, pc.split_pattern_regex(text, r"[^\p{L}\p{M}\p{N}]+"))
    return tokens.filter(pc.not_equal(pc.binary_length(tokens.values), 0)).distinct()


def _explode(pairs: Ragged, lists: pa.Array) -> Ragged:
    parents = np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    return Ragged(pairs.rows[parents], pc.list_flatten(lists))


def numeric_values(column: pa.ChunkedArray, name: str) -> npt.NDArray[np.float64]:
    """Read a numeric column; float64 ``[n]``, NaN where it is missing, infinite, or text that is no number.

    Raises:
        SourceError: the column holds values and none of them is a number.
    """
    array = _plain(column)
    numbers = numeric_column(array, name)
    if numbers.null_count == len(numbers) and array.null_count < len(array):
        strings = to_strings(array, name).drop_null()
        if len(strings):
            raise SourceError(f"numeric feature of column {name!r}: no value is a number, e.g. {strings[0].as_py()!r}")
    values = np.array(pc.fill_null(numbers, float("nan")), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def numeric_column(array: pa.Array, name: str) -> pa.Array:
    """Read numbers, or text that holds numbers, as float64; null where it is missing or is no number."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return array.cast(pa.float64(), safe=False)
    strings = to_strings(array, name)
    readable = pc.match_substring_regex(strings, _NUMBER)
    plain = pc.replace_substring_regex(pc.utf8_trim_whitespace(strings), r"^\+", "")
    return pc.if_else(readable, plain, None).cast(pa.float64())


def dense_rows(column: pa.ChunkedArray, name: str, dim: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Read a column of vectors: lists of numbers, or text (JSON, or numbers between spaces or commas).

    Returns:
        float32 ``[n, dim]``, zeros where the vector is missing or wrong, and bool ``[n]``, True where it is wrong: of
        another length, or with a value that is no finite number.
    """
    array = _plain(column)
    if pa.types.is_null(array.type):
        return np.zeros((len(array), dim), dtype=np.float32), np.zeros(len(array), dtype=bool)
    if not _is_list(array.type):
        array = pa.array([_parse_vector(text) for text in to_strings(array, name).to_pylist()], pa.list_(pa.float64()))
    try:
        flat = np.array(pc.fill_null(pc.list_flatten(array).cast(pa.float64(), safe=False), float("nan")))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"dense feature of column {name!r}: {array.type} is no list of numbers") from error
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    parents = np.repeat(np.arange(len(array)), lengths)
    with np.errstate(over="ignore"):
        narrow = flat.astype(np.float32)
    wrong = np.asarray(pc.is_valid(array), dtype=bool) & (lengths != dim)
    wrong[parents[~np.isfinite(narrow)]] = True
    rows = np.zeros((len(array), dim), dtype=np.float32)
    good = ~wrong & (lengths == dim)
    rows[good] = narrow[good[parents]].reshape(-1, dim)
    return rows, wrong


def _parse_vector(text: str | None) -> list[float] | None:
    if text is None or not text.strip():
        return None
    try:
        values: Any = json.loads(text) if text.lstrip().startswith("[") else re.split(r"[\s,;]+", text.strip())
        return [float(value) for value in values]
    except (ValueError, TypeError):
        return [float("nan")]
