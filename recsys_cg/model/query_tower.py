"""Query towers: a history of item vectors, time gaps and event types becomes one unit vector at every position.

Every position of a sequence is encoded in one pass: the output at position p has seen positions 0 .. p of the same
segment and nothing else. In training, segments are users packed end to end in one row; when serving, the row is one
user's history and the answer is the output at its last position.

At the start of training the query holds the last item's own vector and a mean of the history: maps that only carry
item vectors through begin as the identity, since queries and items share their space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig
from recsys_cg.model.context import ContextMixer
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.normalisation import l2_normalise, rms_normalise

__all__ = ["GAP_LEVELS", "Block", "QueryTower", "fitting_dropout", "gap_levels", "stateless_dropout"]

GAP_LEVELS: Final = 32
"""Levels of the time gap: level k is 2^k - 1 seconds, the last one 68 years."""

_MASKED: Final = -1e9


def gap_levels(gap_s: Any) -> Any:
    """Spread gaps over levels: hat functions around ``log2(1 + gap_s)``, so that the embedding is continuous.

    Args:
        gap_s: float32 [...], seconds, >= 0.

    Returns:
        float32 [..., GAP_LEVELS], two neighbours at most above zero, summing to one.
    """
    level = tf.minimum(tf.math.log1p(gap_s) * (1.0 / float(np.log(2.0))), GAP_LEVELS - 1.0)
    return tf.nn.relu(1.0 - tf.abs(level[..., None] - tf.range(GAP_LEVELS, dtype=tf.float32)))


def fitting_dropout(counts: NDArray[np.int64]) -> float:
    """Return the dropout for items of ``counts`` [items] training events: 7 over their mean, within 0.05 and 0.5.

    What few events say of an item is soon learned by heart. Validation recall@100 at 0.1, 0.3 and 0.5 was .294, .303
    and .315 on Amazon Beauty (13 events an item) and .394, .412 and .428 on LastFM (14); on MovieLens 100K (50) .716 at
    0.1 and .713 at 0.2; MovieLens 1M (219) learns slower the more is dropped. Items without an event are not counted.
    """
    known = counts[counts > 0]
    return round(float(np.clip(7.0 / known.mean(), 0.05, 0.5)), 2) if len(known) else 0.5


def stateless_dropout(values: Any, rate: float, seed: Any, place: int) -> Any:
    """Drop ``rate`` of ``values`` as a pure function of ``seed`` (int32 [2]) and ``place``; None: drop nothing.

    Four values share a random word, a byte each, so the rate is rounded to a multiple of 1/256.
    """
    steps = round(256 * rate)
    if seed is None or steps == 0:
        return values
    folded = tf.random.experimental.stateless_fold_in(seed, place)
    words = tf.random.stateless_uniform([-(-tf.size(values) // 4)], folded, minval=None, maxval=None, dtype=tf.int32)
    bytes_drawn = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[: tf.size(values)]
    kept = tf.cast(tf.reshape(bytes_drawn, tf.shape(values)) >= steps, values.dtype)
    return values * kept * (256.0 / (256 - steps))


class QueryTower(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Encode histories; see the module's docstring.

    Args:
        config: encoder kind, dim, blocks, heads, dropout (None: none).
        events: number of event types.
        max_length: longest row, in positions.
        context: of each context feature, int64 [codes], training events of each code.
        dtype: Keras dtype or mixed-precision policy; None: float32.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        events: int,
        max_length: int,
        context: Sequence[NDArray[np.int64]] = (),
        dtype: Any = None,
    ) -> None:
        super().__init__(name="query_tower", dtype=dtype)
        self._dropout = config.dropout or 0.0
        self._max_length = max_length
        width = config.dim
        self._event = self.add_weight("event", [events, width], initializer=_normal(0.02))
        self._gap = self.add_weight("gap", [GAP_LEVELS, width], initializer=_normal(0.02))
        self._empty = self.add_weight("empty", [width], initializer=_normal(1.0))
        self._scale = self.add_weight("scale", [width], initializer="ones")
        self._mixers = [
            Block(config, max_length=max_length, dtype=dtype, name=f"block_{index}")
            for index in range(config.blocks if config.query_encoder == "transformer" else 1)
        ]
        self._out = keras.layers.Dense(width, use_bias=False, dtype=dtype, name="out", kernel_initializer="identity")
        self._context: ContextMixer | None = None
        if context:
            self._context = ContextMixer(context, width=width, dropout=config.context_dropout, dtype=dtype)

    @property
    def context(self) -> int:
        """Number of context features."""
        return 0 if self._context is None else self._context.features

    def call(self, history: Any, gap_s: Any, event: Any, segment: Any = None, seed: Any = None) -> Any:
        """Encode every position; where there are context features, as if nothing of the context were known.

        Args:
            history: float32 [rows, length, dim], history vectors.
            gap_s: float32 [rows, length], seconds to the next event, or to the query; 0 among tied events.
            event: int32 [rows, length], event codes.
            segment: int32 [rows, length], positions see their own segment only; None: the row is one segment.
            seed: int32 [2] for dropout; None: no dropout.

        Returns:
            float32 [rows, length, dim], unit norm.
        """
        return self.finish(self.states(history, gap_s, event, segment, seed))

    def states(self, history: Any, gap_s: Any, event: Any, segment: Any = None, seed: Any = None) -> Any:
        """Return what every position knows of its history, [rows, length, dim]; arguments as `call`."""
        hidden = stateless_dropout(self._tokens(history, gap_s, event), self._dropout, seed, 0)
        visible = _visible(_length_of(history), segment)
        for index, mixer in enumerate(self._mixers):
            hidden = mixer(hidden, visible, seed=seed, place=10 * (index + 1))
        return hidden

    def finish(self, states: Any, context: Any = None, seed: Any = None) -> Any:
        """Turn states into queries.

        Args:
            states: [..., dim], of `states`; [queries, dim] where ``context`` is given.
            context: int32 [queries, features], context codes; None: nothing is known.
            seed: int32 [2] for context dropout; None: no dropout.

        Returns:
            float32 of the shape of ``states``, unit norm.
        """
        if self._context is not None:
            states = self._context(states, context, seed=seed)
        return l2_normalise(_dense(self._out, rms_normalise(states, self._scale)))

    def _tokens(self, history: Any, gap_s: Any, event: Any) -> Any:
        dtype = self.compute_dtype
        tokens = tf.cast(history, dtype) + tf.gather(tf.cast(self._event, dtype), event)
        gap = tf.cast(self._gap, dtype)
        return tokens + _dense(lambda levels: tf.linalg.matmul(levels, gap), tf.cast(gap_levels(gap_s), dtype))

    def empty(self) -> Any:
        """Return the query of an empty history, float32 [dim], unit norm; with context features: its state, [dim]."""
        return l2_normalise(self._empty) if self._context is None else tf.cast(self._empty, self.compute_dtype)

    def encode_last(self, history: Any, gap_s: Any, event: Any, length: Any, context: Any = None) -> Any:
        """Encode left-aligned histories: what `call` gives at the last position, and then the context.

        It takes about half of the work: the last block computes that position only.

        Args:
            history: float32 [rows, length, dim], history vectors, oldest first.
            gap_s: float32 [rows, length], seconds to the next event, or to the query.
            event: int32 [rows, length], event codes.
            length: int32 [rows], positions of each history, 0 .. length of the row.
            context: int32 [rows, features], context codes; None: nothing is known.

        Returns:
            float32 [rows, dim], unit norm.
        """
        hidden = self._tokens(history, gap_s, event)
        visible = _visible(_length_of(history), None)
        for mixer in self._mixers[:-1]:
            hidden = mixer(hidden, visible)
        picked = self._mixers[-1].call_at(hidden, tf.maximum(length - 1, 0))
        if self._context is None:
            picked = self.finish(picked)
        is_empty = tf.cast(tf.equal(length, 0), picked.dtype)[:, None]
        picked = picked * (1.0 - is_empty) + self.empty() * is_empty
        return picked if self._context is None else self.finish(picked, context)


class Block(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Mix positions, then transform each: pre-normalised, residual.

    The transformer mixes by multi-head attention with a learned bias per head and distance (Raffel et al. 2020);
    ``recency`` by that bias alone, so the weight of an event depends on how many events came after it; ``mean`` by
    equal weights.
    """

    def __init__(self, config: ModelConfig, *, max_length: int, dtype: Any, name: str) -> None:
        super().__init__(name=name, dtype=dtype)
        width, self._heads = config.dim, config.heads
        self._kind = config.query_encoder
        self._dropout = config.dropout or 0.0
        self._max_length = max_length
        self._mix_scale = self.add_weight("mix_scale", [width], initializer="ones")
        self._feed_scale = self.add_weight("feed_scale", [width], initializer="ones")
        if self._kind != "mean":
            self._bias = self.add_weight("distance_bias", [self._heads, max_length], initializer="zeros")
        if self._kind == "transformer":
            self._query_key = keras.layers.Dense(2 * width, use_bias=False, dtype=dtype, name="query_key")
        self._value = keras.layers.Dense(
            width, use_bias=False, dtype=dtype, name="value", kernel_initializer="identity"
        )
        self._merge = keras.layers.Dense(
            width, use_bias=False, dtype=dtype, name="merge", kernel_initializer="identity"
        )
        self._up = keras.layers.Dense(2 * width, dtype=dtype, name="up")
        self._down = keras.layers.Dense(width, dtype=dtype, name="down")

    def call(self, hidden: Any, visible: Any, seed: Any = None, place: int = 0) -> Any:
        """Transform [rows, length, dim]; position i sees j where ``visible`` [rows or 1, 1, length, length] is true."""
        mixed = self._mix(rms_normalise(hidden, self._mix_scale), visible)
        hidden += stateless_dropout(mixed, self._dropout, seed, place)
        return hidden + stateless_dropout(self._feed(hidden), self._dropout, seed, place + 1)

    def call_at(self, hidden: Any, position: Any) -> Any:
        """Transform [rows, length, dim] at ``position`` int32 [rows] alone, which sees 0 .. position: [rows, dim].

        Keys and values of the other positions are never made: ``q . (x K) = (q K^T) . x``, and a weighted sum of
        ``x V`` is ``V`` of the weighted sum of ``x``. Needs a block that `call` has built.
        """
        length = _length_of(hidden)
        picked = tf.linalg.matmul(tf.one_hot(position, length, dtype=hidden.dtype)[:, None, :], hidden)[:, 0, :]
        normal = rms_normalise(hidden, self._mix_scale)
        distance = position[:, None] - tf.range(length)[None, :]
        scores = tf.zeros([1, 1, 1], tf.float32)
        if self._kind == "transformer":
            asked = self._asked(rms_normalise(picked, self._mix_scale))
            scores += tf.cast(tf.linalg.matmul(asked, normal, transpose_b=True), tf.float32)
        if self._kind != "mean":
            bias = tf.gather(tf.transpose(self._bias), tf.maximum(distance, 0))
            scores += tf.cast(tf.transpose(bias, [0, 2, 1]), tf.float32)
        shares = tf.nn.softmax(tf.where((distance >= 0)[:, None, :], scores, _MASKED), axis=-1)
        mixed = self._values_of(tf.linalg.matmul(tf.cast(shares, hidden.dtype), normal))
        picked += self._merge(mixed)
        return picked + self._feed(picked)

    def _feed(self, hidden: Any) -> Any:
        return _dense(lambda flat: self._down(tf.nn.relu(self._up(flat))), rms_normalise(hidden, self._feed_scale))

    def _asked(self, picked: Any) -> Any:
        """Return what each head looks for, [rows, heads, dim]: its query through its key weights."""
        width = picked.shape[-1]
        size = width // self._heads
        kernel = tf.cast(self._query_key.kernel, picked.dtype)
        query = tf.linalg.matmul(picked, kernel[:, :width]) * (size**-0.5)
        parts = [slice(head * size, (head + 1) * size) for head in range(self._heads)]
        keys = kernel[:, width:]
        return tf.stack([tf.linalg.matmul(query[:, part], keys[:, part], transpose_b=True) for part in parts], axis=1)

    def _values_of(self, pooled: Any) -> Any:
        """Return [rows, dim]: each head's part of the values of its ``pooled`` [rows, heads or 1, dim]."""
        size = pooled.shape[-1] // self._heads
        kernel = tf.cast(self._value.kernel, pooled.dtype)
        shared = self._kind == "mean"
        parts = [
            tf.linalg.matmul(pooled[:, 0 if shared else head, :], kernel[:, head * size : (head + 1) * size])
            for head in range(self._heads)
        ]
        return tf.concat(parts, axis=-1)

    def _mix(self, hidden: Any, visible: Any) -> Any:
        length, width = _length_of(hidden), hidden.shape[-1]
        size = width // self._heads
        value = _split_heads(_dense(self._value, hidden), length, self._heads, size)
        scores = tf.zeros([1, 1, 1, 1], hidden.dtype)
        if self._kind == "transformer":
            query, key = tf.split(_dense(self._query_key, hidden), 2, axis=-1)
            query = _split_heads(query, length, self._heads, size) * (size**-0.5)
            key = _split_heads(key, length, self._heads, size)
            scores = tf.linalg.matmul(query, key, transpose_b=True)
        if self._kind != "mean":
            scores += tf.cast(self._distance_bias(length), hidden.dtype)[None]
        scores = tf.where(visible, tf.cast(scores, tf.float32), _MASKED)
        shares = tf.cast(tf.nn.softmax(scores, axis=-1), hidden.dtype)
        if self._kind != "transformer":
            shares = tf.broadcast_to(shares, [tf.shape(hidden)[0], self._heads, length, length])
        mixed = tf.transpose(tf.linalg.matmul(shares, value), [0, 2, 1, 3])
        return _dense(self._merge, tf.reshape(mixed, [-1, length, width]))

    def _distance_bias(self, length: Any) -> Any:
        places = tf.range(length)
        distance = tf.maximum(places[:, None] - places[None, :], 0)
        return tf.gather(self._bias, distance, axis=1)


def _length_of(hidden: Any) -> Any:
    """Return the positions of a row: a number where the graph knows it, as when exporting, so that shapes fold away."""
    return hidden.shape[1] if hidden.shape[1] is not None else tf.shape(hidden)[1]


def _dense(layer: Any, values: Any) -> Any:
    """Apply ``layer`` to every vector of [rows, length, width] or [rows, width], as one flat matrix.

    Keras flattens, too, but by shapes computed as the graph runs: in LiteRT they cost as much as the multiplication,
    and cut the graph into pieces.
    """
    if len(values.shape) == 2:
        return layer(values)
    flat = layer(tf.reshape(values, [-1, values.shape[-1]]))
    return tf.reshape(flat, [-1, _length_of(values), flat.shape[-1]])


def _split_heads(values: Any, length: Any, heads: int, size: int) -> Any:
    return tf.transpose(tf.reshape(values, [-1, length, heads, size]), [0, 2, 1, 3])


def _visible(length: Any, segment: Any) -> Any:
    places = tf.range(length)
    causal = (places[None, :] <= places[:, None])[None, None]
    if segment is None:
        return causal
    return causal & tf.equal(segment[:, None, :, None], segment[:, None, None, :])


def _normal(deviation: float) -> Any:
    return keras.initializers.RandomNormal(stddev=deviation)
