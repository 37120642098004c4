"""What the values of a column look like."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.identifiers import to_strings
from recsys_cg.data.inspection.notation import find_notation, fits
from recsys_cg.data.times import is_absurd, parse_times
from recsys_cg.data.values import dense_rows, numeric_values
from recsys_cg.errors import SourceError

__all__ = ["Profile", "profile_column"]

_SHARE: Final = 0.9
_FIRST_DAY: Final = 19_800_101
_LAST_DAY: Final = 21_000_101
_EARLIEST_S: Final = 315_532_800
_LATEST_S: Final = 4_102_444_800
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Profile:
    """One column of a glimpse.

    Attributes:
        name: the column.
        rows: rows looked at.
        missing: rows without a value.
        texts: the values as text, missing ones left out; for lists the texts of all their elements.
        is_list: whether each value is a list.
        dim: length of each value, where all are vectors of numbers of one length above 1.
        distinct: number of distinct values.
        numbers: float64, the values as numbers, where nine in ten are; else None.
        time_unit: in which unit or notation nine in ten values are times from 1980 on; None: they are not, or several
            notations fit.
        is_typed_time: the file itself types the column as a time.
    """

    name: str
    rows: int
    missing: int
    texts: tuple[str, ...]
    is_list: bool
    dim: int | None
    distinct: int
    numbers: np.ndarray[Any, np.dtype[np.float64]] | None
    time_unit: str | None
    is_typed_time: bool

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are whole."""
        return self.numbers is not None and bool(np.all(self.numbers == np.floor(self.numbers)))

    @property
    def samples(self) -> str:
        """Up to three different values, for people."""
        shown = [text if len(text) <= 30 else text[:29] + "…" for text in dict.fromkeys(self.texts)]
        return ", ".join(repr(text) for text in shown[:3]) if shown else "no value"


def profile_column(name: str, column: pa.ChunkedArray) -> Profile:
    """Look at the values of ``column``, which may have any type."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_list = (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)
    )
    flat = pc.list_flatten(array) if is_list else array
    texts = _texts(flat, name)
    is_typed_time = pa.types.is_timestamp(flat.type) or pa.types.is_date(flat.type)
    numbers = None if is_typed_time or not texts else _numbers(flat, name, len(texts))
    return Profile(
        name=name,
        rows=len(array),
        missing=array.null_count if is_list else len(array) - len(texts),
        texts=tuple(texts),
        is_list=is_list,
        dim=_vector_length(array, name, is_list),
        distinct=len(set(texts)),
        numbers=numbers,
        time_unit=None if is_list or not texts else _time_unit(array, numbers, is_typed_time),
        is_typed_time=is_typed_time,
    )


def _texts(flat: pa.Array, name: str) -> list[str]:
    try:
        texts: list[str] = to_strings(flat, name).drop_null().to_pylist()
    except SourceError:
        return [_plain(value) for value in flat.to_pylist() if value is not None]
    return texts


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _numbers(flat: pa.Array, name: str, present: int) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    try:
        values = numeric_values(pa.chunked_array([flat]), name)
    except (SourceError, pa.ArrowNotImplementedError):
        return None
    finite = values[np.isfinite(values)]
    return finite if len(finite) >= _SHARE * present else None


def _vector_length(array: pa.Array, name: str, is_list: bool) -> int | None:
    """Return the one length of vectors of numbers, given as lists or as text in brackets."""
    present = array.drop_null()
    if not len(present):
        return None
    if is_list:
        length = len(present[0])
    elif pa.types.is_string(present.type):
        first = present[0].as_py().strip()
        length = first.count(",") + 1 if first.startswith("[") and first.endswith("]") else 0
    else:
        return None
    if length < 2:
        return None
    try:
        wrong = dense_rows(pa.chunked_array([present]), name, length)[1]
    except SourceError:
        return None
    return length if wrong.mean() <= 1 - _SHARE and _has_fractions(present) else None


def _has_fractions(array: pa.Array) -> bool:
    """Whole numbers of one count, e.g. three identifiers each, are no vectors unless the file types them as floats."""
    if not pa.types.is_string(array.type):
        flat = pc.list_flatten(array)
        return pa.types.is_floating(flat.type) or any("." in text for text in _texts(flat.drop_null(), ""))
    return any("." in text for text in array.to_pylist())


def _time_unit(array: pa.Array, numbers: np.ndarray[Any, np.dtype[np.float64]] | None, is_typed: bool) -> str | None:
    if is_typed:
        return "iso8601"
    if numbers is None:
        if not pa.types.is_string(array.type):
            return None
        return "iso8601" if _are_times(array, "iso8601") else find_notation(array.drop_null().to_pylist())
    middle = float(np.median(numbers))
    for unit, per_second in _UNITS.items():
        if _EARLIEST_S <= middle / per_second < _LATEST_S:
            return unit if _are_times(array, unit) else None
    is_day = _FIRST_DAY <= middle <= _LAST_DAY and fits([f"{number:.0f}" for number in numbers], "%Y%m%d")
    return "%Y%m%d" if is_day else None


def _are_times(array: pa.Array, unit: str) -> bool:
    times = parse_times(array, unit)
    good = int(pc.sum(pc.fill_null(pc.invert(is_absurd(times)), False)).as_py() or 0)
    return good > 0 and good >= _SHARE * (len(array) - array.null_count)
