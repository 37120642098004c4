"""Items that a user comes back to: how they are ranked among those that are new to the user.

Where people buy, play or read the same again, what a user met is the best guess of what comes next, and the longer the
history the less of it a query vector can hold: the sum of a hundred unit vectors in 64 dimensions lies about as near to
strangers as to its own terms. A lookup has the history at hand, so what the query tower cannot say is added to the
score: a bonus for every item of the history that the encoder reads, one number of the encoder, fitted on validation
queries. It is the repeat mode of RepeatNet (Ren et al. 2019) reduced to what an index of dot products can serve. What
the user met longer ago gets none: on Online Retail a bonus for everything ever bought found less. NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["REPEAT_BONUSES", "Repeats", "lift_lists", "lift_repeats"]

REPEAT_BONUSES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0)
"""Bonuses that are tried; 2, the width of the range of a cosine, ranks all that the user met before all else."""

Rows = NDArray[np.int32]
Scores = NDArray[np.float32]


def lift_repeats(
    rows: Rows, scores: Scores, query: Scores, own: Rows, *, vectors: Scores, bonus: float, k: int
) -> tuple[Rows, Scores]:
    """Return the ``k`` best of a search result and a user's own items, the scores of these raised by ``bonus``.

    No wider search is needed: where ``rows`` are the k best by similarity, whatever lies beyond them lies below k items
    still, since raising moves own items upwards only. The answer is the k best of all eligible items.

    Args:
        rows: int32 [n], eligible rows by similarity, best first.
        scores: float32 [n], their similarities.
        query: float32 [dim], unit norm.
        own: int32 [m], distinct eligible rows that the user met, rising.
        vectors: float32 [items, dim], unit norm.
        bonus: >= 0.
        k: length of the list.

    Returns:
        int32 rows and float32 raised scores, best first, of equal scores the lower row; at most ``k`` of them.
    """
    if not len(own):
        return rows[:k], scores[:k]
    places = np.minimum(own.searchsorted(rows), len(own) - 1)
    fresh = own[places] != rows
    raised = vectors.take(own, axis=0) @ query + np.float32(bonus)
    all_rows, all_scores = np.concatenate([rows[fresh], own]), np.concatenate([scores[fresh], raised])
    best = np.lexsort((all_rows, -all_scores))[:k]
    return all_rows[best], all_scores[best]


def lift_lists(
    rows: Rows, scores: Scores, queries: Scores, own: Sequence[Rows], *, vectors: Scores, bonus: float
) -> tuple[Rows, Scores]:
    """Do the same for a batch of padded results.

    Args:
        rows: int32 [queries, k], padded with -1.
        scores: float32 [queries, k], padded with -inf.
        queries: float32 [queries, dim], unit norm.
        own: for each query distinct eligible rows, rising.
        vectors: float32 [items, dim], unit norm.
        bonus: >= 0.

    Returns:
        Rows and raised scores of the same shapes, padded alike.
    """
    k = rows.shape[1]
    lifted, raised = np.full_like(rows, -1), np.full_like(scores, -np.inf)
    for place, mine in enumerate(own):
        found = rows[place] >= 0
        one, two = lift_repeats(
            rows[place][found], scores[place][found], queries[place], mine, vectors=vectors, bonus=bonus, k=k
        )
        lifted[place, : len(one)], raised[place, : len(two)] = one, two
    return lifted, raised


class Repeats(NamedTuple):
    """What it takes to rank items of the history among new ones.

    Attributes:
        vectors: float32 [items, dim], unit norm.
        bonus: of the encoder.
        max_history: events of a history that the encoder reads, the last ones.
    """

    vectors: Scores
    bonus: float
    max_history: int

    def lift(self, rows: Rows, scores: Scores, queries: Scores, own: Sequence[Rows]) -> tuple[Rows, Scores]:
        """Return `lift_lists` of a batch of results."""
        return lift_lists(rows, scores, queries, own, vectors=self.vectors, bonus=self.bonus)
