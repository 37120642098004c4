"""Content fitted to the learned items, against the normal equations solved densely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig
from recsys_cg.model.catalogue import Catalogue
from recsys_cg.model.content_fit import fit_content
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower
from tests.model.test_towers import Feature

FEATURES = (
    Feature("genre", "categorical", size=6, max_values=3),
    Feature("price", "numeric", width=2),
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
        row[present] = 1.0 / np.sqrt(max(len(present), 1))
    return np.concatenate(
        [np.ones((len(genres), 1)), one_hot, catalogue.content["f_price"], catalogue.content["f_look"]], axis=1
    )


@pytest.mark.parametrize(("power", "ridge"), [(0.5, 1.0), (0.0, 1.0), (1.0, 0.1), (0.5, 100.0)])
def test_unknown_items_get_the_weighted_ridge_regression_of_the_learned_ones(power: float, ridge: float) -> None:
    catalogue = make_catalogue()
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    fit_content(tower, catalogue, power=power, ridge=ridge)

    matrix, known = design(catalogue), catalogue.counts > 0
    weights = catalogue.counts[known] ** power
    weights = weights / weights.mean()
    penalty = np.diag([0.0] + [ridge] * (matrix.shape[1] - 1))
    left = matrix[known].T @ (weights[:, None] * matrix[known]) + penalty
    solution = np.linalg.solve(left, matrix[known].T @ (weights[:, None] * learned[known]))
    np.testing.assert_allclose(embed(tower, catalogue)[~known], matrix[~known] @ solution, atol=2e-4)


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
    truth = design(catalogue) @ np.random.default_rng(1).normal(size=(12, 4))
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


def test_of_too_many_items_those_chosen_most_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = make_catalogue()
    most = np.argsort(-catalogue.counts)[:30]
    counts = np.zeros_like(catalogue.counts)
    counts[most] = catalogue.counts[most]
    tower = make_tower(catalogue)
    learned = embed(tower, catalogue)
    monkeypatch.setattr("recsys_cg.model.content_fit._MOST_ITEMS", 30)
    fit_content(tower, catalogue, power=0.5, ridge=1.0)
    matrix, weights = design(catalogue)[most], counts[most] ** 0.5
    weights = weights / weights.mean()
    penalty = np.diag([0.0] + [1.0] * (matrix.shape[1] - 1))
    solution = np.linalg.solve(
        matrix.T @ (weights[:, None] * matrix) + penalty, matrix.T @ (weights[:, None] * learned[most])
    )
    np.testing.assert_allclose(embed(tower, catalogue)[-1], design(catalogue)[-1] @ solution, atol=2e-4)
    np.testing.assert_allclose(embed(tower, catalogue)[catalogue.counts > 0], learned[catalogue.counts > 0], atol=1e-5)


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
        np.testing.assert_allclose(found, np.broadcast_to(before[0], found.shape), atol=0.5 * np.abs(before).max())
