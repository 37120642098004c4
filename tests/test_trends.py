from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cg import trends
from recsys_cg.schema import queries_schema, sequences_schema
from recsys_cg.trends import NO_TREND, RollingCounts, Trend

HOUR = 3_600_000_000


def shown(trend: Trend) -> dict[int, int]:
    assert trend.rows.dtype == np.int32
    return dict(zip(trend.rows.tolist(), trend.counts.tolist(), strict=True))


def counts_of(events: list[tuple[float, int]], *, hours: float = 1.0, items: int = 10) -> RollingCounts:
    times, rows = zip(*sorted(events), strict=True) if events else ((), ())
    times_us = np.array([round(time * HOUR) for time in times], np.int64)
    return RollingCounts(times_us, np.array(rows, np.int32), items, hours=hours)


def at(counts: RollingCounts, *hours: float) -> list[dict[int, int]]:
    return [shown(trend) for trend in counts.at(np.array([round(hour * HOUR) for hour in hours], np.int64))]


def test_the_window_reaches_from_the_hours_before_up_to_the_query_which_is_not_in_it() -> None:
    counts = counts_of([(0.0, 3), (0.5, 3), (0.5, 4), (1.0, 5), (1.2, 3)])
    assert at(counts, 0.0, 0.4, 0.5, 1.0, 1.1, 1.5, 2.2, 9.0) == [
        {}, {3: 1}, {3: 1}, {3: 2, 4: 1}, {3: 1, 4: 1, 5: 1}, {3: 2, 4: 1, 5: 1}, {3: 1}, {},
    ]  # fmt: skip


def test_times_may_come_in_any_order_and_twice() -> None:
    counts = counts_of([(0.0, 3), (0.5, 4), (5.0, 3)])
    assert at(counts, 5.1, 0.1, 5.1, 0.7, 100.0) == [{3: 1}, {3: 1}, {3: 1}, {3: 1, 4: 1}, {}]


def test_nothing_ever_happened() -> None:
    assert at(counts_of([]), 1.0, 2.0) == [{}, {}]
    assert counts_of([]).at(np.zeros(0, np.int64)) == []
    assert at(RollingCounts.of([], [], 3, hours=1.0), 1.0) == [{}]


@given(
    events=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=30),
    asked=st.lists(st.integers(-5, 50), max_size=10),
    window=st.integers(1, 20),
)
def test_counts_are_those_of_looking_at_every_event(
    events: list[tuple[int, int]], asked: list[int], window: int
) -> None:
    counts = counts_of([(time / 4, row) for time, row in events], hours=window / 4, items=5)
    expected = []
    for now in asked:
        inside = [row for time, row in events if now - window <= time < now]
        expected.append({row: inside.count(row) for row in sorted(set(inside))})
    assert at(counts, *(now / 4 for now in asked)) == expected


def test_training_interactions_and_first_targets_are_counted() -> None:
    sequences = pa.table(
        [["ann", "bob"], [[1, 2], [1]], [[0, HOUR], [2 * HOUR]], [[0, 0], [0]], [[1.0, 1.0], [1.0]]],
        schema=sequences_schema,
    )
    queries = pa.Table.from_pylist(
        [
            {"user_id": "ann", "time_us": 2 * HOUR + 5, "targets": [7, 8]},
            {"user_id": "bob", "time_us": 2 * HOUR + 1, "targets": []},
        ],
        schema=pa.schema([queries_schema.field(name) for name in ("user_id", "time_us", "targets")]),
    )
    counts = RollingCounts.of([sequences], [queries, queries.slice(0, 0)], 9, hours=2.0)
    # The first interaction is too old for any query; target 8 came later, nobody knows when.
    assert at(counts, 2.0, 2.5, 3.0) == [{2: 1}, {1: 1, 2: 1, 7: 1}, {1: 1, 2: 1, 7: 1}]


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
