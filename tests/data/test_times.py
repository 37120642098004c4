from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from recsys_cg.data.times import check_zone, format_time, is_absurd, parse_times
from recsys_cg.errors import ConfigError


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", 1_513_000_000, 1_513_000_000_000_000),
        ("ms", 1_513_000_000_123, 1_513_000_000_123_000),
        ("us", 1_513_000_000_123_456, 1_513_000_000_123_456),
        ("ns", 1_513_000_000_123_456_789, 1_513_000_000_123_456),
        ("s", "1513000000", 1_513_000_000_000_000),
        ("s", "1513000000.123456", 1_513_000_000_123_456),
        ("s", " +15 ", 15_000_000),
        ("s", "1e3", 1_000_000_000),
        ("s", 2.5, 2_500_000),
        ("s", Decimal("2.25"), 2_250_000),
        ("ns", "-1", -1),
    ],
)
def test_numbers_of_every_unit_become_microseconds(unit: str, value: object, expected: int) -> None:
    assert parse_times(pa.array([value]), unit).to_pylist() == [expected]


@pytest.mark.parametrize("value", ["yesterday", "", "12:30", "1,5", "99999999999999999999", "nan", "2020-01-01"])
def test_text_that_is_no_number_is_null_not_an_error(value: str) -> None:
    assert parse_times(pa.array([value, "1"]), "s").to_pylist() == [None, 1_000_000]


def test_numbers_beyond_64_bits_are_null() -> None:
    assert parse_times(pa.array([2**62, 1]), "s").to_pylist() == [None, 1_000_000]
    assert parse_times(pa.array([1e300, float("nan"), float("inf")]), "s").to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00-0530", 19_800_000_000),
        ("1970-01-01T02+02", None),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("1970-02-30", None),
        ("1970-01-01T25:00:00", None),
        ("soon", None),
    ],
)
def test_iso_8601(text: str, expected: int | None) -> None:
    assert parse_times(pa.array([text]), "iso8601").to_pylist() == [expected]


def test_local_times_follow_the_zone_and_an_hour_that_never_was_is_unreadable() -> None:
    local = pa.array(["2020-07-01 00:00:00", "2020-03-29 01:30:00", "2020-10-25 01:30:00", "2020-07-01T00:00:00Z"])
    summer = 1_593_561_600_000_000
    assert parse_times(local, "iso8601", "Europe/London").to_pylist() == [
        summer - 3_600_000_000,
        None,
        1_603_585_800_000_000,
        summer,
    ]


def test_typed_columns_keep_their_meaning_whatever_the_unit_says() -> None:
    stamps = pa.array([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ns"))
    assert parse_times(stamps, "ms").to_pylist() == [1_000_000]
    assert parse_times(pa.array([dt.date(1970, 1, 2)]), "s").to_pylist() == [86_400_000_000]
    zoned = pa.array([0], pa.timestamp("s", tz="America/Sao_Paulo"))
    assert parse_times(zoned, "s", "Asia/Tokyo").to_pylist() == [0]
    naive = pa.array([9 * 3600], pa.timestamp("s"))
    assert parse_times(naive, "s", "Asia/Tokyo").to_pylist() == [0]


def test_dictionary_and_chunked_columns_are_read() -> None:
    assert parse_times(pa.array(["1", "1"]).dictionary_encode(), "s").to_pylist() == [1_000_000] * 2
    assert parse_times(pa.chunked_array([["1"], ["2"]]), "s").to_pylist() == [1_000_000, 2_000_000]
    assert parse_times(pa.array([], pa.string()), "s").to_pylist() == []


def test_absurd_times_are_those_outside_1970_to_2200() -> None:
    edges = pa.array([-1, 0, 7_258_118_400_000_000 - 1, 7_258_118_400_000_000, None])
    assert is_absurd(edges).to_pylist() == [True, False, False, True, None]


def test_zones_are_checked_by_name() -> None:
    check_zone("Europe/London")
    with pytest.raises(ConfigError, match="no such time zone"):
        check_zone("Europe/Lundon")


def test_times_are_shown_in_utc() -> None:
    assert format_time(1_500_000) == "1970-01-01T00:00:01.500000Z"
