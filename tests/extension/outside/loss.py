"""A loss."""

from __future__ import annotations

from typing import Any

from recsys_cg.model.frameworks import tf


def squared_hinge(positive: Any, logits: Any, excluded: Any, *, margin: float = 1.0) -> Any:
    """Return the mean squared hinge of each query over its negatives."""
    present = tf.cast(~excluded, tf.float32)
    hinge = tf.square(tf.nn.relu(margin - positive[:, None] + tf.where(excluded, 0.0, logits))) * present
    return tf.reduce_sum(hinge, axis=1) / tf.maximum(tf.reduce_sum(present, axis=1), 1.0)


def summed(positive: Any, logits: Any, excluded: Any) -> Any:
    """Forget that there is a value a query."""
    return tf.reduce_sum(squared_hinge(positive, logits, excluded))


def undefined(positive: Any, logits: Any, excluded: Any) -> Any:
    """Forget that every candidate may be excluded."""
    del logits
    return positive / tf.reduce_sum(tf.cast(~excluded, tf.float32), axis=1)
