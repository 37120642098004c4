from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cg import bonuses
from recsys_cg.bonuses import NOTHING_RAISED, Raised, join, lift_lists
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.exact import ExactRetriever

LINE = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], np.float32)
AHEAD = np.array([1.0, 0.0], np.float32)


def lift(own: list[int], bonus: float, k: int = 3) -> list[tuple[int, float]]:
    rows, scores, _ = ExactRetriever(LINE).search(AHEAD[None], k)
    raised = Raised(np.array(own, np.int32), np.full(len(own), bonus, np.float32))
    found = bonuses.lift(rows[0], scores[0], AHEAD, raised, vectors=LINE, k=k)
    return [(int(row), round(float(score), 5)) for row, score in zip(*found, strict=True)]


def test_own_items_are_raised_by_the_bonus_and_take_their_place() -> None:
    assert lift([2], 0.3) == [(0, 1.0), (2, 0.9), (1, 0.8)]
    assert lift([2], 0.1) == [(0, 1.0), (1, 0.8), (2, 0.7)]


def test_own_items_from_beyond_the_list_come_in() -> None:
    assert lift([3, 4], 0.7) == [(0, 1.0), (1, 0.8), (3, 0.7)]
    assert lift([3, 4], 2.0) == [(3, 2.0), (0, 1.0), (4, 1.0)]


def test_nothing_of_ones_own_changes_nothing() -> None:
    assert lift([], 2.0) == [(0, 1.0), (1, 0.8), (2, 0.6)]


def test_more_own_items_than_places() -> None:
    assert lift([0, 1, 2, 3, 4], 0.5, k=2) == [(0, 1.5), (1, 1.3)]


@given(
    seed=st.integers(0, 2**32 - 1),
    items=st.integers(1, 40),
    k=st.integers(1, 12),
    most=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    share=st.floats(0.0, 1.0),
)
def test_the_result_is_the_exact_top_k_of_the_raised_scores(
    seed: int, items: int, k: int, most: float, share: float
) -> None:
    rng = np.random.default_rng(seed)
    vectors = l2_normalise(rng.integers(-2, 3, (items, 3)) + np.array([0, 0, 0.5]))  # few directions, so many ties
    queries = l2_normalise(rng.normal(size=(4, 3)))
    met = rng.random((4, items)) < share
    bonus = (rng.random((4, items)) * most).astype(np.float32)
    own = [Raised(np.flatnonzero(row).astype(np.int32), bonus[place][row]) for place, row in enumerate(met)]
    found = ExactRetriever(vectors).search(queries, k)
    rows, scores = lift_lists(found.rows, found.scores, queries, own, vectors=vectors)
    assert rows.shape == scores.shape == (4, k)
    raised = queries @ vectors.T + bonus * met
    for place in range(4):
        count = min(k, items)
        assert (rows[place, count:] == -1).all()
        assert np.isneginf(scores[place, count:]).all()
        assert len(set(rows[place, :count].tolist())) == count
        assert (np.diff(scores[place, :count]) <= 0).all()
        best = np.sort(raised[place])[::-1][:count]
        assert scores[place, :count] == pytest.approx(best, abs=1e-5)
        assert raised[place, rows[place, :count]] == pytest.approx(best, abs=1e-5)


def test_joining_adds_what_one_item_gets_twice_and_changes_neither_part() -> None:
    one = Raised(np.array([2, 5], np.int32), np.array([0.5, 0.5], np.float32))
    other = Raised(np.array([0, 5, 7], np.int32), np.array([0.1, 0.2, 0.3], np.float32))
    rows, bonus = join(one, other)
    assert rows.tolist() == [0, 2, 5, 7]
    assert rows.dtype == np.int32
    assert bonus == pytest.approx([0.1, 0.5, 0.7, 0.3])
    assert one.bonus.tolist() == [0.5, 0.5]
    for pair in ((one, NOTHING_RAISED), (NOTHING_RAISED, one)):
        assert join(*pair) is one
