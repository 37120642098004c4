from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.errors import DataError
from recsys_cg.evaluation import queries as module
from recsys_cg.evaluation.queries import EXCLUDE, QUERY, Lifetimes, prepare_queries
from tests.evaluation.tables import make_items, make_queries


def prepare(rows: list[dict], items=None, **options):
    defaults = {"filter_seen": True, "max_queries": 1000, "seed": 0}
    return prepare_queries(make_queries(rows), items or make_items([5, 4, 3, 2, 1]), **{**defaults, **options})


def test_queries_come_in_order_of_time_and_remember_their_row() -> None:
    chosen = prepare([{"time": 30, "targets": [1]}, {"time": 10, "targets": [2]}, {"time": 30, "targets": [3]}])
    assert chosen.times.tolist() == [10, 30, 30]
    assert chosen.table.column(QUERY).to_pylist() == [1, 0, 2]
    assert chosen.targets.values.tolist() == [2, 1, 3]


def test_an_item_outside_the_catalogue_is_no_candidate_unless_there_is_no_catalogue() -> None:
    items = make_items([2, 1, 1])
    place = items.schema.get_field_index("in_catalogue")
    for listed, alive in (([True, False, True], [True, False, True]), ([False] * 3, [True] * 3)):
        lifetimes = Lifetimes.of(items.set_column(place, items.schema.field(place), pa.array(listed)))
        assert lifetimes.ever_alive(np.array([5])).tolist() == alive
        assert lifetimes.alive(np.arange(3), np.array([5] * 3)).tolist() == alive


def test_targets_that_were_no_candidates_are_left_out_and_counted() -> None:
    items = make_items([1] * 4, available_from=[None, 100, None, None], available_until=[None, None, 50, None])
    chosen = prepare(
        [
            {"time": 60, "targets": [0, 1, 2, 3, 3], "seen": [3]},  # 1 not yet alive, 2 no longer, 3 seen
            {"time": 60, "targets": [3], "seen": [3]},
            {"time": 60, "targets": []},
        ],
        items,
    )
    assert chosen.count == 1
    assert chosen.targets.to_arrow().to_pylist() == [[0]]
    assert chosen.selection == {
        "queries_given": 3,
        "queries_sampled": 3,
        "queries_without_candidate_target": 2,
        "targets": 1,
        "targets_seen_before": 2,
        "targets_not_alive": 2,
    }


def test_seen_targets_stay_when_seen_items_are_candidates() -> None:
    chosen = prepare([{"targets": [3], "seen": [3]}], filter_seen=False)
    assert chosen.targets.values.tolist() == [3]
    (batch,) = chosen.batches(10)
    assert batch.table.column(EXCLUDE).to_pylist() == [[]]


def test_availability_is_half_open() -> None:
    lifetimes = Lifetimes.of(make_items([1], available_from=[10], available_until=[20]))
    alive = [bool(lifetimes.alive(np.array([0]), np.array([t]))[0]) for t in (9, 10, 19, 20)]
    assert alive == [False, True, True, False]
    assert lifetimes.ever_alive(np.array([9, 20])).tolist() == [False]
    assert lifetimes.ever_alive(np.array([9, 19])).tolist() == [True]


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("changes", [1, 7, 1 << 22])
def test_mask_and_exclusions_together_say_exactly_who_is_a_candidate(
    rows: int, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHANGES", changes)
    rng = np.random.default_rng(4)
    start = [None if x < 0 else int(x) for x in rng.integers(-30, 80, 40)]
    until = [None if x < 0 else int(x) for x in rng.integers(-10, 120, 40)]
    start[0] = until[0] = None  # the target of every query
    items = make_items([1] * 40, available_from=start, available_until=until)
    asked = [{"time": int(t), "targets": [0], "seen": rng.integers(1, 40, 3).tolist()} for t in rng.integers(0, 90, 25)]
    chosen = prepare(asked, items, filter_seen=True)
    covered = 0
    for batch in chosen.batches(rows):
        assert batch.first == covered
        covered += batch.table.num_rows
        for query in batch.table.to_pylist():
            allowed = np.ones(40, dtype=bool) if batch.allow is None else batch.allow.copy()
            allowed[query[EXCLUDE]] = False
            t = query["time_us"]
            expected = [
                (a is None or a <= t) and (b is None or t < b) and i not in query["seen"]
                for i, (a, b) in enumerate(zip(start, until, strict=True))
            ]
            assert allowed.tolist() == expected
    assert covered == chosen.count == 25


def test_beyond_max_queries_a_seeded_sample_is_used() -> None:
    rows = [{"time": t, "targets": [t % 5]} for t in range(50)]
    first, again, other = (prepare(rows, max_queries=10, seed=s) for s in (1, 1, 2))
    assert first.count == 10
    assert first.table.equals(again.table)
    assert not first.table.equals(other.table)
    assert first.selection["queries_given"] == 50
    assert first.selection["queries_sampled"] == 10


def test_users_are_numbered() -> None:
    chosen = prepare([{"user": u, "time": t, "targets": [1]} for t, u in enumerate(["ü", "b", "ü"])])
    assert chosen.users.tolist() == [0, 1, 0]
    assert chosen.user_count == 2


def test_an_item_row_outside_the_table_is_refused_by_column() -> None:
    with pytest.raises(DataError, match=r"column targets holds an item_row outside 0 \.\. 4"):
        prepare([{"targets": [5]}])
    with pytest.raises(DataError, match="column seen"):
        prepare([{"targets": [1], "seen": [-1]}])


def test_no_queries_give_an_empty_set() -> None:
    chosen = prepare([])
    assert chosen.count == 0
    assert list(chosen.batches(10)) == []
