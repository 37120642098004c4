"""The one L2 normalisation, inside a graph: equal to `recsys_cg.geometry.l2_normalise`."""

from __future__ import annotations

from typing import Any

from recsys_cg.geometry import NORM_EPSILON
from recsys_cg.model.frameworks import tf

__all__ = ["l2_normalise", "rms_normalise"]


def l2_normalise(vectors: Any) -> Any:
    """Return ``x / sqrt(max(sum(x^2), 1e-12))`` along the last axis, in float32; a zero vector stays zero."""
    wide = tf.cast(vectors, tf.float32)
    squared = tf.reduce_sum(tf.square(wide), axis=-1, keepdims=True)
    return wide * tf.math.rsqrt(tf.maximum(squared, NORM_EPSILON))


def rms_normalise(vectors: Any, scale: Any) -> Any:
    """Return ``scale * x / sqrt(mean(x^2) + 1e-6)`` along the last axis (Zhang and Sennrich 2019, RMSNorm)."""
    mean_square = tf.reduce_mean(tf.square(tf.cast(vectors, tf.float32)), axis=-1, keepdims=True)
    return vectors * tf.cast(tf.math.rsqrt(mean_square + 1e-6), vectors.dtype) * tf.cast(scale, vectors.dtype)
