"""Adam whose cost does not grow with the number of items, and its learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsys_cg.config import TrainingConfig
from recsys_cg.model.frameworks import keras, tf

__all__ = ["SparseAdam", "WarmupCosine", "build_optimizer"]


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc, unused-ignore]
    """Rise linearly to ``peak`` over ``warmup`` steps, then fall along a half cosine to 1% of it at step ``total``.

    Args:
        peak: highest rate.
        warmup: steps of the rise; a fifth of ``total`` where that is smaller.
        total: steps of the whole training.
    """

    def __init__(self, peak: float, warmup: int, total: int) -> None:
        super().__init__()
        self._peak = peak
        self._total = float(max(total, 1))
        self._warmup = max(min(float(warmup), self._total / 5), 1.0)

    def __call__(self, step: Any) -> Any:
        """Return the rate of update number ``step``, counted from 0."""
        done = tf.cast(step, tf.float32) + 1.0
        share = tf.clip_by_value((done - self._warmup) / max(self._total - self._warmup, 1.0), 0.0, 1.0)
        falling = 0.01 + 0.99 * 0.5 * (1.0 + tf.cos(np.pi * share))
        return self._peak * tf.minimum(done / self._warmup, falling)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"peak": self._peak, "warmup": int(self._warmup), "total": int(self._total)}


class SparseAdam(keras.optimizers.Adam):  # type: ignore[misc, unused-ignore]
    """Adam that touches only the rows of a table that had a gradient (LazyAdam).

    Keras's Adam decays the moments of every row at each step, which costs as much as the whole table. Here the
    moments of a row wait until the row comes again.
    """

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Apply one gradient to one variable."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable)
            return
        place = self._index_dict[self._var_key(variable)]
        momentum, velocity = self._momentums[place], self._velocities[place]
        rows, values = gradient.indices, gradient.values
        step = tf.cast(self.iterations + 1, tf.float32)
        rate = self.learning_rate * tf.sqrt(1.0 - tf.pow(self.beta_2, step)) / (1.0 - tf.pow(self.beta_1, step))
        first = tf.gather(momentum, rows)
        first += (values - first) * (1.0 - self.beta_1)
        second = tf.gather(velocity, rows)
        second += (tf.square(values) - second) * (1.0 - self.beta_2)
        momentum.scatter_update(tf.IndexedSlices(first, rows))
        velocity.scatter_update(tf.IndexedSlices(second, rows))
        variable.scatter_sub(tf.IndexedSlices(rate * first / (tf.sqrt(second) + self.epsilon), rows))


def build_optimizer(config: TrainingConfig, *, total_steps: int) -> SparseAdam:
    """Build the optimiser of a training of ``total_steps`` updates."""
    schedule = WarmupCosine(config.learning_rate, config.warmup_steps, total_steps)
    return SparseAdam(learning_rate=schedule, beta_2=0.98, epsilon=1e-8, jit_compile=False)
