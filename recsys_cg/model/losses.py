"""Losses of a query against its positive and its negatives, one value a query.

s+ is the logit of the positive, s_c that of candidate c; both carry their offsets (`recsys_cg.model.logits`) where
the loss takes a correction. Excluded candidates take no part. Everything is finite, also where no negative is left.
"""

from __future__ import annotations

from typing import Any

from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import EXCLUDED

__all__ = ["margin_loss", "sigmoid_loss", "softmax_loss", "triplet_loss"]


def softmax_loss(positive: Any, negatives: Any) -> Any:
    """Return ``-log(exp(s+) / (exp(s+) + sum_c exp(s_c)))`` as ``softplus(log sum_c exp(s_c) - s+)``.

    InfoNCE (van den Oord et al. 2018, equation 4).

    Args:
        positive: float32 [queries].
        negatives: float32 [queries], log-sum-exp over the negatives.
    """
    return tf.nn.softplus(negatives - positive)


def sigmoid_loss(positive: Any, logits: Any, excluded: Any, bias: Any) -> Any:
    """Return ``-log sigmoid(s+ + b) - sum_c log sigmoid(-(s_c + b))`` (SigLIP, Zhai et al. 2023, equation 1).

    Args:
        positive: float32 [queries].
        logits: float32 [queries, candidates].
        excluded: bool [queries, candidates].
        bias: float32 scalar b, learnable.
    """
    against = tf.where(excluded, 0.0, tf.nn.softplus(tf.where(excluded, 0.0, logits) + bias))
    return tf.nn.softplus(-(positive + bias)) + tf.reduce_sum(against, axis=1)


def triplet_loss(positive: Any, similarities: Any, excluded: Any, *, margin: float) -> Any:
    """Return ``max(0, margin - s+ + max_c s_c)``: the hardest negative only (Hermans et al. 2017, equation 5).

    On unit vectors s is a cosine, and half the squared distance is 1 - s.

    Args:
        positive: float32 [queries], cosines.
        similarities: float32 [queries, candidates], cosines.
        excluded: bool [queries, candidates].
        margin: above 0.
    """
    hardest = tf.reduce_max(tf.where(excluded, EXCLUDED, similarities), axis=1)
    return tf.nn.relu(margin - positive + hardest)


def margin_loss(positive: Any, similarities: Any, excluded: Any, *, margin: float) -> Any:
    """Return ``mean_c max(0, margin - s+ + s_c)`` over the negatives: the pairwise hinge (Weston et al. 2011).

    Arguments as `triplet_loss`.
    """
    present = tf.cast(~excluded, tf.float32)
    hinge = tf.nn.relu(margin - positive[:, None] + tf.where(excluded, 0.0, similarities)) * present
    return tf.reduce_sum(hinge, axis=1) / tf.maximum(tf.reduce_sum(present, axis=1), 1.0)
