"""Ranking metrics as pure functions of where each target was found.

A query has a set of targets T, at least one, and one recommended list. Only the *rank* of each target in that list
matters, so everything here works on `TargetRanks`: as long as the targets, not as long as the lists. Scores never
enter, so tied scores cannot count as hits. Every metric is one float a query, in [0, 1]; a query without a target
gets NaN, and whoever averages leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import ConfigError, DataError
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.extensions import load_extension

__all__ = [
    "METRICS",
    "Metric",
    "TargetRanks",
    "average_precision",
    "check_lists",
    "choose_metrics",
    "compute",
    "hit_rate",
    "ndcg",
    "precision",
    "rank_targets",
    "recall",
    "reciprocal_rank",
]

Floats = NDArray[np.float64]

_COMPARISONS = 1 << 24  # elements of the [targets, k] comparison held at once


@dataclass(frozen=True)
class TargetRanks:
    """Where each target was found.

    Attributes:
        ranks: [targets] rank in the query's list from 0, or -1 where the target is not in it.
        owners: [targets] the query of each target, never falling.
        queries: number of queries, some of which may own no target.
    """

    ranks: NDArray[np.int32]
    owners: NDArray[np.int64]
    queries: int

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """[queries] number of targets."""
        return np.bincount(self.owners, minlength=self.queries)

    def keep(self, mask: NDArray[np.bool_]) -> TargetRanks:
        """Return the same queries with only the targets where ``mask`` holds."""
        return TargetRanks(self.ranks[mask], self.owners[mask], self.queries)

    def within(self, k: int) -> NDArray[np.bool_]:
        """[targets] whether the target is among the first ``k``."""
        return (self.ranks >= 0) & (self.ranks < k)

    def found(self, k: int) -> NDArray[np.int64]:
        """[queries] number of targets among the first ``k``."""
        return np.bincount(self.owners[self.within(k)], minlength=self.queries)

    def per_query(self, numerator: NDArray[np.generic], denominator: NDArray[np.generic] | float) -> Floats:
        """Divide, giving NaN for queries without a target."""
        values = np.full(self.queries, np.nan)
        np.divide(numerator, denominator, out=values, where=self.sizes > 0, casting="unsafe")
        return values


def recall(ranks: TargetRanks, k: int) -> Floats:
    """Return ``|L_k ∩ T| / |T|``: the share of a query's targets among its first k.

    Example:
        >>> recall(TargetRanks(np.array([0, -1, 3]), np.array([0, 0, 1]), queries=2), 2).tolist()
        [0.5, 0.0]
    """
    return ranks.per_query(ranks.found(k), ranks.sizes)


def hit_rate(ranks: TargetRanks, k: int) -> Floats:
    """Return 1 where at least one target is among the first k, else 0.

    Example:
        >>> hit_rate(TargetRanks(np.array([0, -1, 3]), np.array([0, 0, 1]), queries=2), 2).tolist()
        [1.0, 0.0]
    """
    return ranks.per_query(ranks.found(k) > 0, 1.0)


def precision(ranks: TargetRanks, k: int) -> Floats:
    """Return ``|L_k ∩ T| / k``; a list shorter than k is divided by k all the same.

    Example:
        >>> precision(TargetRanks(np.array([0, -1, 3]), np.array([0, 0, 1]), queries=2), 4).tolist()
        [0.25, 0.25]
    """
    return ranks.per_query(ranks.found(k), float(k))


def ndcg(ranks: TargetRanks, k: int) -> Floats:
    """Return DCG / ideal DCG with gain 1 for a target and discount ``1 / log2(rank + 1)``, rank from 1.

    The ideal list holds the targets first: ``sum of 1 / log2(i + 1) for i = 1 .. min(|T|, k)``. Järvelin and
    Kekäläinen 2002, with binary gain.

    Example:
        >>> ndcg(TargetRanks(np.array([0, 2]), np.array([0, 1]), queries=2), 10).tolist()  # found first, and third
        [1.0, 0.5]
    """
    within = ranks.within(k)
    gains = 1.0 / np.log2(ranks.ranks[within] + 2.0)
    gained = np.bincount(ranks.owners[within], weights=gains, minlength=ranks.queries)
    ideal = np.concatenate(([1.0], np.cumsum(1.0 / np.log2(np.arange(2.0, k + 2.0)))))
    return ranks.per_query(gained, ideal[np.minimum(ranks.sizes, k)])


def reciprocal_rank(ranks: TargetRanks, k: int) -> Floats:
    """Return 1 / (rank from 1 of the first target) where that rank is at most k, else 0.

    Example:
        >>> reciprocal_rank(TargetRanks(np.array([1, 4, 9]), np.array([0, 0, 1]), queries=2), 5).tolist()
        [0.5, 0.0]
    """
    within = ranks.within(k)
    best = np.zeros(ranks.queries)
    np.maximum.at(best, ranks.owners[within], 1.0 / (ranks.ranks[within] + 1.0))
    return ranks.per_query(best, 1.0)


def average_precision(ranks: TargetRanks, k: int) -> Floats:
    """Return ``1 / |T| * sum over found targets of precision at the target's rank``, up to rank k.

    Example:
        >>> average_precision(TargetRanks(np.array([0, 3]), np.array([0, 0]), queries=1), 5).tolist()  # (1/1 + 2/4) / 2
        [0.75]
    """
    within = ranks.within(k)
    owners, found = ranks.owners[within], ranks.ranks[within]
    order = np.lexsort((found, owners))
    owners, found = owners[order], found[order]
    starts = np.concatenate(([0], np.cumsum(ranks.found(k))[:-1])) if ranks.queries else np.zeros(0, dtype=np.int64)
    nth = np.arange(len(owners)) - starts[owners] + 1
    summed = np.bincount(owners, weights=nth / (found + 1.0), minlength=ranks.queries)
    return ranks.per_query(summed, ranks.sizes)


Metric = Callable[[TargetRanks, int], Floats]
"""``(ranks, k) -> [queries]``, each in [0, 1], NaN for a query without a target; `TargetRanks.per_query` sees to that.
The first line of its docstring is the definition that the report prints."""

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "recall": recall,
        "hit_rate": hit_rate,
        "ndcg": ndcg,
        "mrr": reciprocal_rank,
        "precision": precision,
        "map": average_precision,
    }
)
"""Name in a report (before ``@k``) -> function."""


def choose_metrics(own: Sequence[str] = ()) -> Mapping[str, Metric]:
    """Return name -> function of the usual metrics, and behind them of those that ``own`` names from outside.

    Args:
        own: ``evaluation.metrics``, each ``package.module:name``; ``name`` is what the report calls it.

    Raises:
        ConfigError: one cannot be imported, or has the name of another.
    """
    chosen = dict(METRICS)
    for path in own:
        name = path.partition(":")[2]
        if name in chosen:
            raise ConfigError(f"evaluation.metrics: there is a metric {name!r} already; {path!r} needs another name")
        chosen[name] = load_extension(path, key="evaluation.metrics")
    return chosen


def compute(name: str, metric: Metric, ranks: TargetRanks, k: int) -> Floats:
    """Return ``metric(ranks, k)``, float64 [queries], checked where it comes from outside.

    Raises:
        DataError: it is of another shape, or outside [0, 1]; NaN is right for queries without a target, and wrong
            for others.
    """
    values = metric(ranks, k)
    if name in METRICS:
        return values
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (ranks.queries,):
        raise DataError(f"metric {name!r} gave values of shape {values.shape}, expected {(ranks.queries,)}")
    counted = values[ranks.sizes > 0]
    if not ((counted >= 0) & (counted <= 1)).all() or not np.isnan(values[ranks.sizes == 0]).all():
        raise DataError(f"metric {name!r} must give a value in [0, 1] for each query with a target and NaN for others")
    return values


def rank_targets(lists: NDArray[np.int32], targets: Ragged) -> NDArray[np.int32]:
    """Find every target in its query's list.

    Args:
        lists: [queries, k] item_rows, best first, padded with -1; no item twice in a row.
        targets: one list of item_rows a query.

    Returns:
        [targets] rank from 0, -1 where absent.

    Example:
        >>> targets = Ragged(np.array([5, 9, 5]), np.array([0, 2, 3]))
        >>> rank_targets(np.array([[7, 5], [5, -1]], dtype=np.int32), targets).tolist()
        [1, -1, 0]
    """
    ranks = np.full(len(targets.values), -1, dtype=np.int32)
    step = max(1, _COMPARISONS // max(1, lists.shape[1]))
    for start in range(0, len(ranks), step):
        part = slice(start, start + step)
        matches = lists[targets.owners[part]] == targets.values[part, None]
        ranks[part] = np.where(matches.any(axis=1), matches.argmax(axis=1), -1) if lists.shape[1] else -1
    return ranks


def check_lists(lists: NDArray[np.int32], *, queries: int, k: int, items: int, system: str) -> None:
    """Refuse what no metric may count.

    Raises:
        DataError: naming the system, when the shape is not [queries, k], a row is not an item, an item stands
            twice in one list, or padding stands before an item.
    """
    if lists.shape != (queries, k):
        raise DataError(f"system {system!r} returned lists of shape {lists.shape}, expected {(queries, k)}")
    if lists.size and (lists.min() < -1 or lists.max() >= items):
        raise DataError(f"system {system!r} returned an item_row outside -1 .. {items - 1}")
    padding = lists < 0
    if (padding[:, :-1] & ~padding[:, 1:]).any():
        raise DataError(f"system {system!r} returned padding (-1) before an item")
    ordered = np.sort(lists, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        query, place = np.argwhere(twice)[0]
        raise DataError(f"system {system!r} recommended item_row {ordered[query, place]} twice in one list")
