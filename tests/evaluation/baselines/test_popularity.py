from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.evaluation import System
from recsys_cg.evaluation.baselines import popularity
from recsys_cg.evaluation.baselines.popularity import Popularity, RecentPopularity, events_of
from recsys_cg.evaluation.baselines.sessions import Sessions
from tests.evaluation.tables import as_batch, make_queries, make_sequences

HOUR = 3_600_000_000


def test_popularity_recommends_by_count_without_what_is_excluded() -> None:
    system = Popularity(np.array([1, 9, 5, 5, 0]))
    assert isinstance(system, System)
    batch = as_batch(make_queries([{"targets": [0]}] * 3), exclude=[[], [1, 3, 0], [1, 1]])
    assert system.recommend(batch, 3).tolist() == [[1, 2, 3], [2, 4, -1], [2, 3, 0]]
    allowed = np.array([True, False, True, False, True])
    assert system.recommend(batch, 4, allowed).tolist() == [[2, 0, 4, -1], [2, 4, -1, -1], [2, 0, 4, -1]]


def test_popularity_takes_the_same_list_as_sorting_would() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, 50)
    exclude = [rng.choice(50, rng.integers(0, 30), replace=False).tolist() for _ in range(40)]
    lists = Popularity(counts).recommend(as_batch(make_queries([{"targets": [0]}] * 40), exclude), 25)
    for row, barred in zip(lists.tolist(), exclude, strict=True):
        expected = [i for i in sorted(range(50), key=lambda i: (-counts[i], i)) if i not in barred][:25]
        assert row == expected + [-1] * (25 - len(expected))


def test_recent_popularity_counts_the_hours_strictly_before_the_query() -> None:
    times = np.array([0, 1, 2, 3]) * HOUR
    system = RecentPopularity(times, np.array([3, 2, 2, 1], dtype=np.int32), 4, hours=2.0)
    queries = make_queries([{"time": t * HOUR, "targets": [0]} for t in (0, 2, 3, 4, 9)])
    lists = system.recommend(as_batch(queries, exclude=[[]] * 5), 4).tolist()
    # At 0 nothing is past. At 2 the window holds 0 and 1. At 3 it holds 1 and 2, at 4 it holds 2 and 3, at 9 nothing.
    assert lists == [[0, 1, 2, 3], [2, 3, 0, 1], [2, 0, 1, 3], [1, 2, 0, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("cells", [1, 40, 1 << 23])
def test_recent_popularity_agrees_with_counting_each_query_alone(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popularity, "_CELLS", cells)
    rng = np.random.default_rng(2)
    times = np.sort(rng.integers(0, 100 * HOUR, 400))
    rows = rng.integers(0, 30, 400).astype(np.int32)
    asked = rng.integers(0, 110 * HOUR, 60)  # not in order
    exclude = [rng.choice(30, 4, replace=False).tolist() for _ in asked]
    allowed = rng.random(30) < 0.8
    batch = as_batch(make_queries([{"time": int(t), "targets": [0]} for t in asked]), exclude)
    lists = RecentPopularity(times, rows, 30, hours=7.0).recommend(batch, 9, allowed)
    for t, barred, found in zip(asked, exclude, lists.tolist(), strict=True):
        inside = (times >= t - 7 * HOUR) & (times < t)
        counts = np.bincount(rows[inside], minlength=30)
        possible = [i for i in range(30) if allowed[i] and i not in barred]
        assert found == sorted(possible, key=lambda i: (-counts[i], i))[:9]


def test_events_of_training_and_evaluation_are_merged_by_time() -> None:
    sessions = Sessions.of(make_sequences({"a": [1, 2], "b": [3]}, start=10), 5)
    queries = make_queries([{"time": 5, "targets": [4, 0]}, {"time": 11, "targets": [1]}])
    times, rows = events_of(sessions, [queries])
    assert times.tolist() == [5, 10, 10, 11, 11]
    assert rows.tolist() == [4, 1, 3, 2, 1]


def test_of_a_window_of_targets_only_the_first_is_an_event_of_the_querys_time() -> None:
    sessions = Sessions.of(make_sequences({"a": [4, 5]}), 6)
    queries = make_queries(
        [{"time": 10, "targets": [3, 0, 1]}, {"time": 20, "targets": []}, {"time": 5, "targets": [2]}]
    )
    times, rows = events_of(sessions, [queries])
    assert (times.tolist(), rows.tolist()) == ([0, 1, 5, 10], [4, 5, 2, 3])
