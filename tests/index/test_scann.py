"""ScaNN under the contract: tuned tightly, searched exhaustively, and with the tree at its worst."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest

from recsys_cg.errors import SearchError
from recsys_cg.index import scann
from recsys_cg.index.base import Retriever
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.index.scann import ScannRetriever, TreeParameters
from recsys_cg.index.tree import build_tree
from tests.contracts.retriever import (
    DIM,
    ITEMS,
    RetrieverContract,
    assert_contract,
    make_queries,
    make_vectors,
    unit,
)


@cache
def tree() -> Any:
    return build_tree(make_vectors(), 20, k=10, threads=1)


@pytest.fixture
def native() -> Any:
    return tree()


class TestScannRetriever(RetrieverContract):
    @staticmethod
    def make() -> Retriever:
        return ScannRetriever(tree(), make_vectors(), TreeParameters(20, 10, 60, 10))


class TestScannRetrieverOfOneLeaf(RetrieverContract):
    """One partition of twenty searched: most lists are short at first, and the contract must still hold."""

    @staticmethod
    def make() -> Retriever:
        return ScannRetriever(tree(), make_vectors(), TreeParameters(20, 1, 30, 20))


class TestScannRetrieverOfSeveralThreads(RetrieverContract):
    @staticmethod
    def make() -> Retriever:
        own = build_tree(make_vectors(), 20, k=10, threads=1)
        return ScannRetriever(own, make_vectors(), TreeParameters(20, 10, 60, 10), threads=2)


@pytest.fixture
def exhaustive(native: Any) -> ScannRetriever:
    return ScannRetriever(native, make_vectors(), TreeParameters(20, 20, ITEMS, 100))


@pytest.mark.parametrize("count", [1, 100])
def test_searched_exhaustively_it_equals_exact_search(exhaustive: ScannRetriever, count: int) -> None:
    queries = make_queries(count, 30)
    exclude = [np.arange(40)] * count
    expected = ExactRetriever(make_vectors()).search(queries, 25, exclude=exclude)
    got = exhaustive.search(queries, 25, exclude=exclude)
    np.testing.assert_allclose(got.scores, expected.scores, atol=1e-6)
    assert (got.rows == expected.rows).mean() > 0.99


def test_a_list_longer_than_the_reorder_count_is_full(native: Any) -> None:
    retriever = ScannRetriever(native, make_vectors(), TreeParameters(20, 20, 12, 10))
    assert retriever.search(make_queries(5, 31), 60).found.tolist() == [60] * 5


def test_short_lists_are_completed_by_exact_search(native: Any) -> None:
    """With one leaf of about twenty rows and 50 wanted, four leaves cannot do either: exact scoring must."""
    retriever = ScannRetriever(native, make_vectors(), TreeParameters(20, 1, 90, 90))
    queries = make_queries(10, 32)
    expected = ExactRetriever(make_vectors()).search(queries, 90)
    got = retriever.search(queries, 90)
    assert got.found.tolist() == [90] * 10
    exact = (got.rows == expected.rows).all(axis=1)
    assert exact.any()


def test_a_query_that_excludes_much_does_not_widen_the_rest_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spy:
        fetched: ClassVar[list[tuple[int, int]]] = []

        def search_batched(self, queries: np.ndarray, fetch: int, *rest: Any) -> Any:
            self.fetched.append((len(queries), fetch))
            return tree().search_batched(queries, fetch, *rest)

        def search(self, query: np.ndarray, fetch: int, *rest: Any) -> Any:
            self.fetched.append((1, fetch))
            return tree().search(query, fetch, *rest)

    monkeypatch.setattr(scann, "_HEAVY", 30)
    retriever = ScannRetriever(Spy(), make_vectors(), TreeParameters(20, 10, 60, 10))
    exclude = [np.arange(60), np.arange(4), np.arange(7)]
    result = retriever.search(make_queries(3, 33), 10, exclude=exclude)
    assert Spy.fetched == [(2, 17), (1, 70)]
    assert_contract(result, make_vectors(), make_queries(3, 33), 10, [row.tolist() for row in exclude], None)


@pytest.mark.parametrize("reorder", [100, 150, 1000])
def test_equal_scores_come_by_row_alone_and_in_batches(reorder: int) -> None:
    """ScaNN 1.4.2 does this by itself, and the retriever relies on it."""
    rng = np.random.default_rng(5)
    vectors = unit(rng.normal(size=(60, DIM)))[rng.integers(0, 60, 3000)]
    retriever = ScannRetriever(build_tree(vectors, 50, k=100, threads=1), vectors, TreeParameters(50, 20, reorder, 100))
    queries = unit(vectors[:200] + 0.1 * rng.normal(size=(200, DIM)))
    alone = [retriever.search(queries[i : i + 1], 100) for i in range(200)]
    for result in (retriever.search(queries, 100), *alone):
        tied = result.scores[:, 1:] == result.scores[:, :-1]
        assert tied.mean() > 0.5
        assert (result.rows[:, 1:] > result.rows[:, :-1])[tied].all()


def test_scores_are_similarities_not_distances(exhaustive: ScannRetriever) -> None:
    result = exhaustive.search(make_vectors()[40:41], 1)
    assert result.rows.tolist() == [[40]]
    assert result.scores[0, 0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_refused_before_native_code(native: Any, threads: int) -> None:
    with pytest.raises(SearchError, match=f"threads = {threads}"):
        ScannRetriever(native, make_vectors(), TreeParameters(20, 10, 60, 10), threads=threads)
