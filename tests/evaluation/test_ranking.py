from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cg.evaluation import ranking
from recsys_cg.evaluation.ranking import shuffle_ties, top_k

SCORES = st.sampled_from([-np.inf, -3.5, -1.0, -0.0, 0.0, 1e-30, 0.25, 1.0, 3e38])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(SCORES, min_size=7, max_size=7), min_size=0, max_size=5), st.integers(1, 12))
def test_top_k_is_a_stable_sort_by_falling_score(rows: list[list[float]], k: int) -> None:
    scores = np.array(rows, dtype=np.float32).reshape(len(rows), 7)
    expected = np.full((len(rows), k), -1)
    for i, row in enumerate(scores):
        order = [j for j in sorted(range(7), key=lambda j: (-row[j], j)) if row[j] != -np.inf][:k]
        expected[i, : len(order)] = order
    assert top_k(scores, k).tolist() == expected.tolist()


def test_top_k_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).integers(0, 4, (50, 33)).astype(np.float32)
    whole = top_k(scores, 9)
    monkeypatch.setattr(ranking, "_CELLS", 1)
    assert np.array_equal(top_k(scores, 9), whole)


def test_ties_are_shuffled_by_query_and_seed_and_nothing_else_moves() -> None:
    rows = np.tile(np.arange(8, dtype=np.int32), (3, 1))
    scores = np.tile(np.array([3, 2, 2, 2, 2, 2, 1, -np.inf], dtype=np.float32), (3, 1))
    rows[:, 7] = -1
    queries = np.array([10, 11, 10])
    shuffled = shuffle_ties(rows, scores, queries, seed=5)
    assert (shuffled[:, 0] == 0).all()
    assert (shuffled[:, 6] == 6).all()
    assert (shuffled[:, 7] == -1).all()
    assert (np.sort(shuffled[:, 1:6], axis=1) == np.arange(1, 6)).all()
    assert np.array_equal(shuffled[0], shuffled[2])
    assert not np.array_equal(shuffled[0], shuffled[1])
    assert not np.array_equal(shuffled[0], shuffle_ties(rows, scores, queries, seed=6)[0])
