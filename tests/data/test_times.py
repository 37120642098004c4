from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from recsys_cg.config import InteractionsConfig
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2019-10-01 00:00:00 UTC", "2019-10-01T00:00:00"),
        ("2019-10-01T00:00 GMT", "2019-10-01T00:00:00"),
        ("2019-10-01 00:00:00 +02:00", "2019-09-30T22:00:00"),
        ("2019-10-01 00:00:00 PST", None),
        ("2019-10-01 UTC", None),
    ],
)
def test_a_zone_may_stand_apart_and_be_named_utc(text: str, expected: str | None) -> None:
    (found,) = parse_times(pa.array([text]), "iso8601").to_pylist()
    assert found == (None if expected is None else int(np.datetime64(expected, "us").astype(np.int64)))


@pytest.mark.parametrize(
    ("pattern", "zone", "text", "expected"),
    [
        ("%m/%d/%Y %I:%M:%S %p", "UTC", "11/9/2019 9:05:58 PM", "2019-11-09T21:05:58"),
        ("%m/%d/%Y %I:%M:%S %p", "UTC", "11/9/2019 12:05:58 AM", "2019-11-09T00:05:58"),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", " 01.07.2019 12:00 ", "2019-07-01T10:00:00"),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "31.03.2019 02:30", None),  # the clock goes forward over it
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "27.10.2019 02:30", "2019-10-27T00:30:00"),  # twice: the earlier
        ("%a %b %d %H:%M:%S %z %Y", "Europe/Berlin", "Tue Apr 03 18:00:09 -0700 2012", "2012-04-04T01:00:09"),
        ("%d/%m/%Y", "UTC", "29/02/2020", "2020-02-29T00:00:00"),
        ("%d/%m/%Y", "UTC", "29/02/2019", None),
        ("%d/%m/%Y", "UTC", "31/04/2019", None),
        ("%a %b %d %H:%M:%S %z %Y", "UTC", "Tue Feb 30 23:00:09 -0700 2012", None),
        ("%d/%m/%Y", "UTC", "01/02/2019 10:00", None),
        ("%d/%m/%Y", "UTC", "", None),
        ("%Y%m%d", "UTC", "20190203", "2019-02-03T00:00:00"),
    ],
)
def test_a_pattern_reads_other_notations_and_no_day_that_is_none(
    pattern: str, zone: str, text: str, expected: str | None
) -> None:
    found = parse_times(pa.array([text, None]), pattern, zone).to_pylist()
    assert found == [None if expected is None else int(np.datetime64(expected, "us").astype(np.int64)), None]


def test_a_pattern_reads_whole_numbers_and_leaves_typed_times_alone() -> None:
    day = int(np.datetime64("2019-02-03", "us").astype(np.int64))
    assert parse_times(pa.array([20190203, 7]), "%Y%m%d").to_pylist() == [day, None]
    assert parse_times(pa.array([day], pa.timestamp("us")), "%Y%m%d").to_pylist() == [day]
    assert parse_times(pa.array([], pa.string()), "%Y%m%d").to_pylist() == []
    assert parse_times(pa.array([2.5]), "%Y%m%d").to_pylist() == [None]


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("sec", r"a time is in s, ms, us, ns, iso8601, or a pattern like '%m/%d/%Y %H:%M'"),
        ("iso-8601", r"did you mean 'iso8601'\?"),
        ("%d/%m %H:%M", "a pattern needs a year and a day"),
        ("%Y-%m-%dT%H:%M:%S.%f", r"and not %f"),
        ("", "a time is in s"),
    ],
)
def test_a_unit_or_pattern_that_nothing_can_be_read_by_is_an_error_of_the_configuration(
    unit: str, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        InteractionsConfig(path="x", time_unit=unit)
    assert InteractionsConfig(path="x", time_unit="%d/%m/%Y %H:%M").time_unit == "%d/%m/%Y %H:%M"


@pytest.mark.parametrize(
    "options", [{"delimiter": '"'}, {"delimiter": "::"}, {"columns": ["a", "a"]}, {"columns": [""]}]
)
def test_lines_that_cannot_be_cut_so_are_an_error_of_the_configuration(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InteractionsConfig(path="x", **options)
