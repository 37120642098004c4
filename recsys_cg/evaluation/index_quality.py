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
    process: without network and without the query encoder.

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
    hits, sizes, filled = np.zeros(len(queries)), np.zeros(len(queries)), 0
    pooled = np.zeros((2, len(BUCKETS)))
    for start in range(0, len(queries), _BATCH):
        part = slice(start, start + _BATCH)
        barred = None if exclude is None else exclude[part]
        truth = exact.search(queries[part], wanted, exclude=barred)
        found = approximate.search(queries[part], wanted, exclude=barred)
        is_hit = _is_found(truth, found)
        hits[part], sizes[part] = is_hit.sum(axis=1), truth.found
        filled += int(np.minimum(found.found, wanted).sum())
        neighbours = codes[truth.rows[truth.rows >= 0]]
        pooled[0] += np.bincount(neighbours[is_hit[truth.rows >= 0]], minlength=len(BUCKETS))
        pooled[1] += np.bincount(neighbours, minlength=len(BUCKETS))
    possible = sizes.sum()
    per_query = hits[sizes > 0] / sizes[sizes > 0]
    if len(per_query):
        drawn = resample_sums(per_query[:, None], samples=_SAMPLES, seed=seed)[:, 0] / len(per_query)
        result[f"recall_vs_exact@{k}"] = float(per_query.mean())
        result["ci95"] = list(interval(drawn)) if len(per_query) > 1 else [0.0, 1.0]
    result["by_bucket"] = {
        name: float(pooled[0, code] / pooled[1, code]) for code, name in enumerate(BUCKETS) if pooled[1, code] > 0
    }
    result["fill_rate"] = float(filled / possible) if possible else None
    result["latency_ms"] = _time(approximate, queries[:timed], wanted, None if exclude is None else exclude[:timed])
    return result


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
