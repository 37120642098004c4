"""Vectors for items that training never meets: what content says of the items that it does meet.

Training learns an item as ``id + content``, and nothing makes it say in the content what content can say: the ids, with
a number for each item, explain everything as well. So once training has ended the split is made anew. The content gets
the weighted ridge regression of the learned items on their content, and each id what is left of its item:

    c, W = argmin  sum_i w_i |e_i - c - W x_i|^2 + ridge |W|^2,    id_i = e_i - W x_i,    w_i = n_i^power / mean

Known items stay where they are; an unknown one is at ``c + W x``, where items of such content are expected to be. The
more often an item was chosen, the better it is known, and the likelier is the next one that is asked for to be like it;
but most of what nobody met yet will never be popular. So items weigh by a small power of their training events.
Floats are penalised by what they vary, so that their unit is of no consequence: ``ridge`` is a number of items of mean
weight, whose content is as usual and says nothing.

Mapping content to learned item vectors once these are there is due to Gantner et al. 2010, "Learning attribute-to-
feature mappings for cold-start recommendations". Dropping ids in training (``model.id_dropout``, after Volkovs et al.
2017, "DropoutNet") teaches the same to the towers themselves, and takes from the items that are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.data.arrays import column_name, scaled_floats
from recsys_cg.errors import NonFiniteError
from recsys_cg.model.catalogue import Catalogue
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower
from recsys_cg.progress import say

__all__ = ["fit_content"]

_BLOCK = 8192
_STEPS = 200
_TOLERANCE = 1e-4
_TINY = 1e-30

Parameters = list[Any]
"""The constant, float32 [1, dim], and the table of each feature, float32 [rows, dim]."""
Block = tuple[dict[str, Any], Any, Any]
"""Content of some items, their id_row, int32 [n], and their weight, float32 [n]."""


def fit_content(tower: ItemTower, catalogue: Catalogue, *, power: float, ridge: float) -> float:
    """Fit the content of a trained item tower, and leave every item that has an own id where it is.

    It takes up to 200 passes over the content of the learned items, and fewer where features are few.

    Args:
        tower: whose tables are changed.
        catalogue: the items that it was trained on; those with an own id are learned from.
        power: of an item's training events, by which it weighs, >= 0.
        ridge: penalty of the content's tables, > 0, at weights of mean one.

    Returns:
        The share of the learned items' weighted variance that their content explains, 0 where there is none.

    Raises:
        NonFiniteError: numbers of the content are too large to be fitted; nothing was changed.
    """
    id_rows = catalogue.id_rows
    if not id_rows.any():
        return 0.0
    problem = _Problem(tower, catalogue, id_rows, power)
    solution = _solve(problem, ridge)
    explained = problem.explained(solution)
    if not all(np.isfinite(part).all() for part in solution) or not np.isfinite(explained):
        raise NonFiniteError(
            "content cannot be fitted to the learned items: numbers of a numeric or dense feature are too large; scale "
            "them, or set model.fit_content = false"
        )
    _assign(tower, catalogue, id_rows, problem.at_origin(solution))
    return explained


class _Problem:
    """The normal equations, by products with blocks of items; floats are taken from their weighted mean.

    Args:
        tower: embeds the items as they were learned.
        catalogue: their content and counts.
        id_rows: of the catalogue.
        power: of their counts.
    """

    def __init__(self, tower: ItemTower, catalogue: Catalogue, id_rows: NDArray[np.int32], power: float) -> None:
        self._tower, self._catalogue, self._id_rows = tower, catalogue, id_rows
        self._rows = np.flatnonzero(id_rows)
        weights = catalogue.counts[self._rows].astype(np.float64) ** power
        self._weights = (weights / weights.mean()).astype(np.float32)
        self.means = {
            name: np.average(table[self._rows].astype(np.float64), axis=0, weights=weights).astype(np.float32)
            for name, table in catalogue.content.items()
            if np.issubdtype(table.dtype, np.floating)
        }
        self._gradient = tf.function(self._trace_gradient)

    def multiply(self, parameters: Parameters) -> Parameters:
        """Return ``X' w X parameters``."""
        return self._sum_gradients(parameters, to_items=False)

    def right_side(self) -> Parameters:
        """Return ``X' w e``."""
        nothing = [tf.zeros_like(part) for part in self._tower.content_parameters()]
        return [-part for part in self._sum_gradients(nothing, to_items=True)]

    def diagonal(self) -> Parameters:
        """Return the diagonal of ``X' w X``, float32 [rows, 1] for each table, entries of one item counted apart."""
        total: Parameters = []
        for content, _, weights in self._blocks():
            total = _add(total, self._tower.content_squares(content, weights))
        return total

    def penalties(self, ridge: float, diagonal: Parameters) -> Parameters:
        """Return the penalty of each row: none of the constant, and of floats with a scale by what they vary.

        What a knot says is penalised as an entry is: of one that few items are near, little is known.
        """
        rows = [ridge * tf.ones_like(part) for part in diagonal]
        rows[0] = tf.zeros_like(rows[0])
        for place, feature in enumerate(self._catalogue.features, start=1):
            if column_name(feature) in self.means:
                scaled = scaled_floats(feature)
                varied = ridge * diagonal[place] / len(self._rows)
                rows[place] = tf.concat([varied[:scaled], rows[place][scaled:]], axis=0)
        return rows

    def explained(self, parameters: Parameters) -> float:
        """Return the share of the weighted variance around the weighted mean that ``parameters`` explain."""
        left = squares = 0.0
        total = np.zeros(self._tower.id_table.shape[1])
        for content, id_rows, weights in self._blocks():
            target = self._target(content, id_rows)
            apart = target - self._tower.content_vectors(content, parameters)
            left += float(tf.tensordot(weights, tf.reduce_sum(tf.square(apart), axis=1), 1))
            squares += float(tf.tensordot(weights, tf.reduce_sum(tf.square(target), axis=1), 1))
            total += tf.linalg.matvec(target, weights, transpose_a=True).numpy().astype(np.float64)
        variance = squares - float(np.square(total).sum()) / len(self._rows)
        return 1.0 - left / variance if variance > 1e-6 * squares else 0.0

    def at_origin(self, parameters: Parameters) -> Parameters:
        """Return the parameters for floats as they are, which stand for the same."""
        constant, *tables = parameters
        for name, table in zip(self._tower.content_columns, tables, strict=True):
            if name in self.means:
                constant -= self.means[name][None, :] @ table
        return [constant, *tables]

    def _blocks(self) -> Iterator[Block]:
        for part in _parts(len(self._rows)):
            rows = self._rows[part]
            content = {
                name: tf.constant(table[rows]) - self.means[name] if name in self.means else tf.constant(table[rows])
                for name, table in self._catalogue.content.items()
            }
            yield content, tf.constant(self._id_rows[rows]), tf.constant(self._weights[part])

    def _target(self, content: Mapping[str, Any], id_rows: Any) -> Any:
        """Return the learned items, of which ``content`` has its floats from their mean: float32 [n, dim]."""
        embedded = self._tower(id_rows, content)
        for name, table in zip(self._tower.content_columns, self._tower.content_parameters()[1:], strict=True):
            if name in self.means:
                embedded += self.means[name][None, :] @ table
        return embedded

    def _sum_gradients(self, parameters: Parameters, *, to_items: bool) -> Parameters:
        total: Parameters = []
        for content, id_rows, weights in self._blocks():
            target = self._target(content, id_rows) if to_items else tf.zeros([1, 1])
            total = _add(total, self._gradient(parameters, content, weights, target))
        return total

    def _trace_gradient(self, parameters: Parameters, content: Mapping[str, Any], weights: Any, target: Any) -> Any:
        """Return the gradient of half the weighted squared distance between what ``parameters`` say and ``target``."""
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            apart = self._tower.content_vectors(content, parameters) - target
            half = 0.5 * tf.reduce_sum(weights[:, None] * tf.square(apart))
        return [tf.convert_to_tensor(part) for part in tape.gradient(half, parameters)]


def _solve(problem: _Problem, ridge: float) -> Parameters:
    """Solve for every output dimension at once by conjugate gradients, scaled by the diagonal."""
    right, diagonal = problem.right_side(), problem.diagonal()
    penalties = problem.penalties(ridge, diagonal)
    scales = [1.0 / tf.maximum(part + penalty, _TINY) for part, penalty in zip(diagonal, penalties, strict=True)]
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
    else:
        left = float(tf.reduce_max(tf.sqrt(tf.math.divide_no_nan(product, enough)))) * _TOLERANCE
        say(f"content is fitted to {left:.1g} of its residual, not to {_TOLERANCE:g}: its features say much the same")
    return solution


def _add(total: Parameters, parts: Parameters) -> Parameters:
    return [one + other for one, other in zip(total, parts, strict=True)] if total else list(parts)


def _dot(one: Parameters, other: Parameters) -> Any:
    """Return float32 [dim], the product over all rows of all tables."""
    return tf.add_n([tf.reduce_sum(left * right, axis=0) for left, right in zip(one, other, strict=True)])


def _assign(tower: ItemTower, catalogue: Catalogue, id_rows: NDArray[np.int32], parameters: Parameters) -> None:
    """Give the content its new tables, and each id what is left of its item."""
    known = np.flatnonzero(id_rows)
    ids = tower.id_table.numpy()
    ids[0] = parameters[0].numpy()
    for part in _parts(len(known)):
        rows = known[part]
        content = {name: tf.constant(table[rows]) for name, table in catalogue.content.items()}
        said = tower.content_vectors(content, parameters) - parameters[0]
        ids[id_rows[rows]] = (tower(tf.constant(id_rows[rows]), content) - said).numpy()
    tower.assign(ids, parameters[1:])


def _parts(count: int) -> list[slice]:
    return [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
