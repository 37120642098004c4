"""The temperature: fixed, or learned in log space within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsys_cg.config import ModelConfig
from recsys_cg.model.frameworks import keras, tf

__all__ = ["Temperature"]


class Temperature(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Hold ``log T``; learned, it is put back within its bounds after each update.

    Args:
        config: temperature, learn_temperature, temperature_min, temperature_max.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(name="temperature")
        low, high = np.log(config.temperature_min), np.log(config.temperature_max)
        self.log = self.add_weight(
            "log",
            [],
            initializer=keras.initializers.Constant(np.log(config.temperature)),
            trainable=config.learn_temperature,
            constraint=lambda value: tf.clip_by_value(value, low, high),
        )

    def value(self) -> Any:
        """Return T, float32 scalar above 0."""
        return tf.exp(self.log)
