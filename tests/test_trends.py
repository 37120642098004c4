from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cg import trends
from recsys_cg.schema import queries_schema, sequences_schema
from recsys_cg.trends import LEAST_TRENDING, NO_TREND, FadingCounts, Trend

HOUR = 3_600_000_000


def shown(trend: Trend) -> dict[int, float]:
    assert trend.rows.dtype == np.int32
    assert trend.counts.dtype == np.float64
    return dict(zip(trend.rows.tolist(), trend.counts.tolist(), strict=True))


def counts_of(events: list[tuple[float, int]], *, half_life: float = 1.0) -> FadingCounts:
    times, rows = zip(*sorted(events), strict=True) if events else ((), ())
    times_us = np.array([round(time * HOUR) for time in times], np.int64)
    return FadingCounts(times_us, np.array(rows, np.int32), half_life_hours=half_life)


def at(counts: FadingCounts, *hours: float) -> list[dict[int, float]]:
    return [shown(trend) for trend in counts.at(np.array([round(hour * HOUR) for hour in hours], np.int64))]


def test_an_interaction_counts_half_as_much_a_half_life_later_and_not_at_its_own_time() -> None:
    counts = counts_of([(0.0, 3), (1.0, 3), (1.0, 4)])
    assert at(counts, 0.0, 1.0, 2.0, 3.0) == [{}, {3: 0.5}, {3: 0.25 + 0.5, 4: 0.5}, {3: 0.375, 4: 0.25}]
    assert at(counts, 5.0, 5.1) == [{3: 0.09375, 4: 0.0625}, {3: pytest.approx(0.0875, abs=1e-4)}]
    assert at(counts_of([(0.0, 3), (1.0, 3)], half_life=2.0), 2.0) == [{3: 0.5 + 0.5**0.5}]


def test_times_may_come_in_any_order_and_twice() -> None:
    counts = counts_of([(0.0, 3), (1.0, 4), (9.0, 3)])
    assert at(counts, 10.0, 0.0, 10.0, 2.0, 100.0) == [
        {3: pytest.approx(0.5, abs=1e-3)}, {}, {3: pytest.approx(0.5, abs=1e-3)}, {3: 0.25, 4: 0.5}, {},
    ]  # fmt: skip


def test_nothing_ever_happened() -> None:
    assert at(counts_of([]), 1.0, 2.0) == [{}, {}]
    assert counts_of([]).at(np.zeros(0, np.int64)) == []
    assert at(FadingCounts.of([], [], half_life_hours=1.0), 1.0) == [{}]


def test_years_between_queries_and_crowds_overflow_nothing() -> None:
    crowd = [(1000.0, 1)] * 5000
    counts = counts_of([(0.0, 0), *crowd, (90_000.0, 2)], half_life=0.25)
    assert at(counts, 0.25, 1000.25, 1001.0, 90_000.25) == [{0: 0.5}, {1: 2500.0}, {1: 312.5}, {2: 0.5}]


def test_a_crowd_counts_until_it_has_faded_and_not_beyond_24_half_lives() -> None:
    crowd = counts_of([(0.0, 1)] * 2**20)
    assert at(crowd, 13.0, 24.0, 24.1) == [{1: 128.0}, {1: 0.0625}, {}]
    assert at(crowd, 13.0, 5000.0) == [{1: 128.0}, {}]


@given(
    events=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4)), max_size=30),
    asked=st.lists(st.integers(-5, 500), max_size=10),
    half_life=st.integers(1, 20),
)
def test_counts_are_those_of_looking_at_every_event(
    events: list[tuple[int, int]], asked: list[int], half_life: int
) -> None:
    counts = counts_of([(time / 4, row) for time, row in events], half_life=half_life / 4)
    for now, found in zip(asked, at(counts, *(now / 4 for now in asked)), strict=True):
        expected = dict.fromkeys(range(5), 0.0)
        for time, row in events:
            expected[row] += 0.5 ** ((now - time) / half_life) if time < now else 0.0
        assert {row: expected[row] for row in found} == pytest.approx(found, abs=30 * 2**-24)
        assert all(expected[row] < LEAST_TRENDING * 1.001 for row in expected.keys() - found.keys())


def test_training_interactions_and_first_targets_are_counted() -> None:
    sequences = pa.table(
        [["ann", "bob"], [[1, 2], [1]], [[0, 24 * HOUR], [25 * HOUR]], [[0, 0], [0]], [[1.0, 1.0], [1.0]]],
        schema=sequences_schema,
    )
    queries = pa.Table.from_pylist(
        [
            {"user_id": "ann", "time_us": 26 * HOUR, "targets": [7, 8]},
            {"user_id": "bob", "time_us": 25 * HOUR, "targets": []},
        ],
        schema=pa.schema([queries_schema.field(name) for name in ("user_id", "time_us", "targets")]),
    )
    counts = FadingCounts.of([sequences], [queries, queries.slice(0, 0)], half_life_hours=1.0)
    # Target 8 came later, nobody knows when.
    assert at(counts, 26.0, 27.0) == [{1: 0.5, 2: 0.25}, {1: 0.25, 2: 0.125, 7: 0.5}]


def test_interactions_forgotten_by_the_first_query_are_not_kept() -> None:
    schema = pa.schema([queries_schema.field(name) for name in ("user_id", "time_us", "targets")])
    asked = [{"user_id": "ann", "time_us": time * HOUR, "targets": [1]} for time in (100, 30)]
    times = [[0, 5 * HOUR], [6 * HOUR, 7 * HOUR]]
    sequences = pa.table([["a", "b"], [[2, 3], [4, 5]], times, [[0, 0]] * 2, [[1.0, 1.0]] * 2], schema=sequences_schema)
    counts = FadingCounts.of([sequences], [pa.Table.from_pylist(asked, schema=schema)], half_life_hours=1.0)
    assert counts._rows.tolist() == [4, 5, 1, 1]


def test_a_bonus_grows_with_the_logarithm_of_the_count() -> None:
    rows, bonus = Trend.of(np.array([5, 2]), np.array([7, 1])).raised(0.5)
    assert rows.tolist() == [2, 5]
    assert bonus == pytest.approx([0.5 * np.log(2), 0.5 * np.log(8)])
    assert bonus.dtype == np.float32
    assert len(NO_TREND.raised(1.0).rows) == 0


def test_too_many_items_are_cut_to_the_largest_counts_of_equal_ones_the_lower_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trends, "MOST_TRENDING", 3)
    trend = Trend.of(np.array([9, 4, 7, 1, 2]), np.array([1, 2, 2, 2, 5]))
    assert shown(trend) == {1: 2, 2: 5, 4: 2}
    assert trend.by_count().tolist() == [2, 1, 4]
    assert shown(trend.among(np.array([True, False, True]))) == {1: 2, 4: 2}
