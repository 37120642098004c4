"""What is added to the similarity of some items before a list is cut: for repeats and for trends.

A bonus is never negative, so no wider search is needed: where the index gives the k best by similarity, whatever lies
beyond them and has no bonus still lies below k items. The k best of the list and of all items that have a bonus are the
k best of all eligible items. NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOTHING_RAISED", "Raised", "join", "lift", "lift_lists"]

Rows = NDArray[np.int32]
Scores = NDArray[np.float32]


class Raised(NamedTuple):
    """Items of one query that have a bonus.

    Attributes:
        rows: int32 [m], distinct and rising.
        bonus: float32 [m], each >= 0.
    """

    rows: Rows
    bonus: Scores

    def among(self, mask: NDArray[np.bool_]) -> Raised:
        """Return those where ``mask`` [m] holds."""
        return Raised(self.rows[mask], self.bonus[mask])


NOTHING_RAISED = Raised(np.zeros(0, np.int32), np.zeros(0, np.float32))


def join(one: Raised, other: Raised) -> Raised:
    """Return the items of both; one that is in both has the sum.

    Example:
        >>> a = Raised(np.array([1, 4], np.int32), np.array([0.5, 0.5], np.float32))
        >>> b = Raised(np.array([4, 9], np.int32), np.array([0.25, 0.25], np.float32))
        >>> [column.tolist() for column in join(a, b)]
        [[1, 4, 9], [0.5, 0.75, 0.25]]
    """
    if not len(one.rows) or not len(other.rows):
        return other if not len(one.rows) else one
    rows = np.union1d(one.rows, other.rows).astype(np.int32)
    bonus = np.zeros(len(rows), np.float32)
    for part in (one, other):
        bonus[rows.searchsorted(part.rows)] += part.bonus
    return Raised(rows, bonus)


def lift(rows: Rows, scores: Scores, query: Scores, raised: Raised, *, vectors: Scores, k: int) -> tuple[Rows, Scores]:
    """Return the ``k`` best of a search result and of the items that have a bonus.

    Args:
        rows: int32 [n], eligible rows by similarity, best first.
        scores: float32 [n], their similarities.
        query: float32 [dim], unit norm.
        raised: eligible items that have a bonus.
        vectors: float32 [items, dim], unit norm.
        k: length of the list.

    Returns:
        int32 rows and float32 scores with the bonus, best first, of equal scores the lower row; at most ``k`` of them.
    """
    own = raised.rows
    if not len(own):
        return rows[:k], scores[:k]
    places = np.minimum(own.searchsorted(rows), len(own) - 1)
    fresh = own[places] != rows
    lifted = vectors.take(own, axis=0) @ query + raised.bonus
    all_rows, all_scores = np.concatenate([rows[fresh], own]), np.concatenate([scores[fresh], lifted])
    best = np.lexsort((all_rows, -all_scores))[:k]
    return all_rows[best], all_scores[best]


def lift_lists(
    rows: Rows, scores: Scores, queries: Scores, raised: Sequence[Raised], *, vectors: Scores
) -> tuple[Rows, Scores]:
    """Do the same for a batch of padded results.

    Args:
        rows: int32 [queries, k], padded with -1.
        scores: float32 [queries, k], padded with -inf.
        queries: float32 [queries, dim], unit norm.
        raised: of each query, eligible items only.
        vectors: float32 [items, dim], unit norm.

    Returns:
        Rows and scores of the same shapes, padded alike.
    """
    k = rows.shape[1]
    lifted, summed = np.full_like(rows, -1), np.full_like(scores, -np.inf)
    for place, own in enumerate(raised):
        found = rows[place] >= 0
        one, two = lift(rows[place][found], scores[place][found], queries[place], own, vectors=vectors, k=k)
        lifted[place, : len(one)], summed[place, : len(two)] = one, two
    return lifted, summed
