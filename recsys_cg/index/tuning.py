"""Choose how far a tree is searched: the cheapest setting that reaches a declared recall, proven on other queries.

For each number of candidates scored again, the fewest partitions that reach the target are found by bisection;
the survivors are timed against each other, and the fastest is verified on queries that no choice has seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.index.recall import Truth, recall_by_query
from recsys_cg.index.scann import TreeParameters

__all__ = ["Candidate", "OperatingPoint", "Tuned", "search_tree", "tune_tree", "verify"]

REORDER_FACTORS = (1.5, 2.0, 3.0, 4.0, 6.0, 12.0)
"""Candidates scored again, in multiples of k."""

_MARGIN_SE = 2.0
_PROBES = 256
_ROUNDS = 3
_CHARTED = 8
_CHART_PROBES = 128
_BATCH = 256


@dataclass(frozen=True)
class Candidate:
    """A tree with its searcher, before its search settings are chosen."""

    native: Any
    leaves: int
    build_seconds: float


@dataclass(frozen=True)
class OperatingPoint:
    """A setting with its recall on the tuning queries and the time of one single query; it holds no tree."""

    parameters: TreeParameters
    recall: float
    microseconds: float


@dataclass(frozen=True)
class Tuned:
    """A setting with its recall on the tuning queries and its cost.

    Attributes:
        candidate: the tree.
        parameters: the setting.
        recall: mean recall over the tuning queries.
        microseconds: time of one single query, the median of the rounds' means.
        frontier: of the settings tried, those that no other one beats in both recall and time, cheapest first; the
            time of those that missed the target is of one round.
    """

    candidate: Candidate
    parameters: TreeParameters
    recall: float
    microseconds: float = math.inf
    frontier: tuple[OperatingPoint, ...] = ()


def search_tree(native: Any, truth: Truth, parameters: TreeParameters) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return rows and scores of the bare tree for all queries, in batches of one thread."""
    rows, scores = [], []
    for start in range(0, len(truth.queries), _BATCH):
        batch = truth.queries[start : start + _BATCH]
        found, score = native.search_batched(
            batch, truth.k, parameters.reorder, parameters.leaves_to_search, False, len(batch)
        )
        rows.append(found.view(np.int32))
        scores.append(score)
    return np.concatenate(rows), np.concatenate(scores)


def verify(tuned: Tuned, truth: Truth) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the rows found for ``truth``, queries that tuning has not seen, and the recall of each."""
    rows, scores = search_tree(tuned.candidate.native, truth, tuned.parameters)
    return rows, recall_by_query(truth, scores)


def tune_tree(
    candidates: Iterable[Candidate], truth: Truth, *, target: float, items: int, late: Callable[[], bool]
) -> Tuned | None:
    """Return the fastest setting whose recall on ``truth`` is ``target`` with two standard errors to spare.

    Args:
        candidates: trees over the same vectors; taken one after the other, each only once those before are tuned.
        truth: tuning queries with their exact lists.
        target: recall at ``truth.k``, in (0, 1].
        items: vectors in the index.
        late: returns True once tuning should end with the best it has.

    Returns:
        The setting, or None where no tree reaches the target even with every partition searched.
    """
    survivors: list[Tuned] = []
    missed: list[Tuned] = []
    for candidate in candidates:
        survivors += _survivors(candidate, truth, target, items, late, missed)
    return _fastest(survivors, truth, missed) if survivors else None


def _survivors(  # noqa: PLR0917 - what one tree is tuned by
    candidate: Candidate, truth: Truth, target: float, items: int, late: Callable[[], bool], missed: list[Tuned]
) -> list[Tuned]:
    """Bisect the partitions for each reorder count, most candidates first: fewer of them never need fewer leaves.

    Settings that miss the target are appended to ``missed``.
    """
    kept: list[Tuned] = []
    least = 1
    for factor in sorted(REORDER_FACTORS, reverse=True):
        if kept and late():
            break
        start = TreeParameters(
            leaves=candidate.leaves,
            leaves_to_search=least,
            reorder=min(items, math.ceil(factor * truth.k)),
            k=truth.k,
        )
        found = _fewest_leaves(candidate, truth, target, start, missed)
        if found is None:
            break
        kept.append(found)
        least = found.parameters.leaves_to_search
    return kept


def _fewest_leaves(
    candidate: Candidate, truth: Truth, target: float, start: TreeParameters, missed: list[Tuned]
) -> Tuned | None:
    """Return the fewest partitions, from those of ``start`` up, that reach the target; within 3% of the fewest."""

    def judge(leaves: int) -> Tuned | None:
        parameters = replace(start, leaves_to_search=leaves)
        recall = recall_by_query(truth, search_tree(candidate.native, truth, parameters)[1])
        spare = _MARGIN_SE * recall.std(ddof=1) / math.sqrt(len(recall))
        tuned = Tuned(candidate, parameters, float(recall.mean()))
        if recall.mean() - spare >= target:
            return tuned
        missed.append(tuned)
        return None

    low, high = start.leaves_to_search - 1, start.leaves_to_search
    best = judge(high)
    step = max(1, high // 8)
    while best is None:
        if high >= candidate.leaves:
            return None
        low, high = high, min(candidate.leaves, high + step)
        step *= 2
        best = judge(high)
    while high - low > max(1, high // 32):
        middle = (low + high) // 2
        better = judge(middle)
        if better is None:
            low = middle
        else:
            best, high = better, middle
    return best


def _fastest(survivors: Sequence[Tuned], truth: Truth, missed: Sequence[Tuned]) -> Tuned:
    """Time single queries, all survivors in turn within each round, and return the one of least median."""
    probes = truth.queries[:_PROBES]
    means = np.array([[_time(tuned, probes, truth.k) for tuned in survivors] for _ in range(_ROUNDS)])
    costs = np.median(means, axis=0).tolist()
    timed = [replace(one, microseconds=cost) for one, cost in zip(survivors, costs, strict=True)]
    best = min(timed, key=lambda tuned: tuned.microseconds)
    below = _spread([one for one in missed if one.recall < best.recall], _CHARTED)
    charted = [replace(one, microseconds=_time(one, probes[:_CHART_PROBES], truth.k)) for one in below]
    return replace(best, frontier=_frontier([*timed, *charted]))


def _time(tuned: Tuned, probes: NDArray[np.float32], k: int) -> float:
    """Return the mean processor time of one single query in microseconds."""
    search, settings = tuned.candidate.native.search, tuned.parameters
    started = time.thread_time()
    for query in probes:
        search(query, k, settings.reorder, settings.leaves_to_search)
    return (time.thread_time() - started) / len(probes) * 1e6


def _spread(settings: Sequence[Tuned], count: int) -> list[Tuned]:
    """Return at most ``count`` settings whose recalls lie as far apart as they can."""
    ordered = sorted(settings, key=lambda tuned: tuned.recall)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(count, len(ordered))).round().astype(int))
    return [ordered[place] for place in places]


def _frontier(settings: Sequence[Tuned]) -> tuple[OperatingPoint, ...]:
    """Return the settings that no cheaper or equally cheap one reaches in recall, cheapest first."""
    kept: list[OperatingPoint] = []
    for tuned in sorted(settings, key=lambda one: (one.microseconds, -one.recall)):
        if not kept or tuned.recall > kept[-1].recall:
            kept.append(OperatingPoint(tuned.parameters, tuned.recall, tuned.microseconds))
    return tuple(kept)
