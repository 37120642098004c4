"""Near-duplicates of a catalogue: items whose vectors all but coincide, which recommendations would repeat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsys_cg.index.base import Retriever, Vectors

__all__ = ["DuplicatePairs", "find_near_duplicates", "group_duplicates"]

_BATCH = 256


@dataclass(frozen=True)
class DuplicatePairs:
    """Pairs of items of high similarity, most similar first, equal ones by rows.

    Attributes:
        rows: int32 [pairs, 2], the lower row first; each pair once.
        similarities: float32 [pairs], dot products of the unit vectors.
        truncated: int32 [items], rows with at least as many near-duplicates as were looked at: they may have more.
    """

    rows: NDArray[np.int32]
    similarities: NDArray[np.float32]
    truncated: NDArray[np.int32]


def find_near_duplicates(
    retriever: Retriever, vectors: Vectors, *, least: float = 0.98, neighbours: int = 20
) -> DuplicatePairs:
    """Search every item's nearest others and keep the pairs at or above ``least``.

    With an approximate retriever a pair is missed where neither item finds the other.

    Args:
        retriever: an index over ``vectors``.
        vectors: float32 [items, dim] of unit norm.
        least: lowest dot product of a pair, in (0, 1].
        neighbours: others looked at for each item; at least 1.

    Raises:
        ValueError: ``least`` or ``neighbours`` outside its range.
    """
    if not 0.0 < least <= 1.0 or neighbours < 1:
        raise ValueError(f"least = {least} must be in (0, 1] and neighbours = {neighbours} at least 1")
    found: list[NDArray[np.int64]] = [np.empty((0, 2), dtype=np.int64)]
    scores: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)]
    truncated: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(vectors), _BATCH):
        own = np.arange(start, min(start + _BATCH, len(vectors)), dtype=np.int32)
        result = retriever.search(vectors[own], neighbours, exclude=list(own[:, None]))
        near = result.scores >= np.float32(least - 1e-6)
        query, column = np.nonzero(near)
        found.append(np.sort(np.stack([own[query], result.rows[query, column]], axis=1).astype(np.int64), axis=1))
        scores.append(result.scores[query, column])
        truncated.append(own[near.all(axis=1)].astype(np.int64))
    pairs, first = np.unique(np.concatenate(found), axis=0, return_index=True)
    similarities = np.concatenate(scores)[first]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -similarities))
    return DuplicatePairs(
        pairs[order].astype(np.int32), similarities[order], np.concatenate(truncated).astype(np.int32)
    )


def group_duplicates(pairs: NDArray[np.int32]) -> list[list[int]]:
    """Return the groups that ``pairs`` join, directly or through others: each ascending, ordered by first row.

    Example:
        >>> group_duplicates(np.array([[0, 4], [2, 3], [4, 7]], dtype=np.int32))
        [[0, 4, 7], [2, 3]]
    """
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        while parent.setdefault(row, row) != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for one, other in pairs.tolist():
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for row in sorted(parent):
        groups.setdefault(root(row), []).append(row)
    return list(groups.values())
