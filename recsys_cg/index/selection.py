"""Build the trees worth building, tune them, and verify the choice on queries that tuning has not seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
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

_SECOND_TREE_BEFORE = 0.6  # builds spent on tuning the first tree, above which there is no second
_LATE_AFTER = 2.0  # builds spent on tuning, after which no further reorder count is tried
_TUNING_S = 2e-3  # a generous cost of one tuning query, all settings of a tree together
_LEAST_TUNING = 128


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
    The larger of two trees is built first; the smaller only if that leaves tuning below three times one build.
    """
    started = time.process_time()
    smaller, larger = propose_leaves(len(vectors))
    candidates = [_build(vectors, larger, config.k)]
    build = candidates[0].build_seconds
    parts = _split(queries, min(config.tuning_queries, max(_LEAST_TUNING, int(build / _TUNING_S))), seed)

    def spent() -> float:
        """Return the cost of tuning so far, in builds of the larger tree."""
        return (time.process_time() - started) / build - 1.0

    def trees() -> Iterator[Candidate]:
        yield candidates[0]
        if len(candidates) == 1 and smaller < larger and spent() <= _SECOND_TREE_BEFORE:
            candidates.append(_build(vectors, smaller, config.k))
        yield from candidates[1:]

    seen = find_truth(vectors, parts[0], config.k)
    attempts = 0
    for part in parts[1:]:
        tuned = tune_tree(
            trees(), seen, target=config.target_recall, items=len(vectors), late=lambda: spent() > _LATE_AFTER
        )
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
