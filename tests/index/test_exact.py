"""Exact search: the contract, and equality with the definition."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.errors import SearchError
from recsys_cg.index import exact
from recsys_cg.index.base import Retriever
from recsys_cg.index.exact import ExactRetriever
from tests.contracts.retriever import ITEMS, RetrieverContract, make_queries, make_vectors, unit


class TestExactRetriever(RetrieverContract):
    @staticmethod
    def make() -> Retriever:
        return ExactRetriever(make_vectors())


def by_definition(vectors: np.ndarray, query: np.ndarray, k: int) -> list[int]:
    scores = np.array([np.sum(row.astype(np.float64) * query.astype(np.float64)) for row in vectors]).astype(np.float32)
    return sorted(range(len(vectors)), key=lambda row: (-scores[row], row))[:k]


@pytest.mark.parametrize("cells", [1 << 23, 1])
def test_it_returns_what_sorting_all_scores_returns(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    monkeypatch.setattr(exact, "_CELLS", cells)
    rng = np.random.default_rng(0)
    vectors = unit(rng.normal(size=(3000, 6)))
    vectors[1500:2600] = vectors[rng.integers(0, 40, 1100)]
    queries = unit(rng.normal(size=(20, 6)))
    result = ExactRetriever(vectors).search(queries, 50)
    for i, query in enumerate(queries):
        assert result.rows[i].tolist() == by_definition(vectors, query, 50)


def test_a_collapsed_catalogue_gives_the_lowest_rows() -> None:
    vectors = np.tile(unit(np.ones((1, 5))), (70_000, 1))
    result = ExactRetriever(vectors).search(vectors[:2], 4, exclude=[[1], []])
    assert result.rows.tolist() == [[0, 2, 3, 4], [0, 1, 2, 3]]


def test_an_empty_catalogue_finds_nothing() -> None:
    retriever = ExactRetriever(np.empty((0, 3), dtype=np.float32))
    result = retriever.search(unit(np.ones((2, 3))), 4, exclude=[[], []], allow=np.array([], dtype=np.int32))
    assert result.found.tolist() == [0, 0]
    assert result.rows.tolist() == [[-1] * 4] * 2


def test_one_item_is_found_and_scored() -> None:
    result = ExactRetriever(unit(np.array([[3.0, 4.0]]))).search(unit(np.array([[1.0, 0.0]])), 2)
    assert result.rows.tolist() == [[0, -1]]
    assert result.scores[0, 0] == np.float32(0.6)


def test_scores_do_not_depend_on_the_batch() -> None:
    retriever = ExactRetriever(make_vectors())
    queries = make_queries(300, 20)
    batch = retriever.search(queries, ITEMS)
    for i in (0, 255, 256, 299):
        one = retriever.search(queries[i : i + 1], ITEMS)
        np.testing.assert_array_equal(one.rows[0], batch.rows[i])
        np.testing.assert_array_equal(one.scores[0], batch.scores[i])


def test_vectors_of_another_type_are_refused() -> None:
    with pytest.raises(SearchError, match="float64"):
        ExactRetriever(np.eye(3))
