"""What a system shows: coverage, concentration and likeness of its lists, accumulated batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.schema import BUCKETS

__all__ = ["Exposure", "entropy", "exposure_curve", "gini", "mean_overlap", "self_information"]

Counts = NDArray[np.int64]


def gini(counts: Counts) -> float:
    """Return the Gini coefficient of exposure over candidates, in [0, 1): 0 is even, near 1 a few items only.

    ``G = sum_i (2 i - n - 1) x_i / (n sum x)``, counts x ascending, i from 1. NaN where nothing was shown.

    Example:
        >>> gini(np.array([1, 1, 1, 1])), gini(np.array([0, 0, 0, 4]))
        (0.0, 0.75)
    """
    ordered = np.sort(counts).astype(np.float64)
    total = ordered.sum()
    if total <= 0:
        return float("nan")
    n = len(ordered)
    return float(((2.0 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * total))


def entropy(counts: Counts) -> float:
    """Return the Shannon entropy of exposure over candidates divided by its maximum ``log n``, in [0, 1].

    1 is even. One candidate alone gives 1; NaN where nothing was shown.

    Example:
        >>> entropy(np.array([2, 2, 0, 0]))  # log 2 / log 4
        0.5
    """
    total = counts.sum()
    if total <= 0:
        return float("nan")
    if len(counts) == 1:
        return 1.0
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum() / np.log(len(counts)))


def exposure_curve(counts: Counts, points: int = 51) -> dict[str, list[float]]:
    """Return which share of all exposure the most exposed share of the candidates takes (a Lorenz curve from the top).

    Returns:
        ``{"items": [0 .. 1], "exposure": [0 .. 1]}`` of ``points`` points each; empty lists where nothing was shown.

    Example:
        >>> exposure_curve(np.array([1, 3]), points=3)
        {'items': [0.0, 0.5, 1.0], 'exposure': [0.0, 0.75, 1.0]}
    """
    if counts.sum() <= 0:
        return {"items": [], "exposure": []}
    cumulative = np.concatenate(([0], np.cumsum(np.sort(counts)[::-1]))) / counts.sum()
    places = np.linspace(0.0, 1.0, points)
    values = np.interp(places * len(counts), np.arange(len(counts) + 1), cumulative)
    return {"items": [float(x) for x in places], "exposure": [float(x) for x in values]}


def mean_overlap(lists: NDArray[np.int32], pairs: NDArray[np.int64], k: int) -> float:
    """Return the mean of ``|A ∩ B| / max(|A|, |B|)`` over pairs of lists cut at k; NaN without pairs.

    Args:
        lists: [lists, k or more] item_rows padded with -1, no item twice.
        pairs: [pairs, 2] positions in ``lists``.
        k: length at which the lists are cut, at least 1.

    Example:
        >>> mean_overlap(np.array([[1, 2], [2, 3]], dtype=np.int32), np.array([[0, 1]]), 2)
        0.5
    """
    if not len(pairs):
        return float("nan")
    both = np.sort(np.concatenate((lists[pairs[:, 0], :k], lists[pairs[:, 1], :k]), axis=1), axis=1)
    shared = ((both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)).sum(axis=1)
    sizes = (lists[:, :k] >= 0).sum(axis=1)
    longer = np.maximum(sizes[pairs[:, 0]], sizes[pairs[:, 1]])
    return float((shared / np.maximum(longer, 1)).mean())


class Exposure:
    """Counts of how often each item stood in the first k, for several k.

    Memory: one counter an item and k, and the lists of the sampled queries. It does not grow with the queries.

    Args:
        items: number of items.
        ks: the list lengths.
        sampled: [samples] ascending positions of the queries whose lists are kept for `mean_overlap`.
    """

    def __init__(self, items: int, ks: Sequence[int], sampled: NDArray[np.int64]) -> None:
        self._ks = tuple(ks)
        self._counts = {k: np.zeros(items, dtype=np.int64) for k in self._ks}
        self._queries = 0
        self._sampled = sampled
        self._kept = {k: np.full((len(sampled), k), -1, dtype=np.int32) for k in self._ks}

    def add(self, lists: Mapping[int, NDArray[np.int32]], first: int) -> None:
        """Count a batch.

        Args:
            lists: for each k the lists [queries, k or more] of consecutive queries.
            first: position of the first of them.
        """
        count = len(lists[self._ks[0]])
        self._queries += count
        start, stop = np.searchsorted(self._sampled, [first, first + count])
        places = self._sampled[start:stop] - first
        for k in self._ks:
            shown = lists[k][:, :k]
            self._counts[k] += np.bincount(shown[shown >= 0], minlength=len(self._counts[k]))
            self._kept[k][start:stop] = shown[places]

    def measure(
        self,
        *,
        candidates: NDArray[np.bool_],
        buckets: NDArray[np.int8],
        train_counts: NDArray[np.int64],
        pairs: NDArray[np.int64],
        primary_k: int,
    ) -> dict[str, Any]:
        """Return the report's coverage entry.

        Args:
            candidates: [items] items that were alive at some query.
            buckets: [items] positions in `recsys_cg.schema.BUCKETS`.
            train_counts: [items] training events.
            pairs: [pairs, 2] positions in ``sampled``: two users each.
            primary_k: the k of ``never_retrieved`` and ``exposure_curve``.
        """
        if not self._queries:
            return {"queries": 0}
        result: dict[str, Any] = {"queries": self._queries}
        information = self_information(train_counts)
        for k in self._ks:
            counts = self._counts[k]
            shown = int(counts.sum())
            alive = counts[candidates]
            result[f"catalogue_coverage@{k}"] = float((alive > 0).mean())
            result[f"fill_rate@{k}"] = shown / (self._queries * k)
            result[f"between_user_overlap@{k}"] = _or_none(mean_overlap(self._kept[k], pairs, k))
            if not shown:
                continue
            result[f"gini@{k}"] = gini(alive)
            result[f"entropy@{k}"] = entropy(alive)
            result[f"novelty@{k}"] = float(counts @ information / shown)
            by_bucket = np.bincount(buckets, weights=counts, minlength=len(BUCKETS))
            for name, amount in zip(BUCKETS, by_bucket, strict=True):
                result[f"{name}_share@{k}"] = float(amount / shown)
        alive = self._counts[primary_k][candidates]
        result["never_retrieved"] = int((alive == 0).sum())
        result["exposure_curve"] = {"k": primary_k, **exposure_curve(alive)}
        return result


def self_information(train_counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return ``log((N + n) / (count + 1)) / log(N + n)``, in [0, 1]: 1 for an item nobody met in training.

    N is the number of training events, n that of items; one event is added to each item so that cold items count.
    """
    total = float(train_counts.sum() + len(train_counts))
    if total <= 1:
        return np.ones(len(train_counts))
    result: NDArray[np.float64] = np.log(total / (train_counts + 1.0)) / np.log(total)
    return result


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else value
