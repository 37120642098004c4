"""Exact search: every eligible vector is scored. The oracle, the fallback, and the index of small catalogues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import SearchError
from recsys_cg.index.base import Allow, Exclude, SearchResult, Vectors
from recsys_cg.index.requests import check_allow, check_exclude, check_k, check_queries, refuse_outside

__all__ = ["ExactRetriever", "search_exactly"]

_QUERIES = 256
_CELLS = 1 << 23
_RESCORE_ROWS = 1 << 16


class ExactRetriever:
    """Search by scoring all vectors, in blocks, without copying them: ``vectors`` may be a memory map.

    Cost is one pass over the vectors a batch. The same query gives the same rows and the same scores in every
    batch: candidates are scored in float64 and rounded to float32 before they are ordered.

    Args:
        vectors: float32 [size, dim] of unit norm; the caller vouches for their digest.
        why: one sentence on why this backend was chosen.
    """

    kind = "exact"
    is_exact = True

    def __init__(self, vectors: Vectors, why: str = "exact search was asked for") -> None:
        if vectors.ndim != 2 or vectors.dtype != np.float32:
            raise SearchError(f"vectors are {vectors.dtype} {list(vectors.shape)}; float32 [items, dim] is searched")
        self._vectors = vectors
        self.size, self.dim = int(vectors.shape[0]), int(vectors.shape[1])
        self.why = why

    def search(
        self, queries: Vectors, k: int, *, exclude: Exclude | None = None, allow: Allow | None = None
    ) -> SearchResult:
        """Return the ``k`` best eligible rows a query; see `recsys_cg.index.base.Retriever.search`."""
        checked = check_queries(queries, self.dim)
        length = check_k(k, len(checked))
        excluded = None if exclude is None else check_exclude(exclude, len(checked))
        allowed = None if allow is None else check_allow(allow, self.size)
        return search_exactly(self._vectors, checked, length, excluded, allowed)


def search_exactly(
    vectors: Vectors,
    queries: Vectors,
    k: int,
    exclude: Sequence[NDArray[np.int32]] | None = None,
    rows: NDArray[np.int32] | None = None,
) -> SearchResult:
    """Search checked input: ``rows`` (sorted, unique; None: all) are the eligible rows before exclusion."""
    result = SearchResult.padded(len(queries), k)
    if exclude is not None:
        for row in exclude:
            refuse_outside(row, len(vectors), "exclude")
    for start in range(0, len(queries), _QUERIES):
        part = slice(start, start + _QUERIES)
        _search_batch(vectors, queries[part], exclude[part] if exclude is not None else None, rows, _cut(result, part))
    return result


def _cut(result: SearchResult, part: slice) -> SearchResult:
    return SearchResult(result.rows[part], result.scores[part], result.found[part])


def _search_batch(
    vectors: Vectors,
    queries: Vectors,
    exclude: Sequence[NDArray[np.int32]] | None,
    rows: NDArray[np.int32] | None,
    out: SearchResult,
) -> None:
    total = len(vectors) if rows is None else len(rows)
    width = max(1024, _CELLS // max(len(queries), 1))
    slack = 2.0 * (vectors.shape[1] + 2) * 2.0**-24
    floors = np.full(len(queries), -2.0, dtype=np.float32)
    for start in range(0, total, width):
        stop = min(start + width, total)
        block = vectors[start:stop] if rows is None else vectors[rows[start:stop]]
        scores = queries @ block.T
        if exclude is not None:
            _hide(scores, exclude, rows, start, stop)
        for query in range(len(queries)):
            near = _candidates(scores[query], out.rows.shape[1], floors[query], slack)
            if len(near):
                found = (near + start).astype(np.int32) if rows is None else rows[near + start]
                _merge(vectors, queries[query], found, out, query)
                if out.found[query] == out.rows.shape[1]:
                    floors[query] = out.scores[query, -1] - slack


def _hide(
    scores: NDArray[np.float32],
    exclude: Sequence[NDArray[np.int32]],
    rows: NDArray[np.int32] | None,
    start: int,
    stop: int,
) -> None:
    """Set the scores of excluded rows to -inf within the block [start, stop) of eligible positions."""
    for query, hidden in enumerate(exclude):
        if rows is None:
            positions: NDArray[np.signedinteger] = hidden
        else:
            places = np.minimum(np.searchsorted(rows, hidden), len(rows) - 1)
            positions = places[rows[places] == hidden]
        inside = positions[(positions >= start) & (positions < stop)]
        scores[query, inside - start] = -np.inf


def _candidates(scores: NDArray[np.float32], k: int, floor: np.float32, slack: float) -> NDArray[np.intp]:
    """Return the positions whose exact score may be among the best k: ``slack`` covers float32 rounding."""
    if floor == -2.0 and len(scores) > k:
        floor = max(floor, np.partition(scores, len(scores) - k)[len(scores) - k] - np.float32(slack))
    return np.flatnonzero(scores >= floor)


def _merge(vectors: Vectors, query: Vectors, found: NDArray[np.int32], out: SearchResult, place: int) -> None:
    """Merge ``found``, all of higher row than what ``out`` holds for the query, by exact score."""
    held = int(out.found[place])
    rows = np.concatenate([out.rows[place, :held], found])
    scores = np.concatenate([out.scores[place, :held], _score(vectors, query, found)])
    order = np.argsort(-scores, kind="stable")[: out.rows.shape[1]]
    out.rows[place, : len(order)] = rows[order]
    out.scores[place, : len(order)] = scores[order]
    out.found[place] = len(order)


def _score(vectors: Vectors, query: Vectors, rows: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return float32 dot products summed in float64, so that equal vectors score equally wherever they stand."""
    wide = query.astype(np.float64)
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), _RESCORE_ROWS):
        part = rows[start : start + _RESCORE_ROWS]
        scores[start : start + len(part)] = np.einsum("ij,j->i", vectors[part].astype(np.float64), wide)
    return scores
