from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import EvaluationConfig
from recsys_cg.evaluation import System, TwoTowerSystem, evaluate
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.repeats import Repeats
from tests.evaluation.tables import as_batch, make_items, make_queries, make_sequences

DIM = 8


def by_history(vectors: np.ndarray):
    """An encoder whose query is the vector of the history's last item."""
    return lambda batch: vectors[[rows[-1] for rows in batch.column("history").to_pylist()]]


def unit(rows: int, seed: int = 0) -> np.ndarray:
    return l2_normalise(np.random.default_rng(seed).normal(size=(rows, DIM)))


def test_release_rows_are_translated_both_ways() -> None:
    vectors = unit(5)
    # The release holds dataset items 3, 1, an item that the dataset does not know, 0 and 2; it lacks item 4.
    item_rows = np.array([3, 1, -1, 0, 2], dtype=np.int32)
    system = TwoTowerSystem(
        "two_tower",
        lambda batch: np.tile(vectors[2], (batch.num_rows, 1)),
        ExactRetriever(vectors),
        item_rows=item_rows,
        items=5,
    )
    assert isinstance(system, System)
    batch = as_batch(make_queries([{"targets": [0]}] * 2), exclude=[[], [3, 4]])
    similarity = vectors @ vectors[2]
    ranked = [item_rows[r] for r in np.argsort(-similarity) if item_rows[r] >= 0]
    assert system.recommend(batch, 6).tolist() == [
        [*ranked, -1, -1],
        [*[r for r in ranked if r != 3], -1, -1, -1],
    ]
    allowed = np.array([True, True, False, True, True])
    assert system.recommend(batch, 3, allowed)[0].tolist() == [r for r in ranked if r != 2]


def test_a_model_whose_scores_are_all_equal_gets_what_chance_gives() -> None:
    # 200 items ordered by popularity and targets that are all bestsellers: "ties by row" would find every one.
    rng = np.random.default_rng(0)
    items = make_items(list(range(200, 0, -1)))
    queries = make_queries([{"user": f"u{i}", "targets": [int(rng.integers(20))]} for i in range(2000)])
    same = np.tile(l2_normalise(np.ones(DIM)), (200, 1))
    system = TwoTowerSystem(
        "collapsed",
        lambda batch: same[: batch.num_rows],
        ExactRetriever(same),
        item_rows=np.arange(200, dtype=np.int32),
        items=200,
    )
    config = EvaluationConfig(k=[20], primary_k=20, bootstrap_samples=200)
    report = evaluate([system], queries, items, make_sequences({"a": [0]}), config, 0, batch_rows=150)
    figures = report["systems"]["collapsed"]["overall"]
    # Chance finds 20 / 200; the standard error of 2,000 queries is sqrt(0.1 * 0.9 / 2000) = 0.0067.
    assert figures["recall@20"]["mean"] == pytest.approx(0.1, abs=0.027)
    assert figures["mrr@20"]["mean"] == pytest.approx(sum(1 / r for r in range(1, 21)) / 200, abs=0.01)
    assert report["coverage"]["collapsed"]["gini@20"] < 0.1


def test_untied_lists_are_exactly_what_the_retriever_returns() -> None:
    vectors = unit(60)
    retriever = ExactRetriever(vectors)
    system = TwoTowerSystem("t", by_history(vectors), retriever, item_rows=np.arange(60, dtype=np.int32), items=60)
    batch = as_batch(
        make_queries([{"targets": [0], "history": [i]} for i in range(30)]), exclude=[[i] for i in range(30)]
    )
    expected = retriever.search(vectors[:30], 10, exclude=[np.array([i]) for i in range(30)]).rows
    assert np.array_equal(system.recommend(batch, 10), expected)


def test_a_tie_across_the_end_of_the_list_is_decided_by_the_query_not_by_the_row() -> None:
    vectors = np.repeat(unit(10), 12, axis=0)  # ten groups of twelve equal vectors
    system = TwoTowerSystem(
        "t", by_history(vectors), ExactRetriever(vectors), item_rows=np.arange(120, dtype=np.int32), items=120
    )
    batch = as_batch(make_queries([{"targets": [0], "history": [0]}] * 300), exclude=[[]] * 300)
    lists = system.recommend(batch, 5)
    assert (lists < 12).all()  # the group of the query itself
    assert all(len(set(row)) == 5 for row in lists.tolist())
    shown = np.bincount(lists.ravel(), minlength=12)
    assert shown.min() > 0.6 * shown.mean()
    assert np.array_equal(system.recommend(batch.slice(7, 1), 5)[0], lists[7])


def test_an_index_smaller_than_the_list_is_padded() -> None:
    vectors = unit(3)
    system = TwoTowerSystem(
        "t", by_history(vectors), ExactRetriever(vectors), item_rows=np.arange(3, dtype=np.int32), items=3
    )
    batch = as_batch(make_queries([{"targets": [0], "history": [1]}]), exclude=[[1]])
    lists = system.recommend(batch, 5)
    assert sorted(lists[0, :2].tolist()) == [0, 2]
    assert lists[0, 2:].tolist() == [-1, -1, -1]


def test_no_query_gives_no_list() -> None:
    vectors = unit(3)
    system = TwoTowerSystem(
        "t",
        lambda batch: np.zeros((0, DIM), dtype=np.float32),
        ExactRetriever(vectors),
        item_rows=np.arange(3, dtype=np.int32),
        items=3,
    )
    empty: pa.Table = as_batch(make_queries([]), exclude=[])
    assert system.recommend(empty, 5).shape == (0, 5)


def test_repeats_are_ranked_by_the_raised_score_among_eligible_items() -> None:
    vectors, bonus = unit(30, seed=4), 0.4
    item_rows = np.random.default_rng(5).permutation(31)[:30].astype(np.int32)
    system = TwoTowerSystem(
        "two_tower",
        lambda batch: vectors[: batch.num_rows],
        ExactRetriever(vectors),
        item_rows=item_rows,
        items=31,
        repeats=Repeats(vectors, bonus, 4),
    )
    lacked = int(np.setdiff1d(np.arange(31), item_rows)[0])  # leaves the history before its last four items are taken
    histories = [[9, 3, 7, 11, 30, lacked], [], list(range(31))]
    exclude = [[7], [1, 2], [0]]
    batch = as_batch(make_queries([{"targets": [0], "history": one} for one in histories]), exclude=exclude)
    allowed = np.ones(31, dtype=bool)
    allowed[[5, 11]] = False
    found = system.recommend(batch, 6, allowed)
    for place in range(3):
        score = {int(item_rows[row]): float(vectors[place] @ vectors[row]) for row in range(30)}
        known = [item for item in histories[place] if item != lacked]
        raised = {item: value + bonus * (item in known[-4:]) for item, value in score.items()}
        eligible = [item for item in raised if allowed[item] and item not in exclude[place]]
        assert found[place].tolist() == sorted(eligible, key=lambda item: -raised[item])[:6]
