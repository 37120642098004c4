"""Context in the query tower: what is known when a query is asked joins what its history says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.normalisation import rms_normalise

__all__ = ["ContextMixer"]

_DROPOUT_PLACE = 1_000


class ContextMixer(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Add what context codes stand for to the normalised state of a history, then transform the sum.

    The rows of codes start as large as a state: from rows near zero neither they nor the items would learn of each
    other for a long while, since each learns through the other.

    Code 0 adds nothing, and neither does a code that training never met, such as a hash bucket of its own: it changes
    a query as little as a value that is not given. In training a share of the queries sees no context at all, and of
    the others each feature is hidden with the same share, so that the tower answers without it too.

    Args:
        counts: of each feature, int64 [codes], training events of each code from 0 on.
        width: length of a state.
        dropout: the share, in [0, 1).
        dtype: Keras dtype or mixed-precision policy; None: float32.
    """

    def __init__(self, counts: Sequence[NDArray[np.int64]], *, width: int, dropout: float, dtype: Any = None) -> None:
        super().__init__(name="context", dtype=dtype)
        self.features = len(counts)
        self._rate = dropout
        self._starts = tf.constant(np.cumsum([0, *map(len, counts[:-1])]), tf.int32)
        met = np.concatenate(counts) > 0
        rows = _spread_over(met, len(counts) ** -0.5)
        self._table = self.add_weight("codes", [len(met), width], initializer=rows)
        self._state_scale = self.add_weight("state_scale", [width], initializer="ones")
        self._scale = self.add_weight("scale", [width], initializer="ones")
        self._up = keras.layers.Dense(2 * width, dtype=dtype, name="up")
        self._down = keras.layers.Dense(width, dtype=dtype, name="down")

    def call(self, states: Any, codes: Any, seed: Any = None) -> Any:
        """Join states and context.

        Args:
            states: [queries, width], of the histories.
            codes: int32 [queries, features]; None: nothing is known.
            seed: int32 [2] for context dropout; None: no dropout.

        Returns:
            [queries, width].
        """
        states = rms_normalise(states, self._state_scale)
        if codes is not None:
            states += self._embed(self._hide(codes, seed))
        return states + self._down(tf.nn.relu(self._up(rms_normalise(states, self._scale))))

    def _embed(self, codes: Any) -> Any:
        rows = tf.gather(self._table, codes + self._starts)
        known = tf.cast(codes > 0, self.compute_dtype)[..., None]
        return tf.reduce_sum(tf.cast(rows, self.compute_dtype) * known, axis=1)

    def _hide(self, codes: Any, seed: Any) -> Any:
        if seed is None or self._rate == 0.0:
            return codes
        folded = tf.random.experimental.stateless_fold_in(seed, _DROPOUT_PLACE)
        drawn = tf.random.stateless_uniform([tf.shape(codes)[0], self.features + 1], folded) >= self._rate
        return tf.where(drawn[:, 1:] & drawn[:, :1], codes, 0)


def _spread_over(met: NDArray[np.bool_], deviation: float) -> Any:
    """Return an initialiser of rows: normal where ``met``, else zero, where no gradient will ever come."""
    normal = keras.initializers.RandomNormal(stddev=deviation)
    return lambda shape, dtype=None: normal(shape, dtype=dtype) * tf.cast(met[:, None], dtype)
