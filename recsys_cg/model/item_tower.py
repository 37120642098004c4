"""The item tower: an item's id and content, all linear, become one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig
from recsys_cg.data.arrays import ContentFeature, column_name, is_embedded
from recsys_cg.extensions import is_extension
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.normalisation import l2_normalise

__all__ = ["ItemTower"]


class ItemTower(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Embed items as ``e = id_table[id_row] + sum over features of content``.

    A list of entries contributes the sum of its embeddings over the square root of their number, so that a long list
    does not drown a short one; floats contribute a linear map. Row 0 of the id table stands for every unknown item, of
    which only the content is known: one that training never met, be it in the catalogue already or not. It is fitted
    with the content when training has ended (`recsys_cg.model.content_fit`); with ``id_dropout`` training looks it up,
    too, in place of the own id in that share of the cases.

    Args:
        config: dim and id_dropout.
        features: the fitted content features.
        items: number of items with an own id.
        start: float32 [items + 1, dim], where ids begin; rows and columns of zeros, and all of it if None, are drawn.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        features: Sequence[ContentFeature],
        items: int,
        start: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(name="item_tower")
        self._features = tuple(features)
        self._id_dropout = config.id_dropout
        deviation = config.dim**-0.5
        own = keras.initializers.RandomNormal(stddev=deviation)
        if start is not None:
            own = _begin_at(start, own)
        self.id_table = self.add_weight("id_table", [items + 1, config.dim], initializer=own)
        self._tables: dict[str, Any] = {}
        for feature in self._features:
            rows = feature.size if is_embedded(feature) else feature.width
            spread = keras.initializers.RandomNormal(stddev=0.25 * deviation)
            self._tables[column_name(feature)] = self.add_weight(
                f"{_word(feature)}_{feature.name}", [rows, config.dim], initializer=spread
            )

    def call(self, id_row: Any, content: Mapping[str, Any], seed: Any = None) -> Any:
        """Embed items, not normalised.

        Args:
            id_row: int32 [n], 0 for an unknown item, 1 .. items for those with an own id.
            content: ``f_<name>`` -> int32 [n, max_values] or float32 [n, width].
            seed: int32 [2] for id dropout; None: keep every id.

        Returns:
            float32 [n, dim].
        """
        if seed is not None and self._id_dropout > 0.0:
            kept = tf.random.stateless_uniform(tf.shape(id_row), seed) >= self._id_dropout
            id_row = tf.where(kept, id_row, 0)
        return self.add_content(tf.gather(self.id_table, id_row), content)

    def add_content(self, embedded: Any, content: Mapping[str, Any]) -> Any:
        """Return ``embedded``, float32 [n, dim] or [1, dim], with what the content of n items adds to it."""
        return self.content_vectors(content, [embedded, *self._tables.values()])

    @property
    def content_columns(self) -> list[str]:
        """Columns of the features, in the order of their tables."""
        return [column_name(feature) for feature in self._features]

    def content_vectors(self, content: Mapping[str, Any], parameters: Sequence[Any]) -> Any:
        """Return ``parameters[0]`` with what the content of n items adds to it by the tables behind it.

        Args:
            content: as of `call`.
            parameters: float32 [1, dim] or [n, dim], and a table for each feature, as `content_parameters` gives them.

        Returns:
            float32 [n, dim]; ``parameters[0]`` itself where there is no feature.
        """
        embedded, *tables = parameters
        for feature, table in zip(self._features, tables, strict=True):
            add = _embed_entries if is_embedded(feature) else tf.linalg.matmul
            embedded += add(content[column_name(feature)], table)
        return embedded

    def content_parameters(self) -> list[Any]:
        """Return what gives an unknown item its vector: its id's row, float32 [1, dim], and each feature's table."""
        return [self.id_table[:1], *(tf.convert_to_tensor(table) for table in self._tables.values())]

    def assign(self, ids: Any, tables: Sequence[Any]) -> None:
        """Set the table of ids, float32 [items + 1, dim], and that of each feature."""
        self.id_table.assign(ids)
        for table, value in zip(self._tables.values(), tables, strict=True):
            table.assign(value)

    def content_squares(self, content: Mapping[str, Any], weights: Any) -> list[Any]:
        """Return, for each row of `content_parameters`, the weighted sum of squares that items multiply it by.

        Entries are counted apart: two of an item that share a hash bucket add two squares, not the square of a sum.

        Args:
            content: as of `call`.
            weights: float32 [n].

        Returns:
            float32 [rows, 1] for each.
        """
        squares = [tf.reshape(tf.reduce_sum(weights), [1, 1])]
        for feature, table in zip(self._features, self._tables.values(), strict=True):
            values = content[column_name(feature)]
            if is_embedded(feature):
                places = tf.where(values > 0)
                number = tf.math.count_nonzero(values, axis=1, dtype=tf.float32)
                shares = tf.gather(weights / tf.maximum(number, 1.0), places[:, 0])
                summed = tf.math.unsorted_segment_sum(shares, tf.gather_nd(values, places), table.shape[0])
            else:
                summed = tf.linalg.matvec(tf.square(values), weights, transpose_a=True)
            squares.append(summed[:, None])
        return squares

    def vectors(self, id_row: Any, content: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return (vector of unit norm, history vector), both float32 [n, dim]."""
        embedded = self.call(id_row, content)
        return l2_normalise(embedded), embedded


def _begin_at(start: NDArray[np.float32], elsewhere: Any) -> Any:
    """Return an initialiser by ``start``; its rows and columns of zeros are drawn as ``elsewhere`` draws them."""
    is_placed = np.any(start, axis=1, keepdims=True) & np.any(start, axis=0, keepdims=True)

    def draw(shape: Any, dtype: Any = None, **_: Any) -> Any:
        if tuple(shape) != start.shape:
            raise ValueError(f"start has shape {start.shape}, ids {tuple(shape)}")
        return tf.where(is_placed, start, elsewhere(shape, dtype=dtype))

    return draw


def _word(feature: ContentFeature) -> str:
    """Return the feature's kind as a part of a variable's name, which may hold no colon."""
    return "own" if is_extension(feature.kind) else feature.kind


def _embed_entries(entries: Any, table: Any) -> Any:
    """Sum the embeddings of entries above 0, over the square root of their number; padding costs nothing."""
    places = tf.where(entries > 0)
    found = tf.gather(table, tf.gather_nd(entries, places))
    summed = tf.math.unsorted_segment_sum(found, places[:, 0], tf.shape(entries)[0])
    number = tf.math.count_nonzero(entries, axis=1, keepdims=True, dtype=tf.float32)
    return summed * tf.math.rsqrt(tf.maximum(number, 1.0))
