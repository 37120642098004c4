from __future__ import annotations

import math

import pytest

from recsys_cg.release.report import words
from recsys_cg.release.report.charts import Tick, curve_points, nice_axis, trace

DASH, MINUS = "\u2013", "\u2212"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, DASH),
        (math.nan, DASH),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (0.0, "0"),
        (1.0, "1"),
        (1234567, "1,234,567"),
        (5120.4, "5,120"),
        (17261.2, "17,261"),
        (0.123456, "0.1235"),
        (-3.4567, f"{MINUS}3.457"),
        (-12, f"{MINUS}12"),
        (6.1e-8, "6.1\u2009\u00d7\u200910⁻⁸"),
        (-1e300, f"{MINUS}1\u2009\u00d7\u200910³⁰⁰"),
        ("text", "text"),
    ],
)
def test_any_figure_is_written_for_people(value: object, text: str) -> None:
    assert words.quantity(value) == text


def test_fractions_differences_and_intervals_align() -> None:
    assert words.fraction(0.41249) == "0.412"
    assert words.fraction(None) == DASH
    assert words.signed(-0.0071) == f"{MINUS}0.007"
    assert words.signed(0.0) == "+0.000"
    assert words.interval((0.1, 0.25)) == "0.100 to 0.250"
    assert words.interval((-0.1, 0.25), sign=True) == f"{MINUS}0.100 to +0.250"
    assert words.interval(None) == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, DASH),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (612_352, "612 kB"),
        (2.5e9, "2.5 GB"),
        (3e15, "3,000.0 TB"),
    ],
)
def test_sizes_use_decimal_units(size: float | None, text: str) -> None:
    assert words.size(size) == text


def test_times_are_read_or_shown_as_they_are() -> None:
    assert words.moment("2026-11-29T19:31:02Z") == "29 November 2026, 19:31 UTC"
    assert words.day("2026-11-29T19:31:02Z") == "29 Nov 2026"
    assert words.moment("yesterday") == words.day("yesterday") == "yesterday"


def test_nested_figures_become_labelled_rows() -> None:
    values = {
        "a_b": 1,
        "m": {"mean": 0.5, "ci95": [0.4, 0.6]},
        "n": {"p_50": 2.0, "deep": {"x": "y"}},
        "r": [1, 2],
        "l": [1],
    }
    assert list(words.flatten(values)) == [
        ("A b", "1"),
        ("M", "0.5 (0.4 to 0.6)"),
        ("N: p 50", "2"),
        ("N: deep: x", "y"),
        ("R", "1 to 2"),
    ]


def test_names_are_written_out_and_unknown_ones_made_readable() -> None:
    assert words.system_label("two_tower") == "This release"
    assert words.system_label("my_model") == "My model"
    assert words.bucket_label("overall") == "All queries"
    assert words.gate_label("beats_popularity_recent") == "Beats recent popularity"
    assert words.gate_label("new_gate") == "New gate"


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 0.61, ["0.0", "0.2", "0.4", "0.6", "0.8"]),
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.9, 1.0, ["0.90", "0.92", "0.94", "0.96", "0.98", "1.00"]),
        (0.0, 97.0, ["0", "20", "40", "60", "80", "100"]),
        (0.0, 0.004, ["0.000", "0.001", "0.002", "0.003", "0.004"]),
    ],
)
def test_axes_end_at_round_values(low: float, high: float, labels: list[str]) -> None:
    axis = nice_axis(low, high)
    assert [tick.label for tick in axis.ticks] == labels
    assert (axis.ticks[0].at, axis.ticks[-1].at) == (0.0, 100.0)
    assert axis.low <= low < high <= axis.high + 1e-12


def test_an_axis_of_differences_shows_signs_and_zero() -> None:
    axis = nice_axis(-0.07, 0.3, sign=True)
    assert [tick.label for tick in axis.ticks] == [f"{MINUS}0.1", "0.0", "+0.1", "+0.2", "+0.3"]
    assert axis.ticks[1] == Tick(25.0, "0.0")
    assert axis.place(0.0) == 25.0


def test_places_stay_on_the_axis_and_equal_ends_are_widened() -> None:
    axis = nice_axis(0.0, 1.0)
    assert (axis.place(-5.0), axis.place(0.25), axis.place(7.0)) == (0.0, 25.0, 100.0)
    flat = nice_axis(0.5, 0.5)
    assert flat.low < 0.5 < flat.high
    zero = nice_axis(0.0, 0.0)
    assert zero.low < 0.0 < zero.high


def test_a_trace_runs_upwards_and_gaps_are_left_out() -> None:
    unit = nice_axis(0.0, 1.0)
    assert trace([0.0, 0.5, 1.0], [0.0, 0.25, 1.0], unit, unit) == "0,100 50,75 100,0"
    assert curve_points([1.0, None, math.nan, 4.0]) == [(1, 1.0), (4, 4.0)]


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0.0785, "5 min"), (3.2, "3.2 h"), (47.99, "48.0 h"), (72, "3.0 days"), (-0.5, f"{MINUS}30 min"), (None, DASH),
     (math.nan, DASH), ("3", DASH)],
)  # fmt: skip
def test_a_span_of_time_has_its_own_unit(hours: object, text: str) -> None:
    assert words.duration(hours) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0513, "51 µs"), (10.19, "10.2 ms"), (0.99951, "1,000 µs"), (None, DASH), (math.inf, DASH)]
)
def test_short_latencies_are_in_microseconds(value: object, text: str) -> None:
    assert words.milliseconds(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("old -0.0722 to -0.05: a drop", f"old {MINUS}0.0722 to {MINUS}0.05: a drop"),
        ("from 1 is 1.464e-07 and", "from 1 is 1.464\u2009\u00d7\u200910⁻⁷ and"),
        ("(-3) 2026-11-29, r-1, k-NN, 1e5", f"({MINUS}3) 2026-11-29, r-1, k-NN, 1e5"),
        ("", ""),
    ],
)
def test_prose_gets_minus_signs_and_powers_and_keeps_its_hyphens(text: str, shown: str) -> None:
    assert words.typeset(text) == shown
