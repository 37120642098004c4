"""Times of any unit become int64 microseconds since the Unix epoch, UTC."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.errors import ConfigError

__all__ = ["MAX_TIME_US", "MIN_TIME_US", "check_zone", "format_time", "is_absurd", "parse_times"]

MIN_TIME_US: Final = 0
"""1970-01-01: earlier times are absurd in a log."""
MAX_TIME_US: Final = 7_258_118_400_000_000
"""2200-01-01: a time at or after it comes from a wrong unit."""

_PER_UNIT: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
_WHOLE: Final = r"^\s*[+-]?\d{1,18}\s*$"
_DECIMAL: Final = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$"
_ISO: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?)?$"
_ISO_ZONED: Final = r"^(?P<local>[0-9-]+[T ][0-9:.,]+?)\s*(?P<zone>[Zz]|UTC|GMT|[+-]\d{2}(?::?\d{2})?)$"
_DAYS_TO_CHECK: Final = 4
"""Arrow reads 30 February as 2 March: a day that its month does not have ends up among the next month's first, a zone's
shift included."""


def check_zone(name: str) -> None:
    """Raise `ConfigError` when ``name`` is no time zone that this machine knows."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"time_zone = {name!r}: no such time zone; write e.g. 'UTC' or 'Europe/London'") from error


def parse_times(column: pa.Array | pa.ChunkedArray, unit: str, zone: str = "UTC") -> pa.Array:
    """Read ``column`` as times; null where it is missing or cannot be read.

    A column that the file itself types as a timestamp or date is taken as such, whatever ``unit`` says. Numbers, and
    text that holds numbers, are counts of ``unit`` since the epoch; fractions are kept to the microsecond (half
    rounds to even; of nanoseconds the rest is cut off). ISO 8601 text may carry a zone, or is local to ``zone``: of
    a local time that occurs twice the earlier one is taken, and one that never occurs is unreadable.

    Args:
        column: numbers, text or timestamps, any length.
        unit: ``s``, ``ms``, ``us``, ``ns``, ``iso8601``, or how text is written, as Python's ``strptime`` has it:
            ``%m/%d/%Y %I:%M %p``.
        zone: zone of written times and typed timestamps that carry none.

    Returns:
        int64 array of microseconds; use `is_absurd` for values outside 1970 to 2200.

    Example:
        >>> parse_times(pa.array(["2020-09-13T12:26:40Z", "soon"]), "iso8601").to_pylist()
        [1600000000000000, None]
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        return _from_timestamps(array, zone)
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    if pa.types.is_string(array.type):
        if "%" in unit:
            return _from_pattern(array, unit, zone)
        return _from_iso(array, zone) if unit == "iso8601" else _from_digits(array, unit)
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64(), safe=False)
    if "%" in unit and pa.types.is_integer(array.type):
        return _from_pattern(array.cast(pa.string()), unit, zone)
    if unit not in _PER_UNIT or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return pa.nulls(len(array), pa.int64())
    return _from_numbers(array, unit)


def is_absurd(times: pa.Array) -> pa.Array:
    """Tell which times lie outside 1970-01-01 to 2200-01-01; null stays null."""
    return pc.or_(pc.less(times, MIN_TIME_US), pc.greater_equal(times, MAX_TIME_US))


def format_time(time_us: int) -> str:
    """Return ``time_us`` as RFC 3339 in UTC, for people.

    Example:
        >>> format_time(1_600_000_000_000_000)
        '2020-09-13T12:26:40.000000Z'
    """
    return str(np.datetime64(time_us, "us")) + "Z"


def _from_numbers(array: pa.Array, unit: str) -> pa.Array:
    if pa.types.is_integer(array.type):
        return _scale_integers(array, unit)
    scaled = pc.round(pc.multiply(array.cast(pa.float64()), _PER_UNIT[unit]), round_mode="half_to_even")
    usable = pc.and_(pc.is_finite(scaled), pc.less(pc.abs(scaled), 2.0**62))
    return pc.if_else(usable, scaled, None).cast(pa.int64(), safe=False)


def _scale_integers(array: pa.Array, unit: str) -> pa.Array:
    if pa.types.is_uint64(array.type):
        array = pc.if_else(pc.less(array, 2**63), array, None)
    array = array.cast(pa.int64())
    if unit == "ns":
        return _divide_down(array, 1000)
    factor = int(_PER_UNIT[unit])
    if factor == 1:
        return array
    limit = 2**62 // factor
    fits = pc.and_(pc.less_equal(array, limit), pc.greater_equal(array, -limit))
    return pc.multiply(pc.if_else(fits, array, None), factor)


def _divide_down(array: pa.Array, divisor: int) -> pa.Array:
    values = np.floor_divide(pc.fill_null(array, 0).to_numpy(zero_copy_only=False), divisor)
    missing = pc.is_null(array).to_numpy(zero_copy_only=False)
    return pa.array(values, type=pa.int64(), mask=missing)


def _from_digits(array: pa.Array, unit: str) -> pa.Array:
    try:
        return _scale_integers(array.cast(pa.int64()), unit)
    except pa.ArrowInvalid:
        pass
    trimmed = pc.utf8_trim_whitespace(array)
    is_whole = pc.match_substring_regex(array, _WHOLE)
    digits = pc.if_else(is_whole, pc.replace_substring_regex(trimmed, r"^\+", ""), None)
    whole = _scale_integers(digits.cast(pa.int64()), unit)
    is_decimal = pc.and_(pc.match_substring_regex(array, _DECIMAL), pc.invert(is_whole))
    decimal = pc.if_else(is_decimal, pc.replace_substring_regex(trimmed, r"^\+", ""), None)
    return pc.coalesce(whole, _from_numbers(decimal.cast(pa.float64()), unit))


def _from_timestamps(array: pa.Array, zone: str) -> pa.Array:
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("us"), safe=False)
    if array.type.unit == "ns":
        micros = _divide_down(array.cast(pa.int64()), 1000)
    else:
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[array.type.unit]
        raw = array.cast(pa.int64())
        limit = 2**62 // factor
        fits = pc.and_(pc.less_equal(raw, limit), pc.greater_equal(raw, -limit))
        micros = pc.multiply(pc.if_else(fits, raw, None), factor)
    return micros if array.type.tz is not None else _to_utc(micros, zone)


def _to_utc(local_us: pa.Array, zone: str) -> pa.Array:
    if zone == "UTC":
        return local_us
    sane = pc.invert(is_absurd(local_us))
    local = pc.if_else(sane, local_us, None).cast(pa.timestamp("us"))
    placed = pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="earliest")
    back = pc.local_timestamp(placed)
    return pc.if_else(pc.equal(back, local), placed.cast(pa.int64()), None)


def _from_iso(array: pa.Array, zone: str) -> pa.Array:
    trimmed = pc.utf8_trim_whitespace(array)
    parts = pc.extract_regex(trimmed, _ISO_ZONED)
    has_zone = pc.is_valid(parts)
    local = pc.coalesce(pc.struct_field(parts, "local"), trimmed)
    naive = _parse_naive(local)
    shift = _zone_shift(pc.struct_field(parts, "zone"))
    return pc.if_else(pc.fill_null(has_zone, False), pc.subtract(naive, shift), _to_utc(naive, zone))


def _parse_naive(text: pa.Array) -> pa.Array:
    shaped = pc.if_else(pc.match_substring_regex(text, _ISO), text, None)
    shaped = pc.replace_substring(pc.replace_substring(shaped, "T", " "), ",", ".")
    shaped = pc.replace_substring_regex(shaped, r"(\.\d{6})\d+$", r"\1")
    try:
        return shaped.cast(pa.timestamp("us")).cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array([_parse_one(value) for value in shaped.to_pylist()], type=pa.int64())


def _parse_one(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(np.datetime64(text.replace(" ", "T"), "us").astype(np.int64))
    except ValueError:
        return None


def _zone_shift(zones: pa.Array) -> pa.Array:
    plain = pc.replace_substring(pc.if_else(pc.match_substring_regex(zones, "^[A-Za-z]+$"), "+0000", zones), ":", "")
    plain = pc.if_else(pc.equal(pc.utf8_length(plain), 3), pc.binary_join_element_wise(plain, "00", ""), plain)
    sign = pc.if_else(pc.starts_with(plain, "-"), -1, 1)
    hours = pc.utf8_slice_codeunits(plain, 1, 3).cast(pa.int64())
    minutes = pc.utf8_slice_codeunits(plain, 3, 5).cast(pa.int64())
    return pc.multiply(sign, pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60_000_000))


def _from_pattern(array: pa.Array, pattern: str, zone: str) -> pa.Array:
    parsed = pc.strptime(pc.utf8_trim_whitespace(array), format=pattern, unit="us", error_is_null=True)
    micros = parsed.cast(pa.int64())
    doubtful = pc.fill_null(pc.less_equal(pc.day(parsed), _DAYS_TO_CHECK), False).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(doubtful)
    wrong = np.zeros(len(array), dtype=bool)
    wrong[rows] = [not _is_date(text, pattern) for text in array.take(pa.array(rows)).to_pylist()]
    micros = pc.if_else(pa.array(wrong), None, micros)
    return micros if "%z" in pattern else _to_utc(micros, zone)


def _is_date(text: str, pattern: str) -> bool:
    """Tell whether there is such a day; Arrow takes short names of months and days for long ones, Python does not."""
    for wanted in {pattern, pattern.replace("%b", "%B").replace("%a", "%A"), pattern.replace("%B", "%b")}:
        with suppress(ValueError):
            datetime.strptime(text.strip(), wanted)
            return True
    return False
