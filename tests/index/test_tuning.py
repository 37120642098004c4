"""Tuning, on a tree whose recall is known in closed form, and its promise on a real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsys_cg.config import IndexConfig
from recsys_cg.index import selection
from recsys_cg.index.base import SearchResult
from recsys_cg.index.recall import Truth
from recsys_cg.index.scann import TreeParameters
from recsys_cg.index.selection import select_tree
from recsys_cg.index.tuning import REORDER_FACTORS, Candidate, tune_tree, verify
from tests.contracts.retriever import unit

K, QUERIES, LEAVES = 10, 40, 64


def known_truth() -> Truth:
    scores = np.tile(np.linspace(1.0, 0.5, K, dtype=np.float32), (QUERIES, 1))
    rows = np.tile(np.arange(K, dtype=np.int32), (QUERIES, 1))
    return Truth(np.zeros((QUERIES, 4), dtype=np.float32), SearchResult(rows, scores, np.full(QUERIES, K, np.int32)))


class KnownTree:
    """Finds ``leaves // 4`` of the ten, and no more than ``reorder // 3``; every query alike."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def search_batched(self, queries: np.ndarray, k: int, reorder: int, leaves: int, *_: Any) -> Any:
        self.asked.append((reorder, leaves))
        hits = min(K, leaves // 4, reorder // 3)
        scores = np.full((len(queries), K), np.nan, dtype=np.float32)
        scores[:, :hits] = np.linspace(1.0, 0.5, K)[:hits]
        rows = np.zeros((len(queries), K), dtype=np.uint32)
        rows[:, :hits] = np.arange(hits)
        return rows, scores

    def search(self, query: np.ndarray, k: int, reorder: int, leaves: int) -> Any:
        return None


def tune(target: float, **changes: Any) -> Any:
    tree = KnownTree()
    settings = {"target": target, "items": 1000, "late": lambda: False} | changes
    return tune_tree([Candidate(tree, LEAVES, 1.0)], known_truth(), **settings), tree


@pytest.mark.parametrize(("target", "leaves"), [(0.1, 4), (0.5, 20), (0.9, 36), (1.0, 40)])
def test_the_fewest_partitions_that_reach_the_target_are_found(target: float, leaves: int) -> None:
    tuned, _ = tune(target)
    assert tuned.parameters.leaves_to_search == leaves
    assert tuned.parameters.reorder // 3 >= round(target * K)
    assert tuned.recall == pytest.approx(target)


def test_reorder_counts_that_cannot_reach_the_target_are_not_chosen() -> None:
    tuned, _ = tune(1.0)
    assert tuned.parameters.reorder >= 30


def test_a_target_out_of_reach_gives_nothing() -> None:
    tree = KnownTree()
    short = Candidate(tree, 39, 1.0)
    assert tune_tree([short], known_truth(), target=1.0, items=1000, late=lambda: False) is None
    assert max(leaves for _, leaves in tree.asked) == 39


def test_reorder_counts_stay_within_the_items() -> None:
    tuned, tree = tune(0.5, items=17)
    assert max(reorder for reorder, _ in tree.asked) == 17
    assert tuned.parameters.reorder <= 17


def test_late_tuning_keeps_the_first_setting_that_met_the_target() -> None:
    tuned, tree = tune(0.5, late=lambda: True)
    assert tuned.parameters.reorder == max(REORDER_FACTORS) * K
    assert {reorder for reorder, _ in tree.asked} == {max(REORDER_FACTORS) * K}


def test_queries_that_differ_ask_for_two_standard_errors_more() -> None:
    class Uneven(KnownTree):
        def search_batched(self, queries: np.ndarray, k: int, reorder: int, leaves: int, *_: Any) -> Any:
            rows, scores = super().search_batched(queries, k, reorder, leaves)
            scores[::2] = np.nan if leaves < LEAVES else scores[1]
            return rows, scores

    candidate = Candidate(Uneven(), LEAVES, 1.0)
    # With 63 leaves half of the queries find all and half nothing: mean .5, two standard errors .16.
    near = tune_tree([candidate], known_truth(), target=0.45, items=1000, late=lambda: False)
    assert near is not None
    assert near.parameters.leaves_to_search == LEAVES


def test_verification_judges_each_query() -> None:
    tuned, _ = tune(0.5)
    rows, recall = verify(tuned, known_truth())
    assert rows.shape == (QUERIES, K)
    assert recall.tolist() == [0.5] * QUERIES


def clustered(count: int, seed: int) -> np.ndarray:
    centres = np.random.default_rng(0).normal(size=(80, 16))
    rng = np.random.default_rng(seed)
    return unit(centres[rng.integers(0, 80, count)] + 0.8 * rng.normal(size=(count, 16)))


def test_a_choice_that_misses_on_held_out_queries_is_made_again_on_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first verification is made to fail: its queries must join the tuning, and others verify."""
    seen: list[int] = []

    def fail_first(tuned: Any, truth: Truth) -> Any:
        seen.append(len(truth.queries))
        rows, recall = verify(tuned, truth)
        return rows, recall * (len(seen) > 1)

    monkeypatch.setattr(selection, "verify", fail_first)
    config = IndexConfig(kind="scann", k=10, target_recall=0.8)
    chosen, why = select_tree(clustered(4000, 1), clustered(400, 2), config=config, seed=0)
    assert chosen is not None, why
    assert chosen.attempts == 2
    assert len(seen) == 2
    assert chosen.tuning_queries >= 128 + seen[0]
    assert len(chosen.recall) == seen[1]


def test_a_choice_that_misses_twice_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tuned: Any, truth: Truth) -> Any:
        rows, recall = verify(tuned, truth)
        return rows, recall * 0.0

    monkeypatch.setattr(selection, "verify", fail)
    config = IndexConfig(kind="scann", k=10, target_recall=0.8)
    chosen, why = select_tree(clustered(4000, 1), clustered(400, 2), config=config, seed=0)
    assert chosen is None
    assert "2 ScaNN settings" in why
    assert "missed it on held-out queries" in why


def test_the_frontier_runs_from_settings_that_miss_the_target_to_the_chosen_one(monkeypatch) -> None:
    from recsys_cg.index import tuning

    monkeypatch.setattr(tuning, "_time", lambda tuned, probes, k: float(tuned.parameters.leaves_to_search))
    tuned, _ = tune(0.9)
    recalls = [point.recall for point in tuned.frontier]
    costs = [point.microseconds for point in tuned.frontier]
    assert len(costs) >= 4
    assert costs == sorted(set(costs))
    assert recalls == sorted(set(recalls))
    assert (tuned.frontier[-1].parameters, tuned.frontier[-1].recall) == (tuned.parameters, pytest.approx(0.9))
    assert recalls[0] < 0.5


def test_a_setting_that_a_cheaper_one_equals_in_recall_is_not_on_the_frontier() -> None:
    from recsys_cg.index.tuning import Tuned, _frontier

    def at(recall: float, microseconds: float) -> Tuned:
        return Tuned(Candidate(None, LEAVES, 1.0), TreeParameters(LEAVES, 1, 20, K), recall, microseconds)

    points = [at(0.9, 30.0), at(0.8, 10.0), at(0.8, 20.0), at(0.7, 15.0), at(0.95, 40.0), at(0.9, 30.0)]
    assert [(one.recall, one.microseconds) for one in _frontier(points)] == [(0.8, 10.0), (0.9, 30.0), (0.95, 40.0)]
    assert _frontier([]) == ()
