"""Build the trees worth building, tune them, and verify the choice on queries that tuning has not seen."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import IndexConfig
from recsys_cg.index.base import Vectors
from recsys_cg.index.recall import Truth, find_truth
from recsys_cg.index.tree import build_tree, propose_leaves
from recsys_cg.index.tuning import Candidate, Tuned, tune_tree, verify

__all__ = ["LEAST_QUERIES", "Selection", "select_tree"]

LEAST_QUERIES = 64
"""Fewer queries than this prove no recall."""

_BUDGET = 3.0
_SECOND_TREE_BUDGET = 1.2


@dataclass(frozen=True)
class Selection:
    """The tree that will serve.

    Attributes:
        tuned: the tree and its setting.
        target: the declared recall that the setting met.
        truth: verification queries with their exact lists.
        rows, recall: what the tree found for them.
        tuning_queries: how many queries the setting was chosen on.
        attempts: how many settings were verified; each on queries of its own.
        cpu_seconds: processor time of all builds, tuning and verification together.
    """

    tuned: Tuned
    target: float
    truth: Truth
    rows: NDArray[np.int32]
    recall: NDArray[np.float64]
    tuning_queries: int
    attempts: int
    cpu_seconds: float


def select_tree(vectors: Vectors, queries: Vectors, *, config: IndexConfig, seed: int) -> tuple[Selection | None, str]:
    """Return the cheapest verified tree, or None, and one sentence that says why.

    The queries are shuffled and split in two or three: the setting is chosen on the first part and verified on
    the second. If it misses there, the second part joins the first and a new choice is verified on the third.
    Tuning ends early rather than take more than three times the build.
    """
    started = time.process_time()
    parts = _split(queries, config.tuning_queries, seed)
    candidates = [_build(vectors, propose_leaves(len(vectors))[-1], config.k)]
    budget = _BUDGET * candidates[0].build_seconds

    def spent() -> float:
        return time.process_time() - started - candidates[0].build_seconds

    def late() -> bool:
        return spent() > 0.7 * budget

    seen = find_truth(vectors, parts[0], config.k)
    attempts = 0
    for part in parts[1:]:
        tuned = tune_tree(candidates, seen, target=config.target_recall, items=len(vectors), deadline=late)
        if tuned is None:
            return None, (
                f"exact search: no ScaNN setting reached recall@{config.k} of {config.target_recall} "
                f"on {len(seen.queries)} tuning queries"
            )
        attempts += 1
        truth = find_truth(vectors, part, config.k)
        rows, recall = verify(tuned, truth)
        if recall.mean() >= config.target_recall:
            chosen = Selection(
                tuned=tuned,
                target=config.target_recall,
                truth=truth,
                rows=rows,
                recall=recall,
                tuning_queries=len(seen.queries),
                attempts=attempts,
                cpu_seconds=time.process_time() - started,
            )
            return (
                chosen,
                f"ScaNN reached recall@{config.k} of {recall.mean():.4f} on {len(recall)} queries held out from tuning",
            )
        seen = seen.join(truth)
    return None, (
        f"exact search: {attempts} ScaNN settings met recall@{config.k} of {config.target_recall} where they were "
        "tuned and missed it on held-out queries"
    )


def _build(vectors: Vectors, leaves: int, k: int) -> Candidate:
    started = time.process_time()
    native = build_tree(vectors, leaves, k=k)
    return Candidate(native, leaves, time.process_time() - started)


def _split(queries: Vectors, tuning: int, seed: int) -> list[Vectors]:
    """Return queries to tune on, then one or two lots to verify on, at random and disjoint."""
    order = np.random.default_rng(seed).permutation(len(queries))[: 3 * tuning]
    first = min(tuning, len(order) // 2)
    rest = order[first:]
    lots = np.array_split(rest, 2) if len(rest) >= LEAST_QUERIES else [rest]
    return [np.ascontiguousarray(queries[lot]) for lot in (order[:first], *lots)]
