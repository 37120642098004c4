"""Filtering of native results, against plain sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cg.index import filtering
from recsys_cg.index.filtering import keep_best, mark_excluded

ROWS = st.integers(0, 2**31 - 1) | st.integers(0, 40)


@given(lines=st.lists(st.tuples(st.lists(ROWS, min_size=7, max_size=7), st.lists(ROWS, max_size=90)), min_size=1))
def test_marked_are_the_rows_that_their_query_excludes(lines: list[tuple[list[int], list[int]]]) -> None:
    rows = np.array([line[0] for line in lines], dtype=np.int32)
    exclude = [np.array(line[1], dtype=np.int32) for line in lines]
    if not any(map(len, exclude)):
        return
    expected = [[row in set(hidden) for row in line] for line, hidden in lines]
    assert mark_excluded(rows, exclude).tolist() == expected


def test_rows_that_share_a_slot_are_all_marked() -> None:
    """Rows 0, 1024, 2048, ... agree in their low bits, so that one slot cannot hold them."""
    hidden = np.arange(0, 40 * 1024, 1024, dtype=np.int32)
    assert mark_excluded(hidden[None, :], [hidden]).all()
    assert not mark_excluded(hidden[None, :] + 1, [hidden]).any()


def test_rows_that_share_a_slot_are_marked_for_their_own_query_only() -> None:
    hidden = np.arange(0, 40 * 1024, 1024, dtype=np.int32)
    rows = np.stack([hidden, hidden + 1, hidden])
    marked = mark_excluded(rows, [hidden[:20], hidden, hidden[20:]])
    assert marked[0].tolist() == [True] * 20 + [False] * 20
    assert not marked[1].any()
    assert marked[2].tolist() == [False] * 20 + [True] * 20


def test_a_large_batch_is_split_and_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 500, (33, 60), dtype=np.int32)
    exclude = [rng.integers(0, 500, i, dtype=np.int32) for i in range(33)]
    whole = mark_excluded(rows, exclude)
    monkeypatch.setattr(filtering, "_MAX_SLOTS", 1)
    np.testing.assert_array_equal(mark_excluded(rows, exclude), whole)


def test_kept_entries_close_up_and_short_lines_are_padded() -> None:
    rows = np.array([[10, 11, 12], [20, 21, 22]], dtype=np.int32)
    scores = np.array([[3, 2, 1], [6, 5, 4]], dtype=np.float32)
    keep = np.array([[True, False, True], [False, False, True]])
    result = keep_best(rows, scores, keep, 2)
    assert result.rows.tolist() == [[10, 12], [22, -1]]
    assert result.scores.tolist() == [[3.0, 1.0], [4.0, -np.inf]]
    assert result.found.tolist() == [2, 1]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_first_k_are_kept(k: int) -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.int32)
    result = keep_best(rows, -rows.astype(np.float32), np.ones((2, 3), dtype=np.bool_), k)
    assert result.rows.tolist() == rows[:, :k].tolist()
    assert result.found.tolist() == [k, k]
