from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.data import co_occurrence
from recsys_cg.data.co_occurrence import windowed_co_occurrence


def count(lists: list[list[int]], items: int, *, window: int, decay: float):
    rows = np.array([row for each in lists for row in each], dtype=np.int32)
    owners = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    return windowed_co_occurrence(rows, owners, items, window=window, decay=decay)


def test_the_window_counts_steps_which_fade() -> None:
    lists = [[0, 1, 2], [0, 1], [2]]
    assert count(lists, 3, window=2, decay=0.5).toarray().tolist() == [[0, 2, 0.5], [2, 0, 1], [0.5, 1, 0]]
    assert count(lists, 3, window=1, decay=0.5).toarray()[0].tolist() == [0, 2, 0]


def test_an_item_is_not_met_with_itself() -> None:
    assert count([[1, 1, 0, 1]], 2, window=3, decay=1.0).toarray().tolist() == [[0, 3], [3, 0]]


def test_a_window_does_not_reach_from_one_user_into_the_next() -> None:
    assert count([[0], [1]], 2, window=5, decay=1.0).nnz == 0
    assert count([], 2, window=5, decay=1.0).shape == (2, 2)


def test_the_window_shrinks_where_it_would_make_too_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(co_occurrence, "_PAIRS", 8)
    assert count([[0, 1, 2, 3]], 4, window=3, decay=1.0).toarray()[0].tolist() == [0, 1, 1, 0]
    monkeypatch.setattr(co_occurrence, "_PAIRS", 1)
    assert count([[0, 1, 2, 3]], 4, window=3, decay=1.0).toarray()[0].tolist() == [0, 1, 0, 0]
