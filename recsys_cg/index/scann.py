"""Approximate search by ScaNN under the search contract: over-fetch, then wider, then exact scoring.

ScaNN itself orders equal scores by row: among 1.7 million pairs of equal neighbours, alone and in batches, none was
out of order. The contract's tests hold it to that.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import SearchError
from recsys_cg.index.base import Allow, Exclude, SearchResult, Vectors
from recsys_cg.index.exact import search_exactly
from recsys_cg.index.filtering import keep_best, mark_excluded
from recsys_cg.index.requests import (
    LEAST_SQUARE,
    MOST_SQUARE,
    check_allow,
    check_exclude,
    check_k,
    check_queries,
    refuse_outside,
)

__all__ = ["Effort", "ScannRetriever", "TreeParameters"]

Rows = NDArray[np.int32]

_WIDER = 4
_PARALLEL_FROM = 64
_ALLOW_MARGIN = 1.3
_HEAVY = 256  # rows excluded by one query, from which it is searched apart from its batch
_INT32, _UINT32, _FLOAT32 = np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.float32)


@dataclass(frozen=True)
class TreeParameters:
    """How the tree was built and how far it is searched.

    Attributes:
        leaves: partitions of the tree.
        leaves_to_search: partitions looked into for a list of ``k``.
        reorder: candidates of the quantised scan that are scored again in float32, for a list of ``k``.
        k: list length that the two were tuned for.
    """

    leaves: int
    leaves_to_search: int
    reorder: int
    k: int


class Effort(NamedTuple):
    """What one native search is asked for: results, candidates scored again, partitions."""

    fetch: int
    reorder: int
    leaves: int


class _Eligible(NamedTuple):
    """Which rows may be returned: what each query excludes, and the allowed rows, also as a mask."""

    exclude: Sequence[Rows] | None = None
    allowed: Rows | None = None
    mask: NDArray[np.bool_] | None = None

    def of(self, places: NDArray[np.intp]) -> _Eligible:
        """Return the same for some of the queries."""
        exclude = None if self.exclude is None else [self.exclude[place] for place in places]
        return _Eligible(exclude, self.allowed, self.mask)


class ScannRetriever:
    """Search a ScaNN tree; whatever the tree cannot answer in full is scored exactly.

    Args:
        native: the searcher of ScaNN's pybind module (its inner object), built on ``vectors``.
        vectors: float32 [size, dim] of unit norm, for exact scoring; may be a memory map.
        parameters: the tuned parameters.
        threads: native threads for batches; 1 searches in the calling thread alone.
    """

    kind = "scann"
    is_exact = False

    def __init__(
        self, native: Any, vectors: Vectors, parameters: TreeParameters, *, threads: int = 1, why: str = ""
    ) -> None:
        if threads < 1:
            # ScaNN ends the process on a batch search with zero or fewer threads.
            raise SearchError(f"threads = {threads}; give 1 or more")
        self._native, self._vectors, self.parameters = native, vectors, parameters
        self.size, self.dim = int(vectors.shape[0]), int(vectors.shape[1])
        self.why = why
        self._threads = threads
        self._local = threading.local()
        if threads > 1:
            native.set_num_threads(threads)

    def search(
        self, queries: Vectors, k: int, *, exclude: Exclude | None = None, allow: Allow | None = None
    ) -> SearchResult:
        """Return the ``k`` best eligible rows found; see `recsys_cg.index.base.Retriever.search`.

        Recall is the tuned one for lists up to the tuned k without an allow-list; longer lists search
        proportionally more of the tree. Narrow allow-lists, and lists that come near the size of the index,
        are scored exactly.
        """
        if allow is None and type(k) is int and type(queries) is np.ndarray and queries.shape == (1, self.dim):
            single = self._search_one(queries, k, exclude)
            if single is not None:
                return single
        checked = check_queries(queries, self.dim)
        length = check_k(k, len(checked))
        excluded = None if exclude is None else check_exclude(exclude, len(checked))
        if not len(checked):
            return SearchResult.padded(0, length)
        if allow is None:
            eligible = _Eligible(excluded)
        else:
            allowed = check_allow(allow, self.size)
            eligible = _Eligible(excluded, allowed, self._mask(allowed))
        if excluded is None or len(checked) == 1 or max(map(len, excluded)) <= _HEAVY:
            return self._answer(checked, length, eligible)
        return self._answer_apart(checked, length, eligible, np.fromiter(map(len, excluded), np.intp) > _HEAVY)

    def _search_one(self, queries: Vectors, k: int, exclude: Exclude | None) -> SearchResult | None:
        """Answer the common case, one query of plain types that comes out in full, in as few calls as it takes.

        A native search of a few partitions takes some 40 microseconds, and each call of NumPy after it one: this is
        what `_answer` does without its generality. None: the general way has to decide, or to refuse.
        """
        if queries.dtype != _FLOAT32 or not queries.flags.c_contiguous:
            return None
        query = queries[0]
        wide = query.astype(np.float64)  # squares of float32 cannot overflow
        if not LEAST_SQUARE <= wide.dot(wide).item() <= MOST_SQUARE:
            return None
        hidden = None if exclude is None else _only(exclude)
        if hidden is None and exclude is not None:
            return None
        excluded = 0 if hidden is None else len(hidden)
        tuned, fetch = self.parameters, k + excluded
        if not 0 < k <= tuned.k or _WIDER * fetch >= self.size:
            return None
        rows, scores = self._native.search(query, fetch, max(fetch, tuned.reorder + excluded), tuned.leaves_to_search)
        if excluded and hidden is not None:
            places = self._visible(rows, hidden).nonzero()[0][:k]
            rows, scores = rows.take(places), scores.take(places)
        if len(rows) < k:
            return None
        return SearchResult(rows.view(_INT32).reshape(1, k), scores.reshape(1, k), np.array([k], _INT32))

    def _answer_apart(self, queries: Vectors, k: int, eligible: _Eligible, heavy: NDArray[np.bool_]) -> SearchResult:
        """Search for the queries that exclude much apart, so that the others need not fetch as much as they."""
        result = SearchResult.padded(len(queries), k)
        for places in (np.flatnonzero(~heavy), np.flatnonzero(heavy)):
            if len(places):
                self._replace(result, places, self._answer(queries[places], k, eligible.of(places)))
        return result

    def _answer(self, queries: Vectors, k: int, eligible: _Eligible) -> SearchResult:
        exclude, allowed, _ = eligible
        longest = 0 if exclude is None else max(map(len, exclude))
        effort = self._plan(k, longest, self.size if allowed is None else len(allowed))
        if effort is None:
            return search_exactly(self._vectors, queries, k, exclude, allowed)
        result = self._attempt(queries, k, effort, eligible)
        if (result.found[0] if len(queries) == 1 else result.found.min()) < k:
            self._complete(result, queries, effort, eligible)
        return result

    def _mask(self, allowed: Rows) -> NDArray[np.bool_]:
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[allowed] = True
        return mask

    def _plan(self, k: int, excluded: int, allowed: int) -> Effort | None:
        """Return the effort of the first attempt, or None where exact scoring is cheaper.

        Measured at 100k and 1M vectors of 64 dimensions, tuned at k = 100: with the candidates scored again in
        proportion to k, and the partitions to its square root, recall at k = 1000 is no lower than at 100. One
        more candidate for each excluded row keeps it where half of a history of 50 lies among the nearest 150;
        where all of it does, a recall of .992 becomes .981.
        """
        wanted = k
        if allowed < self.size:
            if allowed * allowed <= 9 * k * self.size:
                return None
            wanted = math.ceil(_ALLOW_MARGIN * k * self.size / allowed)
        fetch = wanted + excluded
        if _WIDER * fetch >= self.size:
            return None
        tuned = self.parameters
        if wanted <= tuned.k:
            return Effort(fetch, min(self.size, max(fetch, tuned.reorder + excluded)), tuned.leaves_to_search)
        share = wanted / tuned.k
        return Effort(
            fetch=fetch,
            reorder=min(self.size, max(fetch, math.ceil(tuned.reorder * share) + excluded)),
            leaves=min(tuned.leaves, math.ceil(tuned.leaves_to_search * math.sqrt(share))),
        )

    def _attempt(self, queries: Vectors, k: int, effort: Effort, eligible: _Eligible) -> SearchResult:
        if len(queries) == 1:
            return self._attempt_one(queries[0], k, effort, eligible)
        parallel = self._threads > 1 and len(queries) >= _PARALLEL_FROM
        found, scores = self._native.search_batched(
            queries, effort.fetch, effort.reorder, effort.leaves, parallel, math.ceil(len(queries) / self._threads)
        )
        rows: Rows = found.view(np.int32)
        keep = scores == scores  # noqa: PLR0124 - NaN marks the padding of ScaNN, whose row 0 is no result
        if eligible.exclude is not None:
            hidden = np.concatenate(eligible.exclude)
            refuse_outside(hidden, self.size, "exclude")
            np.greater(keep, mark_excluded(rows, eligible.exclude, hidden), out=keep)
        if eligible.mask is not None:
            keep &= eligible.mask[rows]
        return keep_best(rows, scores, keep, k)

    def _attempt_one(self, query: Vectors, k: int, effort: Effort, eligible: _Eligible) -> SearchResult:
        found, scores = self._native.search(query, effort.fetch, effort.reorder, effort.leaves)
        rows: Rows = found.view(np.int32)
        if eligible.exclude is not None:
            keep = self._visible(rows, eligible.exclude[0])
            rows, scores = rows[keep], scores[keep]
        if eligible.mask is not None:
            keep = eligible.mask[rows]
            rows, scores = rows[keep], scores[keep]
        if len(rows) >= k:
            return SearchResult(rows[None, :k], scores[None, :k], np.array([k], dtype=np.int32))
        result = SearchResult.padded(1, k)
        result.rows[0, : len(rows)], result.scores[0, : len(rows)] = rows, scores
        result.found[0] = len(rows)
        return result

    def _visible(self, rows: Rows, hidden: Rows) -> NDArray[np.bool_]:
        """Return where ``rows`` are not in ``hidden``, by a mark for each item that each thread keeps for itself.

        Measured between searches, with the caches that they leave, this takes two thirds of the time of sorting
        ``hidden`` and half of that of a Python set.
        """
        marks: NDArray[np.bool_] | None = getattr(self._local, "marks", None)
        if marks is None:
            marks = self._local.marks = np.ones(self.size, dtype=np.bool_)
        places = hidden.view(_UINT32)  # as unsigned numbers, negative rows lie beyond the end too
        try:
            marks.put(places, False)
            visible: NDArray[np.bool_] = marks.take(rows)
            marks.put(places, True)
        except IndexError:
            marks.fill(True)
            refuse_outside(hidden, self.size, "exclude")
            raise
        return visible

    def _complete(self, result: SearchResult, queries: Vectors, effort: Effort, eligible: _Eligible) -> None:
        """Fill the short lists of ``result``: search wider, then score the eligible set exactly."""
        k = result.rows.shape[1]
        wider = Effort(
            fetch=min(self.size, _WIDER * effort.fetch),
            reorder=min(self.size, _WIDER * effort.reorder),
            leaves=min(self.parameters.leaves, _WIDER * effort.leaves),
        )
        short = np.flatnonzero(result.found < k)
        self._replace(result, short, self._attempt(queries[short], k, wider, eligible.of(short)))
        short = np.flatnonzero(result.found < k)
        if len(short):
            exclude = eligible.of(short).exclude
            exact = search_exactly(self._vectors, queries[short], k, exclude, eligible.allowed)
            self._replace(result, short, exact)

    @staticmethod
    def _replace(result: SearchResult, places: NDArray[np.intp], better: SearchResult) -> None:
        result.rows[places], result.scores[places], result.found[places] = better.rows, better.scores, better.found


def _only(exclude: Exclude) -> Rows | None:
    """Return the one list of ``exclude`` where it is a plain int32 array."""
    if len(exclude) != 1:
        return None
    hidden: Any = exclude[0]
    plain: Rows | None = hidden
    return plain if type(hidden) is np.ndarray and hidden.dtype == _INT32 and hidden.ndim == 1 else None
