from __future__ import annotations

import numpy as np

from recsys_cg.serving.fallback import Popularity

NONE = np.zeros(0, np.int32)


def rows(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def top(popularity: Popularity, k: int, exclude=NONE, available=None, allow=None) -> list[int]:
    return popularity.top(k, exclude=exclude, available=available, allow=allow).tolist()


POPULARITY = Popularity(np.array([1, 5, 5, 9, 5]), np.array([0, 10, 20, 0, 10]))


def test_popular_first_then_recent_then_lower_row():
    assert top(POPULARITY, 5) == [3, 2, 1, 4, 0]


def test_k_beyond_the_catalogue_gives_all():
    assert top(POPULARITY, 99) == [3, 2, 1, 4, 0]


def test_excluded_unavailable_and_not_allowed_rows_are_left_out():
    assert top(POPULARITY, 2, exclude=rows(3, 1)) == [2, 4]
    assert top(POPULARITY, 2, available=np.array([True, True, False, False, True])) == [1, 4]
    assert top(POPULARITY, 2, allow=rows(0, 1, 4, 1)) == [1, 4]
    assert top(POPULARITY, 9, allow=NONE) == []
    assert top(POPULARITY, 9, exclude=rows(0, 1, 2, 3, 4)) == []


def test_a_long_excluded_head_is_passed_over():
    count = 5000
    popularity = Popularity(np.arange(count)[::-1].copy(), np.zeros(count, np.int64))
    available = np.zeros(count, bool)
    available[4321:4324] = True
    assert top(popularity, 2, exclude=rows(4322), available=available) == [4321, 4323]


def test_no_items():
    assert top(Popularity(np.zeros(0, np.int64), np.zeros(0, np.int64)), 3) == []
