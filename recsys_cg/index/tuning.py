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

__all__ = ["Candidate", "Tuned", "search_tree", "tune_tree", "verify"]

REORDER_FACTORS = (1.5, 2.0, 3.0, 4.0, 6.0, 12.0)
"""Candidates scored again, in multiples of k."""

_MARGIN_SE = 2.0
_PROBES = 256
_ROUNDS = 3
_BATCH = 256


@dataclass(frozen=True)
class Candidate:
    """A tree with its searcher, before its search settings are chosen."""

    native: Any
    leaves: int
    build_seconds: float


@dataclass(frozen=True)
class Tuned:
    """A setting that met the target on the tuning queries, with its recall there and its cost.

    Attributes:
        candidate: the tree.
        parameters: the setting.
        recall: mean recall over the tuning queries.
        microseconds: time of one single query, the median of the rounds' means.
    """

    candidate: Candidate
    parameters: TreeParameters
    recall: float
    microseconds: float = math.inf


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
    for candidate in candidates:
        survivors += _survivors(candidate, truth, target, items, late)
    return _fastest(survivors, truth) if survivors else None


def _survivors(candidate: Candidate, truth: Truth, target: float, items: int, late: Callable[[], bool]) -> list[Tuned]:
    """Bisect the partitions for each reorder count, most candidates first: fewer of them never need fewer leaves."""
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
        found = _fewest_leaves(candidate, truth, target, start)
        if found is None:
            break
        kept.append(found)
        least = found.parameters.leaves_to_search
    return kept


def _fewest_leaves(candidate: Candidate, truth: Truth, target: float, start: TreeParameters) -> Tuned | None:
    """Return the fewest partitions, from those of ``start`` up, that reach the target; within 3% of the fewest."""

    def judge(leaves: int) -> Tuned | None:
        parameters = replace(start, leaves_to_search=leaves)
        recall = recall_by_query(truth, search_tree(candidate.native, truth, parameters)[1])
        spare = _MARGIN_SE * recall.std(ddof=1) / math.sqrt(len(recall))
        met = recall.mean() - spare >= target
        return Tuned(candidate, parameters, float(recall.mean())) if met else None

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


def _fastest(survivors: Sequence[Tuned], truth: Truth) -> Tuned:
    """Time single queries, all survivors in turn within each round, and return the one of least median."""
    probes = truth.queries[:_PROBES]
    means = np.empty((_ROUNDS, len(survivors)))
    for turn in range(_ROUNDS):
        for place, tuned in enumerate(survivors):
            search, settings = tuned.candidate.native.search, tuned.parameters
            started = time.thread_time()
            for query in probes:
                search(query, truth.k, settings.reorder, settings.leaves_to_search)
            means[turn, place] = (time.thread_time() - started) / len(probes)
    cost = np.median(means, axis=0) * 1e6
    best = int(np.argmin(cost))
    return replace(survivors[best], microseconds=float(cost[best]))
