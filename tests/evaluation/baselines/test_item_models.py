from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from recsys_cg.evaluation.baselines.ease import Ease, fit_ease
from recsys_cg.evaluation.baselines.ials import Ials, fit_item_factors, fold_in
from recsys_cg.evaluation.baselines.knn import ItemKnn, co_occurrence, nearest
from recsys_cg.evaluation.baselines.matrices import history_matrix, interaction_matrix
from recsys_cg.evaluation.baselines.sessions import Sessions
from tests.evaluation.tables import as_batch, make_queries, make_sequences


def sessions_of(lists: dict[str, list[int]], items: int) -> Sessions:
    return Sessions.of(make_sequences(lists), items)


def random_sessions(users: int = 80, items: int = 25, seed: int = 0) -> Sessions:
    rng = np.random.default_rng(seed)
    taste = rng.integers(0, 5, users)
    lists = {f"u{u}": (taste[u] * 5 + rng.integers(0, 5, rng.integers(2, 9))).tolist() for u in range(users)}
    return sessions_of(lists, items)


def ask(system, histories: list[list[int]], k: int) -> list[list[int]]:
    batch = as_batch(make_queries([{"targets": [0], "history": h} for h in histories]))
    return system.recommend(batch, k).tolist()


def test_interactions_are_binary_and_cut_to_the_last_ones() -> None:
    sessions = sessions_of({"a": [0, 1, 1, 2], "b": [2]}, 4)
    assert interaction_matrix(sessions).toarray().tolist() == [[1, 1, 1, 0], [0, 0, 1, 0]]
    assert interaction_matrix(sessions, last=1).toarray().tolist() == [[0, 0, 1, 0], [0, 0, 1, 0]]
    assert sessions.item_rows.to_arrow().to_pylist() == [[0, 1, 1, 2], [2]]


def test_a_history_fades_with_age_and_an_item_weighs_as_its_latest_meeting() -> None:
    queries = make_queries([{"targets": [0], "history": [3, 1, 3, 2]}, {"targets": [0]}])
    assert history_matrix(queries, 4, decay=0.5).toarray().tolist() == [[0, 0.25, 1.0, 0.5], [0, 0, 0, 0]]
    assert history_matrix(queries, 4, decay=1.0, last=2).toarray()[0].tolist() == [0, 0, 1, 1]


def test_co_occurrence_counts_users() -> None:
    sessions = sessions_of({"a": [0, 1, 2], "b": [0, 1], "c": [2]}, 3)
    assert co_occurrence(sessions).toarray().tolist() == [[0, 2, 1], [2, 0, 1], [1, 1, 0]]


def test_neighbours_are_the_nearest_by_shrunk_cosine() -> None:
    counts = sparse.csr_array(np.array([[0, 4, 1], [4, 0, 0], [1, 0, 0]], dtype=np.float32))
    kept = nearest(counts, np.array([4, 9, 1]), shrink=2.0, neighbours=1).toarray()
    assert kept[0].tolist() == [0, pytest.approx(4 / (6 + 2)), 0]
    assert kept[2].tolist() == [pytest.approx(1 / (2 + 2)), 0, 0]


def test_knn_recommends_neighbours_of_the_history_then_bestsellers() -> None:
    sessions = sessions_of({"a": [4, 5], "b": [4, 5], "c": [1, 2]}, 6)
    system = ItemKnn(nearest(co_occurrence(sessions), np.full(6, 2), shrink=0.0, neighbours=10), decay=0.8, settings={})
    assert ask(system, [[4], [], [1, 4]], 4) == [[5, 0, 1, 2], [0, 1, 2, 3], [5, 2, 0, 3]]


def test_ease_weights_are_those_of_the_closed_form() -> None:
    sessions = random_sessions()
    weights, known = fit_ease(sessions, 3.0)
    matrix = interaction_matrix(sessions).toarray()[:, known]
    inverse = np.linalg.inv(matrix.T @ matrix + 3.0 * np.eye(len(known)))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(weights, expected, atol=2e-5)


def test_ease_minimises_its_loss_under_a_zero_diagonal() -> None:
    sessions = random_sessions(seed=3)
    weights, known = fit_ease(sessions, 2.0)
    matrix = interaction_matrix(sessions).toarray()[:, known].astype(np.float64)

    def loss(b: np.ndarray) -> float:
        return float(np.square(matrix - matrix @ b).sum() + 2.0 * np.square(b).sum())

    rng = np.random.default_rng(0)
    for _ in range(10):
        nudge = rng.normal(0, 0.05, weights.shape)
        np.fill_diagonal(nudge, 0.0)
        assert loss(weights + nudge) > loss(weights.astype(np.float64))


def test_ease_leaves_items_without_training_to_the_end() -> None:
    sessions = sessions_of({"a": [0, 3], "b": [0, 3], "c": [1, 3]}, 5)
    weights, known = fit_ease(sessions, 1.0)
    assert known.tolist() == [0, 1, 3]
    system = Ease(weights, known, 5, decay=1.0, settings={})
    assert ask(system, [[0]], 4)[0][0] == 3
    assert set(ask(system, [[0]], 4)[0]) == {1, 2, 3, 4}
    assert fit_ease(sessions_of({}, 5), 1.0)[0].shape == (0, 0)


def test_folding_in_solves_the_normal_equations() -> None:
    rng = np.random.default_rng(1)
    factors = rng.normal(size=(12, 4)).astype(np.float32)
    history = sparse.csr_array(np.array([[0, 1, 0.5, *[0] * 9], [0] * 12], dtype=np.float32))
    gram = factors.T @ factors + 0.7 * np.eye(4, dtype=np.float32)
    solved = fold_in(history, factors, gram, alpha=3.0)
    weight = history.toarray()[0]
    left = factors.T @ (factors * (1 + 3.0 * weight)[:, None]) + 0.7 * np.eye(4)
    np.testing.assert_allclose(solved[0], np.linalg.solve(left, factors.T @ (4.0 * weight)), rtol=2e-4)
    assert solved[1].tolist() == [0, 0, 0, 0]


def test_folding_in_agrees_with_the_library_that_trained_the_factors() -> None:
    implicit = pytest.importorskip("implicit")
    from threadpoolctl import threadpool_limits

    sessions = random_sessions()
    factors = fit_item_factors(sessions, dim=6, alpha=4.0, regularisation=0.3, iterations=8, seed=1)
    history = interaction_matrix(sessions)[:5]
    with threadpool_limits(limits=1, user_api="blas"):
        model = implicit.cpu.als.AlternatingLeastSquares(factors=6, regularization=0.3)
        model.item_factors = factors
        theirs = model.recalculate_user(np.arange(5), sparse.csr_matrix(history) * np.float32(5.0))
    gram = factors.T @ factors + 0.3 * np.eye(6, dtype=np.float32)
    np.testing.assert_allclose(fold_in(history, factors, gram, 4.0), theirs, rtol=1e-3, atol=1e-4)


def test_ials_is_seeded_and_finds_the_taste_of_a_history() -> None:
    sessions = random_sessions()
    first, again = (
        fit_item_factors(sessions, dim=6, alpha=4.0, regularisation=0.3, iterations=8, seed=1) for _ in range(2)
    )
    assert np.array_equal(first, again)
    system = Ials(first, alpha=4.0, regularisation=0.3, decay=0.9, settings={})
    found = ask(system, [[5, 6], [20, 21]], 3)
    assert set(found[0]) == {7, 8, 9}
    assert set(found[1]) == {22, 23, 24}
    assert len(set(ask(system, [[]], 5)[0])) == 5
