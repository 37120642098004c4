"""The search contract, as tests: inherit `RetrieverContract` and say how a retriever is made."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recsys_cg.errors import MetricMismatchError, SearchError
from recsys_cg.index.base import Retriever, SearchResult

ITEMS, DIM = 400, 8


def unit(values: np.ndarray) -> np.ndarray:
    """Return rows of unit norm, float32."""
    wide = np.asarray(values, dtype=np.float64)
    return (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32)


def make_vectors() -> np.ndarray:
    """Return 400 unit vectors: 20 clusters, and rows 300 to 319 all equal to row 7."""
    rng = np.random.default_rng(11)
    centres = rng.normal(size=(20, DIM))
    vectors = unit(centres[rng.integers(0, 20, ITEMS)] + 0.5 * rng.normal(size=(ITEMS, DIM)))
    vectors[300:320] = vectors[7]
    return vectors


def make_queries(count: int, seed: int) -> np.ndarray:
    """Return unit queries drawn around the vectors."""
    rng = np.random.default_rng(seed)
    return unit(make_vectors()[rng.integers(0, ITEMS, count)] + 0.3 * rng.normal(size=(count, DIM)))


def assert_contract(
    result: SearchResult,
    vectors: np.ndarray,
    queries: np.ndarray,
    k: int,
    exclude: Sequence[Sequence[int]] | None,
    allow: Sequence[int] | None,
) -> None:
    """Check one result against what is eligible, from the definition of the contract."""
    assert result.rows.shape == result.scores.shape == (len(queries), k)
    assert (result.rows.dtype, result.scores.dtype, result.found.dtype) == (np.int32, np.float32, np.int32)
    for query in range(len(queries)):
        eligible = set(range(len(vectors))) if allow is None else {int(row) for row in allow}
        if exclude is not None:
            eligible -= {int(row) for row in exclude[query]}
        found = int(result.found[query])
        rows, scores = result.rows[query, :found].tolist(), result.scores[query, :found]
        assert found == min(k, len(eligible))
        assert len(set(rows)) == found
        assert set(rows) <= eligible
        assert (result.rows[query, found:] == -1).all()
        assert (result.scores[query, found:] == -np.inf).all()
        truth = vectors[rows].astype(np.float64) @ queries[query].astype(np.float64)
        np.testing.assert_allclose(scores, truth, atol=2e-6)
        order = list(zip((-scores).tolist(), rows, strict=True))
        assert order == sorted(order)


class RetrieverContract:
    """Tests that hold for every retriever of `make_vectors()`."""

    @staticmethod
    def make() -> Retriever:
        """Return the retriever under test; called once a class."""
        raise NotImplementedError

    @pytest.fixture
    def retriever(self) -> Retriever:
        cls = type(self)
        if "_made" not in vars(cls):
            cls._made = cls.make()  # type: ignore[attr-defined]
        return cls._made  # type: ignore[attr-defined,no-any-return]

    @pytest.fixture
    def vectors(self) -> np.ndarray:
        return make_vectors()

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(data=st.data())
    def test_it_keeps_the_contract_whatever_is_excluded_and_allowed(
        self, retriever: Retriever, vectors: np.ndarray, data: st.DataObject
    ) -> None:
        count = data.draw(st.integers(0, 5), label="queries")
        queries = make_queries(count, data.draw(st.integers(0, 99), label="seed"))
        k = data.draw(st.one_of(st.integers(1, 40), st.integers(300, 450)), label="k")
        rows = st.integers(0, ITEMS - 1)
        exclude = data.draw(
            st.none() | st.lists(st.lists(rows, max_size=60), min_size=count, max_size=count), label="exclude"
        )
        allow = data.draw(
            st.none() | st.lists(rows, max_size=30) | st.integers(0, ITEMS).map(lambda first: range(first, ITEMS)),
            label="allow",
        )
        allowed = None if allow is None else np.array(list(allow), dtype=np.int64)
        result = retriever.search(queries, k, exclude=exclude, allow=allowed)
        assert_contract(result, vectors, queries, k, exclude, allowed)

    def test_excluding_the_best_k_gives_the_next_k(self, retriever: Retriever, vectors: np.ndarray) -> None:
        queries = make_queries(30, 1)
        best = retriever.search(queries, 10)
        rest = retriever.search(queries, 10, exclude=list(best.rows))
        assert_contract(rest, vectors, queries, 10, best.rows.tolist(), None)
        if retriever.is_exact:
            assert (rest.scores[:, 0] <= best.scores[:, -1]).all()
            both = np.concatenate([best.rows, rest.rows], axis=1)
            np.testing.assert_array_equal(both, retriever.search(queries, 20).rows)

    def test_each_query_of_a_batch_has_its_own_exclusions(self, retriever: Retriever) -> None:
        queries = np.repeat(make_queries(1, 3), 2, axis=0)
        first = int(retriever.search(queries, 1).rows[1, 0])
        result = retriever.search(queries, 5, exclude=[[first], []])
        assert first not in result.rows[0]
        assert result.rows[1, 0] == first

    def test_everything_excluded_gives_padding_only(self, retriever: Retriever) -> None:
        result = retriever.search(make_queries(2, 4), 3, exclude=[range(ITEMS), range(ITEMS)])
        assert result.found.tolist() == [0, 0]
        assert (result.rows == -1).all()
        assert np.isneginf(result.scores).all()

    def test_an_allow_list_of_one_is_all_that_is_found(self, retriever: Retriever) -> None:
        result = retriever.search(make_queries(3, 5), 4, allow=np.array([17]))
        assert result.rows[:, 0].tolist() == [17, 17, 17]
        assert result.found.tolist() == [1, 1, 1]

    def test_a_mask_and_the_rows_it_holds_allow_the_same(self, retriever: Retriever, vectors: np.ndarray) -> None:
        mask = np.random.default_rng(2).random(ITEMS) < 0.7
        queries = make_queries(4, 6)
        by_mask = retriever.search(queries, 20, allow=mask)
        by_rows = retriever.search(queries, 20, allow=np.flatnonzero(mask)[::-1])
        np.testing.assert_array_equal(by_mask.rows, by_rows.rows)
        assert_contract(by_mask, vectors, queries, 20, None, np.flatnonzero(mask).tolist())

    def test_nothing_allowed_gives_padding_only(self, retriever: Retriever) -> None:
        result = retriever.search(make_queries(1, 7), 2, allow=np.zeros(ITEMS, dtype=np.bool_))
        assert result.found.tolist() == [0]

    def test_equal_vectors_come_in_the_order_of_their_rows(self, retriever: Retriever, vectors: np.ndarray) -> None:
        result = retriever.search(vectors[7:8], 21)
        assert result.rows[0].tolist() == [7, *range(300, 320)]

    def test_k_above_the_size_finds_every_item_and_says_so(self, retriever: Retriever) -> None:
        result = retriever.search(make_queries(2, 8), ITEMS + 50)
        assert result.found.tolist() == [ITEMS, ITEMS]
        assert sorted(result.rows[0, :ITEMS].tolist()) == list(range(ITEMS))

    def test_a_batch_answers_as_its_queries_do_one_by_one(self, retriever: Retriever) -> None:
        queries = make_queries(40, 9)
        exclude = [np.arange(i, i + 20) for i in range(40)]
        batch = retriever.search(queries, 15, exclude=exclude)
        alone = [retriever.search(queries[i : i + 1], 15, exclude=exclude[i : i + 1]) for i in range(40)]
        for i, one in enumerate(alone):
            assert_contract(one, make_vectors(), queries[i : i + 1], 15, exclude[i : i + 1], None)
        if retriever.is_exact:
            np.testing.assert_array_equal(np.concatenate([one.rows for one in alone]), batch.rows)
            np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), batch.scores)
        shared = [len(np.intersect1d(one.rows, rows)) / 15 for one, rows in zip(alone, batch.rows, strict=True)]
        assert np.mean(shared) > 0.8

    def test_no_query_gives_an_empty_result(self, retriever: Retriever) -> None:
        result = retriever.search(np.empty((0, DIM), dtype=np.float32), 3, exclude=[])
        assert result.rows.shape == (0, 3)
        assert result.found.shape == (0,)

    def test_it_takes_other_layouts_and_precisions(self, retriever: Retriever) -> None:
        queries = make_queries(6, 10)
        expected = retriever.search(queries, 5).rows
        np.testing.assert_array_equal(retriever.search(np.asfortranarray(queries.astype(np.float64)), 5).rows, expected)
        wide = np.zeros((6, 2 * DIM), dtype=np.float32)
        wide[:, ::2] = queries
        np.testing.assert_array_equal(retriever.search(wide[:, ::2], 5).rows, expected)

    def test_a_single_query_of_another_layout_or_precision_is_answered_alike(self, retriever: Retriever) -> None:
        query = make_queries(1, 10)
        wide = np.zeros((1, 2 * DIM), dtype=np.float32)
        wide[:, ::2] = query
        hidden = retriever.search(query, 3).rows[0]
        expected = retriever.search(query, 5, exclude=[hidden])
        assert_contract(expected, make_vectors(), query, 5, [hidden], None)
        for other in (query.astype(np.float64), wide[:, ::2], query.tolist()):
            got = retriever.search(other, 5, exclude=[hidden])
            np.testing.assert_array_equal(got.rows, expected.rows)
        for rows in (hidden.tolist(), hidden.astype(np.int64), np.concatenate([hidden, hidden])):
            np.testing.assert_array_equal(retriever.search(query, np.int64(5), exclude=[rows]).rows, expected.rows)

    def test_it_leaves_its_arguments_alone(self, retriever: Retriever) -> None:
        queries, hidden = make_queries(2, 12), np.array([5, 3, 5], dtype=np.int32)
        allow = np.array([9, 5, 3, 100], dtype=np.int32)
        before = queries.copy()
        retriever.search(queries, 3, exclude=[hidden, hidden], allow=allow)
        np.testing.assert_array_equal(queries, before)
        assert hidden.tolist() == [5, 3, 5]
        assert allow.tolist() == [9, 5, 3, 100]

    @pytest.mark.parametrize("k", [0, -1])
    def test_a_k_below_one_is_refused(self, retriever: Retriever, k: int) -> None:
        with pytest.raises(SearchError, match=f"k = {k}"):
            retriever.search(make_queries(1, 0), k)

    @pytest.mark.parametrize("k", [1.5, "10", None])
    def test_a_k_that_is_no_integer_is_refused(self, retriever: Retriever, k: object) -> None:
        with pytest.raises(SearchError, match="not an integer"):
            retriever.search(make_queries(1, 0), k)  # type: ignore[arg-type]

    def test_results_that_cannot_be_held_are_refused(self, retriever: Retriever) -> None:
        with pytest.raises(SearchError, match="memory"):
            retriever.search(make_queries(2, 0), 10**9)

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_a_query_that_is_not_finite_is_refused(self, retriever: Retriever, count: int, value: float) -> None:
        queries = make_queries(count, 0)
        queries[-1, 2] = value
        with pytest.raises(SearchError, match=f"query {count - 1} holds a NaN or an infinity"):
            retriever.search(queries, 3)

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("factor", [0.0, 0.5, 1.01, 1e30])
    def test_a_query_of_another_norm_is_another_metric(self, retriever: Retriever, count: int, factor: float) -> None:
        queries = make_queries(count, 0)
        queries[-1] *= np.float32(factor)
        with pytest.raises(MetricMismatchError, match=f"query {count - 1} has norm"):
            retriever.search(queries, 3)

    @pytest.mark.parametrize("shape", [(DIM,), (1, DIM + 1), (1, DIM, 1), (0, 3)])
    def test_a_query_of_another_shape_is_refused(self, retriever: Retriever, shape: tuple[int, ...]) -> None:
        with pytest.raises(SearchError, match="shape"):
            retriever.search(np.ones(shape, dtype=np.float32), 3)

    def test_queries_that_are_no_numbers_are_refused(self, retriever: Retriever) -> None:
        with pytest.raises(SearchError, match="numbers"):
            retriever.search([["a"] * DIM], 3)  # type: ignore[arg-type]

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("row", [-1, ITEMS, 2**31 - 1])
    def test_an_exclusion_outside_the_index_is_refused(self, retriever: Retriever, count: int, row: int) -> None:
        exclude = [np.array([1, row], dtype=np.int32)] * count
        with pytest.raises(SearchError, match="exclude holds row"):
            retriever.search(make_queries(count, 0), 3, exclude=exclude)
        # and the refusal leaves nothing behind
        assert retriever.search(make_queries(1, 0), ITEMS).found.tolist() == [ITEMS]

    @pytest.mark.parametrize("allow", [[-1], [ITEMS], [2**40]])
    def test_an_allowed_row_outside_the_index_is_refused(self, retriever: Retriever, allow: list[int]) -> None:
        with pytest.raises(SearchError, match="allow holds row"):
            retriever.search(make_queries(1, 0), 3, allow=np.array(allow))

    def test_lists_of_another_form_are_refused(self, retriever: Retriever) -> None:
        queries = make_queries(2, 0)
        with pytest.raises(SearchError, match="1 lists for 2 queries"):
            retriever.search(queries, 3, exclude=[[1]])
        with pytest.raises(SearchError, match="rows are integers"):
            retriever.search(queries, 3, exclude=[[1.0], [2.0]])  # type: ignore[list-item]
        with pytest.raises(SearchError, match="mask has shape"):
            retriever.search(queries, 3, allow=np.ones(ITEMS + 1, dtype=np.bool_))

    def test_threads_searching_at_once_get_their_own_answers(self, retriever: Retriever) -> None:
        queries = make_queries(64, 13)
        exclude = [np.array([i, i + 1, i + 200], dtype=np.int32) for i in range(64)]
        expected = [retriever.search(queries[i : i + 1], 20, exclude=exclude[i : i + 1]).rows for i in range(64)]
        wrong: list[int] = []

        def work(first: int) -> None:
            for turn in range(256):
                i = (first + turn) % 64
                got = retriever.search(queries[i : i + 1], 20, exclude=exclude[i : i + 1]).rows
                if not np.array_equal(got, expected[i]):
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(16 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
