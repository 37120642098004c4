"""What every index promises, whatever finds the neighbours: the result, the protocol, the search contract.

The contract, which `tests/contracts/retriever.py` holds every backend to:

- k results whenever k eligible items exist; fewer only when fewer exist, and ``found`` says so;
- a row is never padded into a result, repeated, excluded, or outside the allow-list;
- scores fall along a list; equal scores are ordered by row, lowest first;
- exact search answers a query alike in every batch; ScaNN may look into other partitions for a query in a batch
  than for the same query alone, and so find other neighbours at the margin of its recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["PADDING_ROW", "Allow", "Exclude", "Retriever", "SearchResult", "Vectors"]

PADDING_ROW = -1
"""Row written behind the last result of a query that has fewer than k eligible items."""

Vectors: TypeAlias = NDArray[np.float32]
Exclude: TypeAlias = Sequence[NDArray[np.integer[Any]] | Sequence[int]]
Allow: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_] | Sequence[int]


class SearchResult(NamedTuple):
    """Neighbours of a batch of queries, best first.

    Attributes:
        rows: int32 [queries, k], item rows, padded with -1.
        scores: float32 [queries, k], dot products in [-1, 1], padded with -inf. A similarity, not a probability.
        found: int32 [queries], how many of the k are results; the rest is padding.
    """

    rows: NDArray[np.int32]
    scores: NDArray[np.float32]
    found: NDArray[np.int32]

    @classmethod
    def padded(cls, queries: int, k: int) -> SearchResult:
        """Return a result of ``queries`` lists of length ``k`` that hold padding only."""
        return cls(
            np.full((queries, k), PADDING_ROW, dtype=np.int32),
            np.full((queries, k), -np.inf, dtype=np.float32),
            np.zeros(queries, dtype=np.int32),
        )


class Retriever(Protocol):
    """A searchable set of unit vectors; safe to search from several threads at once.

    Attributes:
        kind: the backend, ``"exact"`` or ``"scann"``.
        is_exact: whether the k best are always the k best; False where recall is below one.
        size: number of vectors.
        dim: their dimension.
        why: one sentence that says why this backend answers.
    """

    kind: str
    is_exact: bool
    size: int
    dim: int
    why: str

    def search(
        self, queries: Vectors, k: int, *, exclude: Exclude | None = None, allow: Allow | None = None
    ) -> SearchResult:
        """Return the ``k`` eligible rows of highest dot product for each query, under the contract above.

        Args:
            queries: float [queries, dim] of unit norm; no query gives an empty result.
            k: list length, at least 1; it may be larger than the index.
            exclude: one array of rows a query that must not be returned, in any order, repeats allowed.
            allow: the rows that may be returned, for the whole batch: row numbers, or a bool mask [size].

        Raises:
            SearchError: k below 1, a NaN or infinite query, a wrong shape, or a row outside [0, size).
            MetricMismatchError: a query that is not of unit norm.
        """
