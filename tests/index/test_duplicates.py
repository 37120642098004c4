"""Near-duplicates, by vectors whose angles are known."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.index.duplicates import find_near_duplicates, group_duplicates
from recsys_cg.index.exact import ExactRetriever


def at_degrees(*angles: float) -> np.ndarray:
    turned = np.deg2rad(np.array(angles, dtype=np.float64))
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_each_pair_is_found_once_most_similar_first() -> None:
    vectors = at_degrees(0, 90, 5, 90, 180)
    pairs = find_near_duplicates(ExactRetriever(vectors), vectors, least=float(np.cos(np.deg2rad(6))))
    assert pairs.rows.tolist() == [[1, 3], [0, 2]]
    assert pairs.similarities == pytest.approx([1.0, np.cos(np.deg2rad(5))], abs=1e-6)
    assert pairs.truncated.tolist() == []


def test_a_list_that_may_go_on_is_named() -> None:
    vectors = at_degrees(0, 0, 0, 90)
    pairs = find_near_duplicates(ExactRetriever(vectors), vectors, least=1.0, neighbours=1)
    assert pairs.rows.tolist() == [[0, 1], [0, 2]]
    assert pairs.truncated.tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", [0, 1])
def test_a_catalogue_without_others_has_no_pairs(count: int) -> None:
    vectors = at_degrees(0)[:count]
    pairs = find_near_duplicates(ExactRetriever(vectors), vectors)
    assert pairs.rows.shape == (0, 2)
    assert group_duplicates(pairs.rows) == []


def test_pairs_across_batches_are_found() -> None:
    vectors = at_degrees(*np.linspace(0, 300, 600), 0.0)
    pairs = find_near_duplicates(ExactRetriever(vectors), vectors, least=0.9999)
    assert [0, 600] in pairs.rows.tolist()


def test_groups_are_joined_through_others() -> None:
    pairs = np.array([[4, 9], [1, 2], [2, 4], [7, 8]], dtype=np.int32)
    assert group_duplicates(pairs) == [[1, 2, 4, 9], [7, 8]]


@pytest.mark.parametrize("wrong", [{"least": 0.0}, {"least": 1.1}, {"neighbours": 0}])
def test_a_range_that_finds_nothing_is_refused(wrong: dict[str, float]) -> None:
    vectors = at_degrees(0, 1)
    with pytest.raises(ValueError, match="must be in"):
        find_near_duplicates(ExactRetriever(vectors), vectors, **wrong)  # type: ignore[arg-type]
