"""Content fitted to the learned items, against the normal equations solved densely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig
from recsys_cg.errors import NonFiniteError
from recsys_cg.model.catalogue import Catalogue
from recsys_cg.model.content_fit import fit_content
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower
from tests.model.test_towers import Feature

FEATURES = (
    Feature("genre", "categorical", size=6, max_values=3),
    Feature("price", "numeric", width=4),
    Feature("look", "dense", width=3),
)
UNKNOWN = 4
"""Items at the end of the catalogue that were never met."""


def make_catalogue(items: int = 60, *, seed: int = 0, features: Any = FEATURES) -> Catalogue:
    rng = np.random.default_rng(seed)
    genres = np.zeros((items, 3), np.int32)
    for row in genres:
        count = rng.integers(0, 4)
        row[:count] = rng.choice(np.arange(1, 6), count, replace=False)
    content = {
        "f_genre": genres,
        "f_price": rng.normal(size=(items, 2)).astype(np.float32),
        "f_look": (5.0 * rng.normal(size=(items, 3))).astype(np.float32),
    }
    counts = rng.integers(1, 1000, items)
    shares = rng.dirichlet([0.3, 0.3, 0.3], items)[:, :2].astype(np.float32)  # of two knots among three
    content["f_price"] = np.concatenate([content["f_price"], shares], axis=1)
    counts[items - UNKNOWN :] = 0
    kept = {f"f_{feature.name}": content[f"f_{feature.name}"] for feature in features}
    return Catalogue(counts, features, kept, np.arange(items, dtype=np.int32))


def make_tower(catalogue: Catalogue, dim: int = 4) -> ItemTower:
    tf.keras.utils.set_random_seed(2)
    return ItemTower(ModelConfig(dim=dim), features=catalogue.features, items=int(catalogue.id_rows.max()))


def embed(tower: ItemTower, catalogue: Catalogue) -> NDArray[np.float32]:
    content = {name: tf.constant(table) for name, table in catalogue.content.items()}
    found: NDArray[np.float32] = tower(tf.constant(catalogue.id_rows), content).numpy()
    return found


def design(catalogue: Catalogue) -> NDArray[np.float64]:
    """Return the constant and the content as one dense matrix."""
    genres = catalogue.content["f_genre"]
    one_hot = np.zeros((len(genres), 6))
    for row, entries in zip(one_hot, genres, strict=True):
        present = entries[entries > 0]
        np.add.at(row, present, 1.0 / np.sqrt(max(len(present), 1)))
    return np.concatenate(
        [np.ones((len(genres), 1)), one_hot, catalogue.content["f_price"], catalogue.content["f_look"]], axis=1
    )


def solve(catalogue: Catalogue, learned: NDArray[np.float32], power: float, ridge: float) -> NDArray[np.float64]:
    """Return where the unknown items belong, by the normal equations."""
    matrix, known = design(catalogue), catalogue.counts > 0
    weights = catalogue.counts[known] ** power
    weights = weights / weights.mean()
    matrix[:, 7:] -= np.average(matrix[known, 7:], axis=0, weights=weights)
    varies = np.average(np.square(matrix[known, 7:]), axis=0, weights=weights)
    varies[2:4] = 1.0  # shares of knots are penalised as entries are
    penalty = np.diag([0.0, *[ridge] * 6, *(ridge * varies)])
    left = matrix[known].T @ (weights[:, None] * matrix[known]) + penalty
    solution = np.linalg.solve(left, matrix[known].T @ (weights[:, None] * learned[known]))
    return matrix[-UNKNOWN:] @ solution


@pytest.mark.parametrize(("power", "ridge"), [(0.5, 1.0), (0.0, 1.0), (1.0, 0.1), (0.5, 100.0)])
def test_unknown_items_get_the_weighted_ridge_regression_of_the_learned_ones(power: float, ridge: float) -> None:
    catalogue = make_catalogue()
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    fit_content(tower, catalogue, power=power, ridge=ridge)

    np.testing.assert_allclose(embed(tower, catalogue)[-UNKNOWN:], solve(catalogue, learned, power, ridge), atol=2e-4)


def test_learned_items_stay_where_they_are() -> None:
    catalogue = make_catalogue()
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    fit_content(tower, catalogue, power=0.5, ridge=1.0)
    known = catalogue.counts > 0
    found = embed(tower, catalogue)
    np.testing.assert_allclose(found[known], learned[known], atol=1e-5)
    assert np.abs(found[~known] - learned[~known]).max() > 0.01


def test_what_content_determines_is_found_exactly() -> None:
    catalogue = make_catalogue(seed=3)
    tower = make_tower(catalogue)
    truth = design(catalogue) @ np.random.default_rng(1).normal(size=(14, 4))
    said = embed(tower, catalogue) - tower.id_table.numpy()[catalogue.id_rows]
    known = np.flatnonzero(catalogue.id_rows)
    tower.id_table.scatter_nd_update(catalogue.id_rows[known, None], (truth - said)[known].astype(np.float32))
    explained = fit_content(tower, catalogue, power=0.5, ridge=1e-6)
    assert explained == pytest.approx(1.0, abs=1e-4)
    np.testing.assert_allclose(embed(tower, catalogue), truth, atol=0.02)


def test_content_that_says_nothing_explains_nothing() -> None:
    catalogue = make_catalogue(1000, seed=5)
    tower = make_tower(catalogue)
    for table in tower._tables.values():
        table.assign(tf.zeros_like(table))
    assert fit_content(tower, catalogue, power=0.5, ridge=1.0) == pytest.approx(0.0, abs=0.05)


def test_without_features_an_unknown_item_lies_at_the_weighted_mean() -> None:
    catalogue = make_catalogue(features=())
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    assert fit_content(tower, catalogue, power=1.0, ridge=1.0) == pytest.approx(0.0, abs=1e-5)
    expected = np.average(learned, axis=0, weights=catalogue.counts)
    np.testing.assert_allclose(embed(tower, catalogue)[-1], expected, atol=1e-5)


def test_items_in_several_blocks_are_as_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = make_catalogue()
    whole, parts = make_tower(catalogue), make_tower(catalogue)
    fit_content(whole, catalogue, power=0.5, ridge=1.0)
    monkeypatch.setattr("recsys_cg.model.content_fit._BLOCK", 7)
    fit_content(parts, catalogue, power=0.5, ridge=1.0)
    np.testing.assert_allclose(embed(parts, catalogue), embed(whole, catalogue), atol=1e-4)


def test_floats_far_from_zero_are_fitted_as_those_around_it() -> None:
    near, far = make_catalogue(400, seed=1), make_catalogue(400, seed=1)
    far.content["f_look"][:] += np.array([1000.0, -300.0, 2000.0], np.float32)
    expected = None
    for catalogue in (near, far):
        tower = make_tower(catalogue)
        known = np.flatnonzero(catalogue.id_rows)
        truth = np.random.default_rng(2).normal(size=(400, 4)) + near.content["f_look"] @ np.eye(3, 4)
        said = embed(tower, catalogue) - tower.id_table.numpy()[catalogue.id_rows]
        tower.id_table.scatter_nd_update(catalogue.id_rows[known, None], (truth - said)[known].astype(np.float32))
        explained = fit_content(tower, catalogue, power=0.5, ridge=3.0)
        found = embed(tower, catalogue)[-UNKNOWN:]
        expected = (explained, found) if expected is None else expected
        assert explained == pytest.approx(expected[0], abs=1e-3)
        np.testing.assert_allclose(found, expected[1], atol=0.02)
    assert expected is not None
    assert expected[0] > 0.8


def test_the_unit_of_a_number_is_of_no_consequence() -> None:
    metres, feet = make_catalogue(seed=4), make_catalogue(seed=4)
    feet.content["f_look"][:] *= 3.28
    found = []
    for catalogue in (metres, feet):
        tower = make_tower(catalogue)
        for name in ("f_genre", "f_price", "f_look"):
            tower._tables[name].assign(tf.zeros_like(tower._tables[name]))
        fit_content(tower, catalogue, power=0.5, ridge=3.0)
        found.append(embed(tower, catalogue)[-UNKNOWN:])
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_two_values_in_one_bucket_count_twice() -> None:
    catalogue = make_catalogue()
    catalogue.content["f_genre"][:, :2] = 5
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    fit_content(tower, catalogue, power=0.5, ridge=1.0)
    np.testing.assert_allclose(embed(tower, catalogue)[-UNKNOWN:], solve(catalogue, learned, 0.5, 1.0), atol=5e-4)


def test_numbers_too_large_to_be_fitted_are_refused_and_nothing_is_changed() -> None:
    catalogue = make_catalogue()
    catalogue.content["f_look"][:] *= 1e19
    tower = make_tower(catalogue)
    tower._tables["f_look"].assign(tf.zeros_like(tower._tables["f_look"]))
    learned = embed(tower, catalogue)
    with pytest.raises(NonFiniteError, match="too large"):
        fit_content(tower, catalogue, power=0.5, ridge=1.0)
    np.testing.assert_array_equal(embed(tower, catalogue), learned)


def test_features_that_say_the_same_end_with_a_line_and_finite_vectors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recsys_cg.model.content_fit._STEPS", 2)
    caplog.set_level("INFO")
    catalogue = make_catalogue()
    tower = make_tower(catalogue)
    fit_content(tower, catalogue, power=0.5, ridge=1e-6)
    assert np.isfinite(embed(tower, catalogue)).all()
    assert "content is fitted to" in caplog.text


def test_mirrored_towers_are_fitted_alike() -> None:
    catalogue = make_catalogue()
    alone = make_tower(catalogue)
    explained = fit_content(alone, catalogue, power=0.5, ridge=1.0)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        mirrored = make_tower(catalogue)
        assert fit_content(mirrored, catalogue, power=0.5, ridge=1.0) == pytest.approx(explained)
    np.testing.assert_allclose(embed(mirrored, catalogue), embed(alone, catalogue), atol=1e-6)


@pytest.mark.parametrize("items", [UNKNOWN, UNKNOWN + 1])
def test_no_item_or_one_is_enough(items: int) -> None:
    catalogue = make_catalogue(items)
    tower = ItemTower(ModelConfig(dim=4), features=FEATURES, items=items - UNKNOWN)
    before = embed(tower, catalogue)
    explained = fit_content(tower, catalogue, power=0.5, ridge=1.0)
    found = embed(tower, catalogue)
    assert np.isfinite(found).all()
    assert np.isfinite(explained)
    if items > UNKNOWN:
        np.testing.assert_allclose(found[0], before[0], atol=1e-5)
        np.testing.assert_allclose(
            tower.id_table.numpy()[0], before[0], atol=1e-4
        )  # nothing varies: the constant is all
