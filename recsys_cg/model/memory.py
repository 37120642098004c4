"""Negatives with state: vectors of earlier steps, what was mined last, and frequencies estimated from the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.negatives import BatchEvents, Draw, Shares, log_shares

__all__ = ["CrossBatchMemory", "Mined", "StreamingFrequency"]


class CrossBatchMemory(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Candidates whose vectors were computed in the last steps (cross-batch memory, Wang et al. 2020).

    A first-in first-out queue of ``count`` (item, vector) pairs. Every step adds ``count / max_age`` of its events,
    drawn without replacement, so no vector is more than ``max_age`` steps old. Vectors carry no gradient. An event of
    a step is item i with probability q(i), so the expected count of i among n remembered ones is ``n * q(i)``.

    Args:
        log_q: as for `recsys_cg.model.negatives.InBatch`.
        count: candidates remembered.
        max_age: steps that a vector stays, 1 .. count.
        dim: length of a vector.
    """

    def __init__(self, log_q: Shares, *, count: int, max_age: int, dim: int) -> None:
        super().__init__(name="cross_batch")
        self._log_q = log_q
        self._added = max(count // max_age, 1)
        self._size = self._added * max_age
        fixed: dict[str, Any] = {"trainable": False, "initializer": "zeros"}
        self._items = self.add_weight("items", [self._size], dtype=tf.int32, **fixed)
        self._filled = self.add_weight("filled", [self._size], dtype=tf.bool, **fixed)
        self._vectors = self.add_weight("vectors", [self._size, dim], **fixed)
        self._turn = self.add_weight("turn", [], dtype=tf.int32, **fixed)

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """See `recsys_cg.model.negatives.Sampler.sample`."""
        del batch, seed
        filled = tf.identity(self._filled)
        count = tf.reduce_sum(tf.cast(filled, tf.float32))
        return Draw(tf.identity(self._items), filled, count, tf.identity(self._vectors))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """See `recsys_cg.model.negatives.Sampler.log_expected_count`."""
        return self._log_q(items) + tf.math.log(draw.count)

    def remember(self, batch: BatchEvents, vectors: Any, seed: Any) -> None:
        """Replace the oldest candidates by events of this step.

        Args:
            batch: the step's events.
            vectors: float32 [events, dim], unit norm.
            seed: int32 [2], chooses the events.
        """
        order = tf.random.stateless_uniform(tf.shape(batch.items), seed) + tf.cast(~batch.valid, tf.float32)
        places = tf.math.top_k(-order, self._added).indices
        slots = (tf.range(self._added) + self._turn * self._added) % self._size

        def put(variable: Any, values: Any) -> None:
            variable.assign(tf.tensor_scatter_nd_update(variable, slots[:, None], tf.gather(values, places)))

        put(self._items, batch.items)
        put(self._filled, batch.valid)
        put(self._vectors, tf.stop_gradient(vectors))
        self._turn.assign((self._turn + 1) % (self._size // self._added))


class StreamingFrequency(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Estimate how often an item turns up from the events themselves (Yi et al. 2019, algorithm 2).

    For input that does not end, or whose counts are not known. The clock t counts events. When item y turns up:
    ``B[y] = (1 - rate) * B[y] + rate * (t - A[y])`` and ``A[y] = t``, so B tends to the mean number of events from one
    y to the next, and q(y) is estimated as 1 / B[y]. Items have rows of their own, so nothing is hashed.

    Args:
        items: number of items; B starts at it, as if all were alike.
        rate: weight of the newest gap, in (0, 1).
    """

    def __init__(self, items: int, *, rate: float) -> None:
        super().__init__(name="streaming_frequency")
        self._rate = rate
        start = keras.initializers.Constant(float(items))
        self._last = self.add_weight("last", [items], dtype=tf.float64, trainable=False, initializer="zeros")
        self._gap = self.add_weight("gap", [items], dtype=tf.float64, trainable=False, initializer=start)
        self._clock = self.add_weight("clock", [], dtype=tf.float64, trainable=False, initializer="zeros")

    def observe(self, batch: BatchEvents) -> None:
        """Take in the events of a step, in their order; the same as one at a time."""
        items = tf.boolean_mask(batch.items, batch.valid)
        times = self._clock + tf.cast(tf.range(1, tf.size(items) + 1), tf.float64)
        order = tf.argsort(items, stable=True)
        ordered, at = tf.gather(items, order), tf.gather(times, order)
        is_first = tf.concat([[True], ordered[1:] != ordered[:-1]], axis=0)[: tf.size(items)]
        gaps = at - tf.where(is_first, tf.gather(self._last, ordered), tf.roll(at, 1, axis=0))
        distinct, place, repeats = tf.unique_with_counts(ordered)
        rank = tf.range(tf.size(ordered)) - tf.gather(tf.cumsum(repeats, exclusive=True), place)
        later = tf.cast(tf.gather(repeats, place) - rank - 1, tf.float64)
        kept = tf.constant(1.0 - self._rate, tf.float64)
        added = tf.math.unsorted_segment_sum(self._rate * kept**later * gaps, place, tf.size(distinct))
        faded = kept ** tf.cast(repeats, tf.float64) * tf.gather(self._gap, distinct)
        newest = tf.math.unsorted_segment_max(at, place, tf.size(distinct))
        self._gap.assign(tf.tensor_scatter_nd_update(self._gap, distinct[:, None], faded + added))
        self._last.assign(tf.tensor_scatter_nd_update(self._last, distinct[:, None], newest))
        self._clock.assign_add(tf.cast(tf.size(items), tf.float64))

    def log_q(self, items: Any) -> Any:
        """Return the log of the estimated share of ``items`` int32 [m], float32 [m], at most 0."""
        return tf.cast(-tf.math.log(tf.maximum(tf.gather(self._gap, items), 1.0)), tf.float32)


class Mined(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Draw with replacement from what `recsys_cg.model.mining` found last; nothing before the first mining.

    Args:
        items: number of items.
        count: candidates a step.
        warmup_epochs: epochs before the first mining.
        band: ranks (first, last), from 1, that are mined.
    """

    def __init__(self, items: int, *, count: int, warmup_epochs: int, band: tuple[int, int]) -> None:
        super().__init__(name="mined")
        self.warmup_epochs, self.band = warmup_epochs, band
        self._count = count
        fixed: dict[str, Any] = {"trainable": False, "initializer": "zeros"}
        self._cumulative = self.add_weight("cumulative", [items], dtype=tf.float64, **fixed)
        self._log_q = self.add_weight("log_q", [items], **fixed)
        self._ready = self.add_weight("ready", [], dtype=tf.bool, **fixed)

    def assign(self, counts: NDArray[np.int64]) -> None:
        """Make ``counts`` int64 [items] the proposal; all zero: draw nothing."""
        ready = bool(counts.any())
        if ready:
            logs = log_shares(counts)
            cumulative = np.cumsum(np.exp(logs))
            self._log_q.assign(logs)
            self._cumulative.assign(cumulative / cumulative[-1])
        self._ready.assign(ready)

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """See `recsys_cg.model.negatives.Sampler.sample`."""
        del batch
        ready = tf.identity(self._ready)
        uniform = tf.random.stateless_uniform([self._count], seed, dtype=tf.float64)
        items = tf.searchsorted(tf.identity(self._cumulative), uniform, side="right")
        items = tf.minimum(items, self._cumulative.shape[0] - 1)
        return Draw(items, tf.fill([self._count], ready), tf.where(ready, float(self._count), 0.0))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """See `recsys_cg.model.negatives.Sampler.log_expected_count`."""
        return tf.gather(self._log_q, items) + tf.math.log(draw.count)
