"""Recall that weighs a target by how unlikely it was to be seen at all.

A log holds what was shown and then chosen. Targets that the incumbent shows often are over-represented, so raw recall
flatters systems that repeat it. With ``p_t`` the probability that target t could be observed, the self-normalised
estimator (Swaminathan and Joachims 2015)

    recall_ips@k = sum_t w_t [rank_t < k] / sum_t w_t,    w_t = 1 / (|T_q| max(p_t, floor))

estimates recall over the users' interest, as far as p is right. The floor is a low quantile of the propensities
themselves, so that few targets are clipped whatever their scale: a slot that shows one item of many has small
propensities throughout, and a fixed floor would undo the weighting. A target's propensity is that of the latest
impression of its item to its user at or before the query's time; targets without one are left out. Where no propensity
was logged at all, it is modelled from popularity, ``p_i = ((c_i + 1) / max_j (c_j + 1)) ^ exponent`` with training
counts c: the family of Yang et al. 2018 ("Unbiased offline recommender evaluation for missing-not-at-random implicit
feedback"), whose exponent is (gamma + 1) / 2; the default 0.5 is the choice of Saito et al. 2020. A model of exposure
is an assumption, not a measurement, and the report says which of the two was used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.evaluation.queries import QuerySet

__all__ = ["Exposures", "Weights", "effective_sample_size", "match_impressions", "popularity_propensity", "weigh"]

Floats = NDArray[np.float64]

_SMALL_SAMPLE = 100.0
_SMALL_SHARE = 0.1


@dataclass(frozen=True)
class Weights:
    """One weight a target, and what a reader must know about them.

    Attributes:
        values: [targets] at least 0; 0 where the propensity is not known.
        summary: ``source``, ``floor``, ``clipped_share``, ``effective_sample_size``, ``targets``, ``matched_share``,
            and ``warning`` when the estimate leans on few targets.
    """

    values: Floats
    summary: dict[str, Any]


@dataclass(frozen=True)
class Exposures:
    """How each target came to be seen.

    Attributes:
        propensities: [targets] logged probability of being shown, NaN where none is known.
        is_random: [targets] whether it was shown uniformly at random.
    """

    propensities: Floats
    is_random: NDArray[np.bool_]


def match_impressions(queries: QuerySet, impressions: pa.Table) -> Exposures:
    """Find for each target the latest impression of its item to its user at or before the query's time.

    Args:
        queries: prepared queries.
        impressions: ``user_id``, ``item_row``, ``time_us``, ``propensity``, ``random``, the last two nullable; see
            `recsys_cg.data.impressions.impressions_schema`.
    """
    owners = queries.targets.owners
    ids = queries.table.column("user_id").combine_chunks()
    users = pc.index_in(ids, value_set=ids.unique()).to_numpy()
    shown = pc.index_in(impressions.column("user_id"), value_set=ids.unique())
    shown = pc.fill_null(shown, -1).to_numpy()
    kept = np.flatnonzero(shown >= 0)
    rows = impressions.column("item_row").to_numpy().astype(np.int64)[kept]
    width = max(int(rows.max(initial=0)), int(queries.targets.values.max(initial=0))) + 1
    keys = np.concatenate((shown[kept] * width + rows, users[owners] * width + queries.targets.values))
    times = np.concatenate((impressions.column("time_us").to_numpy()[kept], queries.times[owners]))
    found = _latest_before(keys, times, len(kept))
    places = pa.array(kept[found] if len(kept) else found, mask=found < 0)
    matched = impressions.select(["propensity", "random"]).take(places)
    propensities = pc.fill_null(matched.column("propensity"), float("nan")).to_numpy().astype(np.float64)
    is_random = pc.fill_null(matched.column("random"), fill_value=False).to_numpy().astype(np.bool_)
    return Exposures(propensities, is_random)


def _latest_before(keys: NDArray[np.int64], times: NDArray[np.int64], first: int) -> NDArray[np.int64]:
    """Return, for each entry from ``first`` on, the latest entry below ``first`` of its key up to its time, or -1."""
    is_target = np.arange(len(keys)) >= first
    order = np.lexsort((is_target, times, keys))
    latest = np.maximum.accumulate(np.where(is_target[order], -1, np.arange(len(order))))
    same = (latest >= 0) & (keys[order][latest] == keys[order])
    result = np.full(len(keys), -1, dtype=np.int64)
    result[order] = np.where(same, order[latest], -1)
    return result[first:]


def popularity_propensity(train_counts: NDArray[np.int64], exponent: float) -> Floats:
    """Return [items] relative probabilities of being observed, in (0, 1], 1 for the most popular item.

    Example:
        >>> popularity_propensity(np.array([99, 24]), 0.5).tolist()
        [1.0, 0.5]
    """
    if not len(train_counts):
        return np.zeros(0)
    smoothed = train_counts + 1.0
    result: Floats = (smoothed / smoothed.max()) ** exponent
    return result


def effective_sample_size(weights: Floats) -> float:
    """Return ``(sum w)^2 / sum w^2`` (Kish 1965): the number of equal weights that would be as informative.

    Example:
        >>> effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0]))
        2.0
    """
    squared = np.square(weights).sum()
    return float(np.square(weights.sum()) / squared) if squared > 0 else 0.0


def weigh(propensities: Floats, target_counts: NDArray[np.int64], *, clip: float, source: str) -> Weights:
    """Turn the propensity of each target into its weight.

    Args:
        propensities: [targets] in (0, 1], NaN where not known.
        target_counts: [targets] number of targets of the target's query, so that each query weighs one in all.
        clip: share of the targets, those of the smallest propensities, whose propensity is raised to the floor; in
            [0, 1). It bounds the weight of one target at the price of a bias towards raw recall.
        source: where the propensities come from, for the report.

    Example:
        >>> weigh(np.array([0.5, 0.25]), np.array([1, 1]), clip=0.0, source="logged").values.tolist()
        [2.0, 4.0]
    """
    known = ~np.isnan(propensities)
    floor = float(np.quantile(propensities[known], clip)) if known.any() else 1.0
    values = np.zeros(len(propensities))
    values[known] = 1.0 / (target_counts[known] * np.maximum(propensities[known], floor))
    size = effective_sample_size(values)
    summary: dict[str, Any] = {
        "source": source,
        "floor": floor,
        "clipped_share": float((propensities[known] < floor).mean()) if known.any() else 0.0,
        "effective_sample_size": size,
        "targets": len(values),
        "matched_share": float(known.mean()) if len(values) else 0.0,
    }
    if size < max(_SMALL_SAMPLE, _SMALL_SHARE * len(values)):
        summary["warning"] = (
            f"the weights are worth {size:.0f} equal targets of {len(values)}: recall_ips rests on few targets"
        )
    return Weights(values, summary)
