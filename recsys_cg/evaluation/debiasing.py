"""Recall that weighs a target by how unlikely it was to be seen at all.

A log holds what was shown and then chosen. Targets that the incumbent shows often are over-represented, so raw recall
flatters systems that repeat it. With ``p_t`` the probability that target t could be observed, the self-normalised
estimator (Swaminathan and Joachims 2015)

    recall_ips@k = sum_t w_t [rank_t < k] / sum_t w_t,    w_t = 1 / (|T_q| max(p_t, clip))

estimates recall over the users' interest, as far as p is right. Where no propensity was logged, it is modelled from
popularity, ``p_i = ((c_i + 1) / max_j (c_j + 1)) ^ exponent`` with training counts c: the family of Yang et al. 2018
("Unbiased offline recommender evaluation for missing-not-at-random implicit feedback"), whose exponent is
(gamma + 1) / 2; the default 0.5 is the choice of Saito et al. 2020. A model of exposure is an assumption, not a
measurement, and the report says which of the two was used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Weights", "effective_sample_size", "popularity_propensity", "weigh"]

Floats = NDArray[np.float64]

_SMALL_SAMPLE = 100.0
_SMALL_SHARE = 0.1


@dataclass(frozen=True)
class Weights:
    """One weight a target, and what a reader must know about them.

    Attributes:
        values: [targets] above 0.
        summary: ``source``, ``clip``, ``clipped_share``, ``effective_sample_size``, ``targets`` and, when the
            estimate leans on few targets, ``warning``.
    """

    values: Floats
    summary: dict[str, Any]


def popularity_propensity(train_counts: NDArray[np.int64], exponent: float) -> Floats:
    """Return [items] relative probabilities of being observed, in (0, 1], 1 for the most popular item."""
    if not len(train_counts):
        return np.zeros(0)
    smoothed = train_counts + 1.0
    result: Floats = (smoothed / smoothed.max()) ** exponent
    return result


def effective_sample_size(weights: Floats) -> float:
    """Return ``(sum w)^2 / sum w^2`` (Kish 1965): the number of equal weights that would be as informative."""
    squared = np.square(weights).sum()
    return float(np.square(weights.sum()) / squared) if squared > 0 else 0.0


def weigh(propensities: Floats, target_counts: NDArray[np.int64], *, clip: float, source: str) -> Weights:
    """Turn the propensity of each target into its weight.

    Args:
        propensities: [targets] in (0, 1].
        target_counts: [targets] number of targets of the target's query, so that each query weighs one in all.
        clip: smallest propensity used; bounds the weight of one target at the price of a bias towards raw recall.
        source: where the propensities come from, for the report.
    """
    values = 1.0 / (target_counts * np.maximum(propensities, clip))
    size = effective_sample_size(values)
    summary: dict[str, Any] = {
        "source": source,
        "clip": clip,
        "clipped_share": float((propensities < clip).mean()) if len(values) else 0.0,
        "effective_sample_size": size,
        "targets": len(values),
    }
    if size < max(_SMALL_SAMPLE, _SMALL_SHARE * len(values)):
        summary["warning"] = (
            f"the weights are worth {size:.0f} equal targets of {len(values)}: recall_ips rests on few targets"
        )
    return Weights(values, summary)
