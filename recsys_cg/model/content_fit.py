"""Vectors for items that training never meets: what content says of the items that it does meet.

Training learns an item as ``id + content``, and nothing makes it say in the content what content can say: the ids, with
a number for each item, explain everything as well. So once training has ended the split is made anew. The content gets
the weighted ridge regression of the learned items on their content, and each id what is left of its item:

    W = argmin  sum_i w_i |e_i - W x_i|^2 + ridge |W|^2,    id_i = e_i - W x_i,    w_i = n_i^power / mean

Known items stay where they are; an unknown one is at ``W x``, where items of such content are expected to be. The more
often an item was chosen, the better it is known, and the likelier is the next one that is asked for to be like it; but
most of what nobody met yet will never be popular. So items weigh by a small power of their number of training events.

Mapping content to learned item vectors once these are there is due to Gantner et al. 2010, "Learning attribute-to-
feature mappings for cold-start recommendations". Dropping ids in training (``model.id_dropout``, after Volkovs et al.
2017, "DropoutNet") teaches the same to the towers themselves, and takes from the items that are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.model.catalogue import Catalogue
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower

__all__ = ["fit_content"]

_BLOCK = 8192
_MOST_ITEMS = 200_000
_STEPS = 200
_TOLERANCE = 1e-4
_TINY = 1e-30

Parameters = list[Any]
"""The constant, float32 [1, dim], and the tables of the features, float32 [rows, dim] each."""


def fit_content(tower: ItemTower, catalogue: Catalogue, *, power: float, ridge: float) -> float:
    """Fit the content of a trained item tower, and leave every item that has an own id where it is.

    Args:
        tower: whose tables are changed.
        catalogue: the items that it was trained on.
        power: of an item's training events, by which it weighs, >= 0.
        ridge: penalty of the content's tables, > 0, at weights of mean one.

    Returns:
        The share of the learned items' weighted variance that their content explains, 0 where there is none.
    """
    known = np.flatnonzero(catalogue.id_rows)
    if not len(known):
        return 0.0
    chosen = known[np.argsort(-catalogue.counts[known], kind="stable")[:_MOST_ITEMS]]
    problem = _Problem(tower, catalogue, np.sort(chosen), power)
    solution = _solve(problem, ridge)
    explained = problem.explained(solution)
    _assign(tower, catalogue, solution)
    return explained


class _Problem:
    """The normal equations, by products with blocks of items: no matrix of content is ever held.

    Args:
        tower: embeds the items as they were learned.
        catalogue: their content and counts.
        rows: the items that are fitted to.
        power: of their counts.
    """

    def __init__(self, tower: ItemTower, catalogue: Catalogue, rows: NDArray[np.int64], power: float) -> None:
        self._tower = tower
        weights = catalogue.counts[rows].astype(np.float64) ** power
        weights = (weights / weights.mean()).astype(np.float32)
        self._blocks = [
            (_content_of(catalogue, rows[part]), tf.constant(catalogue.id_rows[rows[part]]), tf.constant(weights[part]))
            for part in _parts(len(rows))
        ]
        self._targets = [tower(id_rows, content) for content, id_rows, _ in self._blocks]
        self._multiply_block = tf.function(self._gradient)

    def multiply(self, parameters: Parameters) -> Parameters:
        """Return ``X' w X parameters``."""
        zero = [tf.zeros_like(target) for target in self._targets]
        return self._sum(parameters, zero)

    def right_side(self) -> Parameters:
        """Return ``X' w e``."""
        nothing = [tf.zeros_like(table) for table in self._tower.content_parameters()]
        return [-part for part in self._sum(nothing, self._targets)]

    def diagonal(self) -> Parameters:
        """Return the diagonal of ``X' w X``, float32 [rows, 1] for each table."""
        parts = [self._tower.content_squares(content, weights) for content, _, weights in self._blocks]
        return [tf.add_n(columns) for columns in zip(*parts, strict=True)]

    def explained(self, parameters: Parameters) -> float:
        """Return the weighted share of the variance around the weighted mean that ``parameters`` explain."""
        left = total = 0.0
        weight = sum(float(tf.reduce_sum(weights)) for _, _, weights in self._blocks)
        blocks = list(zip(self._blocks, self._targets, strict=True))
        mean = tf.add_n([tf.linalg.matvec(target, weights, transpose_a=True) for (_, _, weights), target in blocks])
        for (content, _, weights), target in blocks:
            found = self._tower.content_vectors(content, parameters)
            left += float(tf.tensordot(weights, tf.reduce_sum(tf.square(target - found), axis=1), 1))
            total += float(tf.tensordot(weights, tf.reduce_sum(tf.square(target - mean / weight), axis=1), 1))
        return 1.0 - left / total if total > 0.0 else 0.0

    def _sum(self, parameters: Parameters, targets: list[Any]) -> Parameters:
        parts = [
            self._multiply_block(parameters, content, weights, target)
            for (content, _, weights), target in zip(self._blocks, targets, strict=True)
        ]
        return [tf.add_n(columns) for columns in zip(*parts, strict=True)]

    def _gradient(self, parameters: Parameters, content: Mapping[str, Any], weights: Any, target: Any) -> Parameters:
        """Return the gradient of half the weighted squared distance between what ``parameters`` say and ``target``."""
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            apart = self._tower.content_vectors(content, parameters) - target
            half = 0.5 * tf.reduce_sum(weights[:, None] * tf.square(apart))
        return [tf.convert_to_tensor(part) for part in tape.gradient(half, parameters)]


def _solve(problem: _Problem, ridge: float) -> Parameters:
    """Solve for every output dimension at once by conjugate gradients, scaled by the diagonal; the constant is free."""
    right = problem.right_side()
    penalties = [0.0] + [ridge] * (len(right) - 1)
    diagonal = zip(problem.diagonal(), penalties, strict=True)
    scales = [1.0 / tf.maximum(part + penalty, _TINY) for part, penalty in diagonal]
    solution = [tf.zeros_like(part) for part in right]
    residual = right
    scaled = [scale * part for scale, part in zip(scales, residual, strict=True)]
    direction, product = scaled, _dot(residual, scaled)
    enough = _TOLERANCE**2 * product
    for _ in range(_STEPS):
        moved = [
            part + penalty * along
            for part, penalty, along in zip(problem.multiply(direction), penalties, direction, strict=True)
        ]
        step = tf.math.divide_no_nan(product, _dot(direction, moved))
        solution = [part + step * along for part, along in zip(solution, direction, strict=True)]
        residual = [part - step * along for part, along in zip(residual, moved, strict=True)]
        scaled = [scale * part for scale, part in zip(scales, residual, strict=True)]
        before, product = product, _dot(residual, scaled)
        if bool(tf.reduce_all(product <= enough)):
            break
        turn = tf.math.divide_no_nan(product, before)
        direction = [part + turn * along for part, along in zip(scaled, direction, strict=True)]
    return solution


def _dot(one: Parameters, other: Parameters) -> Any:
    """Return float32 [dim], the product over all rows of all tables."""
    return tf.add_n([tf.reduce_sum(left * right, axis=0) for left, right in zip(one, other, strict=True)])


def _assign(tower: ItemTower, catalogue: Catalogue, parameters: Parameters) -> None:
    """Give the content its new tables, and each id what is left of its item."""
    known = np.flatnonzero(catalogue.id_rows)
    ids = tower.id_table.numpy()
    ids[0] = parameters[0].numpy()
    for part in _parts(len(known)):
        rows = known[part]
        content, id_rows = _content_of(catalogue, rows), catalogue.id_rows[rows]
        said = tower.content_vectors(content, parameters) - parameters[0]
        ids[id_rows] = (tower(tf.constant(id_rows), content) - said).numpy()
    tower.assign(ids, parameters[1:])


def _content_of(catalogue: Catalogue, rows: NDArray[np.int64]) -> dict[str, Any]:
    return {name: tf.constant(table[rows]) for name, table in catalogue.content.items()}


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
