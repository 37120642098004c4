"""What the index loses against exact search, how full its lists are, and how long one query takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.evaluation.significance import interval, resample_sums
from recsys_cg.index.base import Retriever, SearchResult
from recsys_cg.schema import BUCKETS

__all__ = ["measure_index"]

_BATCH = 256
_WARM_UP = 20
_SAMPLES = 1000
_EXACT_TIMED = 100
_FROM_BUILD = ("parameters", "bytes", "seconds", "why", "operating_points")


def measure_index(
    approximate: Retriever,
    exact: Retriever,
    queries: NDArray[np.float32],
    buckets: Sequence[str],
    k: int,
    *,
    exclude: Sequence[NDArray[np.int32]] | None = None,
    info: Mapping[str, Any] | None = None,
    timed: int = 500,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the report's ``index`` part, measured with lists of exactly ``k``.

    Recall is by row: the share of exact search's first k that the index also returns. Both order equal scores by row,
    so a tie at the end of the list is cut at the same place by both. ``by_bucket`` pools the exact neighbours of one
    popularity bucket over all queries. Latency is that of single queries, one after the other, on one thread, in this
    process: without network and without the query encoder; ``exact_latency_ms`` is exact search's, on fewer queries.

    Args:
        approximate: the index that serves.
        exact: exact search over the same rows.
        queries: [queries, dim] unit vectors, at least one for any figure.
        buckets: [rows] popularity bucket of each row.
        k: list length.
        exclude: one array of rows a query that may not be returned, as when serving.
        info: what the build recorded; parameters, bytes, reasons and operating points are taken over.
        timed: queries timed, at most.
        seed: of the bootstrap interval over queries.
    """
    result: dict[str, Any] = {"kind": approximate.kind, "is_exact": approximate.is_exact, "k": k}
    result |= {name: info[name] for name in _FROM_BUILD if info and name in info}
    result["queries"] = len(queries)
    if not len(queries):
        return result
    codes = pc.index_in(pa.array(buckets, pa.string()), value_set=pa.array(BUCKETS)).to_numpy()
    wanted = min(k, approximate.size)
    tally = _Tally(len(queries))
    for start in range(0, len(queries), _BATCH):
        part = slice(start, start + _BATCH)
        barred = None if exclude is None else exclude[part]
        truth = exact.search(queries[part], wanted, exclude=barred)
        tally.add(part, truth, approximate.search(queries[part], wanted, exclude=barred), codes)
    timed_exclude = None if exclude is None else exclude[:timed]
    latency = _time(approximate, queries[:timed], wanted, timed_exclude)
    own = (
        {}
        if approximate.is_exact
        else {"exact_latency_ms": _time(exact, queries[:_EXACT_TIMED], wanted, timed_exclude)}
    )
    return result | tally.measure(k, seed) | {"latency_ms": latency} | own


class _Tally:
    """Hits against exact search, a query and a bucket of the exact neighbours."""

    def __init__(self, queries: int) -> None:
        self._hits, self._sizes, self._filled = np.zeros(queries), np.zeros(queries), 0
        self._bucket_hits, self._bucket_sizes = np.zeros(len(BUCKETS)), np.zeros(len(BUCKETS))

    def add(self, part: slice, truth: SearchResult, found: SearchResult, codes: NDArray[np.int32]) -> None:
        is_hit = _is_found(truth, found)
        self._hits[part], self._sizes[part] = is_hit.sum(axis=1), truth.found
        self._filled += int(found.found.sum())
        filled = truth.rows >= 0
        self._bucket_hits += np.bincount(codes[truth.rows[filled & is_hit]], minlength=len(BUCKETS))
        self._bucket_sizes += np.bincount(codes[truth.rows[filled]], minlength=len(BUCKETS))

    def measure(self, k: int, seed: int) -> dict[str, Any]:
        possible = self._sizes > 0
        if not possible.any():
            return {"by_bucket": {}, "fill_rate": None}
        recall = self._hits[possible] / self._sizes[possible]
        drawn = resample_sums(recall[:, None], samples=_SAMPLES, seed=seed)[:, 0] / len(recall)
        by_bucket = {
            name: float(self._bucket_hits[code] / self._bucket_sizes[code])
            for code, name in enumerate(BUCKETS)
            if self._bucket_sizes[code] > 0
        }
        return {
            f"recall_vs_exact@{k}": float(recall.mean()),
            "ci95": list(interval(drawn)) if len(recall) > 1 else [0.0, 1.0],
            "by_bucket": by_bucket,
            "fill_rate": float(self._filled / self._sizes.sum()),
        }


def _is_found(truth: SearchResult, found: SearchResult) -> NDArray[np.bool_]:
    """[queries, k] whether each exact neighbour is among the index's; padding is not."""
    result = np.zeros(truth.rows.shape, dtype=np.bool_)
    for query, (exact, rows) in enumerate(zip(truth.rows, found.rows, strict=True)):
        result[query] = np.isin(exact, rows[rows >= 0]) & (exact >= 0)
    return result


def _time(
    index: Retriever, queries: NDArray[np.float32], k: int, exclude: Sequence[NDArray[np.int32]] | None
) -> dict[str, float]:
    seconds = []
    for query in [*range(min(_WARM_UP, len(queries))), *range(len(queries))]:
        barred = None if exclude is None else [exclude[query]]
        started = time.perf_counter()
        index.search(queries[query : query + 1], k, exclude=barred)
        seconds.append(time.perf_counter() - started)
    milliseconds = 1e3 * np.array(seconds[min(_WARM_UP, len(queries)) :])
    p50, p99 = np.quantile(milliseconds, [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99), "queries": len(queries)}
