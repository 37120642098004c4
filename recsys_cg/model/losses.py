"""Losses of a query against its positive and its negatives, one value a query.

s+ is the logit of the positive, s_c that of candidate c; both carry their offsets (`recsys_cg.model.logits`) where
the loss takes a correction. What a loss needs of the candidates is reduced to a number a query beforehand, in chunks
of candidates (`recsys_cg.model.chunked`, `recsys_cg.model.chunked_sums`), so no loss needs memory for more than
queries * ``training.softmax_chunk`` logits. Excluded candidates take no part. Everything is finite, also where no
negative is left.
"""

from __future__ import annotations

from typing import Any, Final

from recsys_cg.model.frameworks import tf

__all__ = ["SUMMED", "margin_loss", "sigmoid_loss", "softmax_loss", "triplet_loss"]

SUMMED: Final = ("softmax", "symmetric")
"""Losses that know the shared candidates by ``sum_c exp(s_c)`` alone, so that copies may be counted in its terms."""


def softmax_loss(positive: Any, negatives: Any) -> Any:
    """Return ``-log(exp(s+) / (exp(s+) + sum_c exp(s_c)))`` as ``softplus(log sum_c exp(s_c) - s+)``.

    InfoNCE (van den Oord et al. 2018, equation 4).

    Args:
        positive: float32 [queries].
        negatives: float32 [queries], log-sum-exp over the negatives.
    """
    return tf.nn.softplus(negatives - positive)


def sigmoid_loss(positive: Any, negatives: Any) -> Any:
    """Return ``-log sigmoid(s+ + b) - sum_c log sigmoid(-(s_c + b))`` (SigLIP, Zhai et al. 2023, equation 1).

    Args:
        positive: float32 [queries], ``s+ + b`` with the learnable bias b.
        negatives: float32 [queries], ``sum_c softplus(s_c + b)``.
    """
    return tf.nn.softplus(-positive) + negatives


def triplet_loss(positive: Any, hardest: Any, *, margin: float) -> Any:
    """Return ``max(0, margin - s+ + max_c s_c)``: the hardest negative only (Hermans et al. 2017, equation 5).

    On unit vectors s is a cosine, and half the squared distance is 1 - s.

    Args:
        positive: float32 [queries], cosines.
        hardest: float32 [queries], the largest cosine of a negative; far below -1 where there is none.
        margin: above 0.
    """
    return tf.nn.relu(margin - positive + hardest)


def margin_loss(hinges: Any, present: Any) -> Any:
    """Return ``mean_c max(0, margin - s+ + s_c)`` over the negatives: the pairwise hinge (Weston et al. 2011).

    Args:
        hinges: float32 [queries], the sum of the hinges.
        present: float32 [queries], number of negatives.
    """
    return hinges / tf.maximum(present, 1.0)
