"""A source of negatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.model.frameworks import tf
from recsys_cg.model.negatives import BatchEvents, Draw


class EveryOther:
    """Draw, with replacement, among the items of even row only, every one alike, and say so."""

    name = "every_other"

    def __init__(self, *, counts: NDArray[np.int64], count: int, step: int = 2) -> None:
        self._drawn = np.arange(0, len(counts), step, dtype=np.int32)
        self._step, self._count = step, count

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        del batch
        places = tf.random.stateless_uniform([self._count], seed, maxval=len(self._drawn), dtype=tf.int32)
        items = tf.gather(tf.constant(self._drawn), places)
        return Draw(items, tf.ones([self._count], tf.bool), tf.constant(float(self._count)))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        each = tf.math.log(draw.count / len(self._drawn))
        return tf.where(items % self._step == 0, each, -np.inf)
