"""The projection head: what the loss sees instead of the vectors, and what export leaves behind."""

from __future__ import annotations

from typing import Any

from recsys_cg.config import ModelConfig
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.normalisation import l2_normalise

__all__ = ["ProjectionHead"]


class ProjectionHead(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """Map unit vectors of both towers to those that the loss compares: ``l2(W2 relu(W1 x))``.

    SimCLR (Chen et al. 2020, section 4.2): a loss on the output of a small head lets the vectors before it keep what
    the loss would have thrown away. One head serves queries and items, so equal vectors stay equal behind it.

    What is searched, served, watched for collapse and validated are the vectors *before* the head; it is no part of
    either tower, and export writes the towers. So the price must be known: the softmax, its temperature and its logQ
    correction hold for similarities behind the head. There the sampled denominator is as unbiased as without a head
    (the proof asks nothing of the scores), but no statement carries over to the cosines of the exported vectors: their
    ranking agrees with the trained one only as far as the head keeps order, and ``temperature`` in encoder.json does
    not turn them into probabilities. `RecallProbe` and the geometry judge the exported vectors, and early stopping
    with them.

    Args:
        config: dim, the width of both towers, and projection_head, the width of the output.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(name="projection_head")
        self._hidden = self.add_weight("hidden", [config.dim, config.dim], initializer=_spread())
        self._bias = self.add_weight("bias", [config.dim], initializer="zeros")
        self._out = self.add_weight("out", [config.dim, config.projection_head], initializer=_spread())

    def call(self, vectors: Any) -> Any:
        """Project ``vectors`` float32 [..., dim] of unit norm: float32 [..., projection_head], unit norm."""
        hidden = tf.nn.relu(tf.tensordot(vectors, self._hidden, axes=1) + self._bias)
        return l2_normalise(tf.tensordot(hidden, self._out, axes=1))


def _spread() -> Any:
    return keras.initializers.VarianceScaling(2.0, mode="fan_in")
