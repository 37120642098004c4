from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import linalg

from recsys_cg.config import ModelConfig
from recsys_cg.model import initial_ids
from recsys_cg.model.frameworks import keras
from recsys_cg.model.initial_ids import co_occurrence_vectors, positive_information, symmetric_factors
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.item_tower import ItemTower


def sequences_of(lists: list[list[int]]) -> Sequences:
    items = np.array([item for each in lists for item in each], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    blank = np.zeros(len(items), dtype=np.float32)
    return Sequences(items, blank.astype(np.int32), blank, blank + 1, blank.astype(np.int64), starts)


def tastes_of(tastes: int, size: int, *, users: int, met: int) -> list[list[int]]:
    """Each user meets some items of one taste, in any order; tastes are blocks of ``size`` items."""
    rng = np.random.default_rng(0)
    return [(size * (user % tastes) + rng.permutation(size)[:met]).tolist() for user in range(users)]


def rows_of(items: int) -> np.ndarray:
    return np.arange(1, items + 1, dtype=np.int32)


def test_information_is_what_the_formula_says() -> None:
    counts = np.array([[0, 6, 1], [6, 0, 2], [1, 2, 0]], dtype=np.float32)
    margins = counts.sum(axis=1) / counts.sum()
    contexts = counts.sum(axis=1) ** 0.75
    contexts /= contexts.sum()
    with np.errstate(divide="ignore"):
        one_way = np.maximum(np.log(counts / counts.sum() / np.outer(margins, contexts)), 0.0)
    found = positive_information(sparse.csr_array(counts))
    np.testing.assert_allclose(found.toarray(), (one_way + one_way.T) / 2, rtol=1e-5)
    assert found.nnz == 4  # items 0 and 2 meet less often than by chance, which counts as nothing


@pytest.mark.parametrize("items", [30, 3, 9])
def test_factors_give_back_the_largest_positive_part_of_a_matrix(items: int) -> None:
    dim = 4
    drawn = np.random.default_rng(1).normal(size=(items, items))
    matrix = (drawn + drawn.T).astype(np.float32)
    values, vectors = np.linalg.eigh(matrix)
    kept = np.maximum(values, 0.0) * (np.arange(items) >= items - dim)
    factors = symmetric_factors(sparse.csr_array(matrix), dim)
    assert factors.shape == (items, dim)
    np.testing.assert_allclose(factors @ factors.T, vectors * kept @ vectors.T, atol=1e-3 * values[-1])


def test_nothing_has_no_factors() -> None:
    assert not symmetric_factors(sparse.csr_array((5, 5), dtype=np.float32), 3).any()


def test_what_an_unfinished_search_found_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [np.array([4.0]), np.eye(40, 1)]

    def give_up(*_, **__):
        raise linalg.ArpackNoConvergence("slow", *found)

    monkeypatch.setattr(initial_ids.linalg, "eigsh", give_up)
    matrix = sparse.eye_array(40, format="csr", dtype=np.float32)
    factors = symmetric_factors(matrix, 5)
    assert factors.shape == (40, 5)
    assert np.linalg.norm(factors, axis=1).tolist() == pytest.approx([2.0] + [0.0] * 39)
    found[:] = np.zeros(0), np.zeros((40, 0))
    assert not symmetric_factors(matrix, 5).any()


def test_vectors_are_the_factors_of_what_the_window_counts() -> None:
    rng = np.random.default_rng(5)
    lists = [rng.permutation(30)[: rng.integers(2, 20)].tolist() for _ in range(60)]
    counts = np.zeros((31, 31))
    for each in lists:
        for i, left in enumerate(each):
            for gap, right in enumerate(each[i + 1 : i + 11]):
                counts[left + 1, right + 1] += 0.8**gap
                counts[right + 1, left + 1] += 0.8**gap
    information = positive_information(sparse.csr_array(counts)).toarray()
    order = np.argsort(-counts.sum(axis=1))
    kept = order[: 1 + np.searchsorted(np.cumsum(counts.sum(axis=1)[order]), 0.95 * counts.sum())]
    assert 20 < len(kept) < 30
    values, vectors = np.linalg.eigh(information[np.ix_(kept, kept)])
    expected = information[:, kept] @ vectors[:, -8:] / np.sqrt(values[-8:])
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-9)
    found = co_occurrence_vectors(sequences_of(lists), rows_of(30), dim=8)
    np.testing.assert_allclose((found @ found.T)[1:, 1:], (expected @ expected.T)[1:, 1:], atol=2e-3)


def test_items_of_one_taste_begin_near_each_other_and_alone_is_nowhere() -> None:
    lists = tastes_of(3, 10, users=90, met=6)
    vectors = co_occurrence_vectors(sequences_of([*lists, [30]]), rows_of(31), dim=8)
    assert vectors.shape == (32, 8)
    assert vectors.dtype == np.float32
    assert not vectors[[0, 31]].any()  # the unknown id, and an item that nobody met with another
    np.testing.assert_allclose(np.linalg.norm(vectors[1:31], axis=1), 1.0, atol=1e-5)
    similarity = vectors[1:31] @ vectors[1:31].T
    same = np.arange(30)[:, None] // 10 == np.arange(30)[None, :] // 10
    assert similarity[same].min() > similarity[~same].max()


def sparse_log(met: int, users: int = 300) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, met, 12).tolist() for _ in range(users)]


def test_items_alone_are_nowhere_however_many_they_are() -> None:
    lists = [*sparse_log(40), *([item] for item in range(40, 400))]
    vectors = co_occurrence_vectors(sequences_of(lists), rows_of(400), dim=64)
    assert not vectors[0].any()
    assert not vectors[41:].any()
    np.testing.assert_allclose(np.linalg.norm(vectors[1:41], axis=1), 1.0, atol=1e-5)


def test_the_rarest_items_take_no_eigenvector_and_stand_by_their_neighbours() -> None:
    tastes = tastes_of(10, 20, users=1000, met=8)
    trios = [[200 + 3 * trio + place for place in (0, 1, 2)] for trio in range(40)]
    log = [*tastes, *trios, [61, 320, 65]]
    vectors = co_occurrence_vectors(sequences_of(log), rows_of(321), dim=16)
    placed = np.linalg.norm(vectors, axis=1) > 0.5
    assert placed[1:201].all()
    assert not placed[201:321].any()
    nearest = np.argsort(-(vectors[1:201] @ vectors[321]))[:20]
    assert sorted(nearest.tolist()) == list(range(60, 80))


def test_of_a_large_catalogue_the_most_met_place_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = tastes_of(10, 20, users=1000, met=8)
    monkeypatch.setattr(initial_ids, "_LANDMARKS", 100)
    vectors = co_occurrence_vectors(sequences_of(lists), rows_of(200), dim=16)[1:]
    similarity = vectors @ vectors.T
    same = np.arange(200)[:, None] // 20 == np.arange(200)[None, :] // 20
    assert similarity[same].min() > similarity[~same].max()


def test_an_item_without_a_row_is_left_out_and_the_log_of_a_newcomer_says_nothing() -> None:
    rows = np.array([2, 0, 1], dtype=np.int32)
    met = co_occurrence_vectors(sequences_of([[0, 2], [2, 0], [0, 2]]), rows, dim=2)
    assert np.linalg.norm(met, axis=1).tolist() == pytest.approx([0, 1, 1])
    assert not co_occurrence_vectors(sequences_of([[0]]), rows_of(1), dim=4).any()


def test_every_kth_user_of_a_log_too_long_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [[0, 1], [2, 3], [0, 1], [2, 3]]
    monkeypatch.setattr(initial_ids, "_EVENTS", 4)
    vectors = co_occurrence_vectors(sequences_of(lists), rows_of(4), dim=2)
    assert (np.linalg.norm(vectors, axis=1) > 0.5).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("met", [200, 40])
def test_equal_logs_begin_at_equal_bits(met: int) -> None:
    sequences = sequences_of(sparse_log(met))
    first, second = (co_occurrence_vectors(sequences, rows_of(200), dim=16) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_search_that_runs_out_of_directions_begins_anew_where_it_did_before() -> None:
    drawn = np.random.default_rng(0).random((40, 40))
    block = np.zeros((400, 400), dtype=np.float32)
    block[:40, :40] = drawn + drawn.T
    first, second = (symmetric_factors(sparse.csr_array(block), 64) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_what_has_no_share_in_the_largest_eigenvectors_is_nowhere() -> None:
    tastes = tastes_of(30, 20, users=3000, met=8)
    norms = np.linalg.norm(co_occurrence_vectors(sequences_of(tastes), rows_of(600), dim=4), axis=1)
    is_placed = norms > 0.0
    assert 40 < is_placed.sum() < 560
    np.testing.assert_allclose(norms[is_placed], 1.0, atol=1e-5)


def test_where_everything_is_met_with_everything_ids_still_differ() -> None:
    rng = np.random.default_rng(0)
    for items in (2, 3, 6, 12):
        lists = [rng.permutation(items).tolist() for _ in range(200)]
        start = co_occurrence_vectors(sequences_of(lists), rows_of(items), dim=16)
        ids = ItemTower(ModelConfig(dim=16), features=(), items=items, start=start).id_table.numpy()[1:]
        unit = ids / np.linalg.norm(ids, axis=1, keepdims=True)
        similarity = (unit @ unit.T)[~np.eye(items, dtype=bool)]
        assert similarity.mean() < 0.85, items


def test_a_start_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 4\), ids \(4, 4\)"):
        ItemTower(ModelConfig(dim=4), features=(), items=3, start=np.ones((1, 4), dtype=np.float32))


def test_columns_that_are_not_used_are_drawn() -> None:
    start = np.zeros((3, 4), dtype=np.float32)
    start[1:, :2] = [[1.0, 0.0], [0.0, 1.0]]
    ids = ItemTower(ModelConfig(dim=4), features=(), items=2, start=start).id_table.numpy()
    np.testing.assert_array_equal(ids[1:, :2], start[1:, :2])
    assert ids[1:, 2:].all()
    assert ids[0].all()


def test_ids_begin_at_their_start_and_the_others_where_they_are_drawn() -> None:
    start = np.zeros((4, 4), dtype=np.float32)
    start[2] = [0.5, -0.5, 0.5, 0.5]
    keras.utils.set_random_seed(7)
    placed = ItemTower(ModelConfig(dim=4), features=(), items=3, start=start).id_table.numpy()
    keras.utils.set_random_seed(7)
    drawn = ItemTower(ModelConfig(dim=4), features=(), items=3).id_table.numpy()
    np.testing.assert_array_equal(placed[2], start[2])
    np.testing.assert_array_equal(placed[[0, 1, 3]], drawn[[0, 1, 3]])
