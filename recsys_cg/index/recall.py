"""How much of exact search an index finds, with intervals, overall and by popularity bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.index.base import SearchResult, Vectors
from recsys_cg.index.exact import search_exactly

__all__ = ["Truth", "find_truth", "recall_by_bucket", "recall_by_query", "summarise"]

_TIE = 2.0**-20
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Truth:
    """Queries with what exact search finds for them.

    Attributes:
        queries: float32 [queries, dim].
        exact: the exact lists, ``k`` long and full.
    """

    queries: Vectors
    exact: SearchResult

    @property
    def k(self) -> int:
        """Length of the lists."""
        return int(self.exact.rows.shape[1])

    def join(self, other: Truth) -> Truth:
        """Return the queries of both; the lists are equally long."""
        exact = SearchResult(
            np.concatenate([self.exact.rows, other.exact.rows]),
            np.concatenate([self.exact.scores, other.exact.scores]),
            np.concatenate([self.exact.found, other.exact.found]),
        )
        return Truth(np.concatenate([self.queries, other.queries]), exact)


def find_truth(vectors: Vectors, queries: Vectors, k: int) -> Truth:
    """Search exactly; ``k`` is cut to the number of vectors."""
    return Truth(queries, search_exactly(vectors, queries, min(k, len(vectors))))


def recall_by_query(truth: Truth, scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, a query, the share of its k results that score no worse than the k-th exact one.

    Counting by score treats rows that tie at the end of the list alike, whichever of them exact search kept;
    rows do not repeat, so that no more than k can count.

    Args:
        truth: the exact lists.
        scores: float32 [queries, k], exact float32 scores of the lists to judge; padding is NaN or -inf.
    """
    least = truth.exact.scores[:, -1:] - np.float32(_TIE)
    hits: NDArray[np.float64] = (scores[:, : truth.k] >= least).sum(axis=1) / truth.k
    return hits


def summarise(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return ``{"mean", "ci95", "queries"}``: the mean with its normal 95% interval, cut to [0, 1].

    Example:
        >>> summarise(np.array([1.0, 1.0, 1.0]))["ci95"]
        [1.0, 1.0]
    """
    mean = float(values.mean())
    half = _Z95 * float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 1.0
    return {"mean": mean, "ci95": [max(0.0, mean - half), min(1.0, mean + half)], "queries": len(values)}


def recall_by_bucket(
    truth: Truth, rows: NDArray[np.int32], recall: NDArray[np.float64], buckets: Sequence[str]
) -> dict[str, Any]:
    """Return bucket -> ``{"mean", "ci95", "neighbours"}``: the share found of exact neighbours in that bucket.

    Pooled over queries (a ratio of sums); the interval is that of the ratio estimator with queries as units. A
    bucket that holds no exact neighbour has ``"neighbours": 0`` and no mean.

    Args:
        truth: the exact lists.
        rows: int32 [queries, k], the lists to judge.
        recall: what `recall_by_query` said; a full list counts as full in each bucket, whichever ties it holds.
        buckets: the bucket of every row of the index.
    """
    names, codes = np.unique(np.asarray(buckets, dtype=np.str_), return_inverse=True)
    exact = truth.exact.rows
    found = np.array([np.isin(one, other) for one, other in zip(exact, rows, strict=True)]).reshape(exact.shape)
    found |= recall[:, None] == 1.0
    report: dict[str, Any] = {}
    for code, name in enumerate(names):
        inside = codes[exact] == code
        totals, hits = inside.sum(axis=1), (inside & found).sum(axis=1)
        if not totals.sum():
            report[str(name)] = {"neighbours": 0}
            continue
        mean = float(hits.sum() / totals.sum())
        spread = float(np.square(hits - mean * totals).sum())
        half = _Z95 * np.sqrt(spread) / float(totals.sum())
        report[str(name)] = {
            "mean": mean,
            "ci95": [max(0.0, mean - half), min(1.0, mean + half)],
            "neighbours": int(totals.sum()),
        }
    return report
