"""Take excluded, padded and disallowed rows out of what native search returned. NumPy only.

Every function works on a whole batch at once; a few passes over small arrays, so that the contract costs little
beside the search itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recsys_cg.index.base import SearchResult

__all__ = ["keep_best", "mark_excluded"]

Rows = NDArray[np.int32]
Scores = NDArray[np.float32]

_SLOTS_PER_ROW = 16
_MAX_SLOTS = 1 << 19
_local = threading.local()


def mark_excluded(rows: Rows, exclude: Sequence[Rows]) -> NDArray[np.bool_]:
    """Return where ``rows`` [queries, width] holds a row that its query excludes.

    Each query gets a table of slots that hold one excluded row each, found by the low bits of the row. The rows
    that lost their slot to another are compared one by one; they are few while the table is sparse.

    Example:
        >>> rows = np.array([[4, 8]], dtype=np.int32)
        >>> mark_excluded(rows, [np.array([8, 15], dtype=np.int32)]).tolist()
        [[False, True]]
    """
    lengths = np.fromiter(map(len, exclude), dtype=np.int64, count=len(exclude))
    slots = 1 << int(max(4, lengths.max() * _SLOTS_PER_ROW - 1)).bit_length()
    if slots * len(rows) > _MAX_SLOTS and len(rows) > 1:
        half = len(rows) // 2
        return np.concatenate([mark_excluded(rows[:half], exclude[:half]), mark_excluded(rows[half:], exclude[half:])])
    hidden = np.concatenate(exclude)
    starts = np.arange(0, len(rows) * slots, slots, dtype=np.int32)
    places = (hidden & (slots - 1)) + np.repeat(starts, lengths)
    table = _empty_table(len(rows) * slots)
    table[places] = hidden
    marked: NDArray[np.bool_] = table[(rows & (slots - 1)) + starts[:, None]] == rows
    lost = np.flatnonzero(table[places] != hidden)
    table[places] = -1
    if len(lost):
        owner = places[lost] // slots
        query, column = np.nonzero(rows[owner] == hidden[lost, None])
        marked[owner[query], column] = True
    return marked


def _empty_table(slots: int) -> Rows:
    """Return a table of -1 that this thread keeps; whoever writes to it puts the -1 back."""
    table: Rows | None = getattr(_local, "table", None)
    if table is None or len(table) < slots:
        table = _local.table = np.full(slots, -1, dtype=np.int32)
    return table[:slots]


def keep_best(rows: Rows, scores: Scores, keep: NDArray[np.bool_], k: int) -> SearchResult:
    """Return the first ``k`` kept entries of each line, padded where fewer are kept."""
    if rows.shape[1] >= k and keep[:, :k].all():
        found = np.full(len(rows), k, dtype=np.int32)
        return SearchResult(np.ascontiguousarray(rows[:, :k]), np.ascontiguousarray(scores[:, :k]), found)
    rank = np.cumsum(keep, axis=1, dtype=np.int32)
    taken = keep & (rank <= k)
    found = np.minimum(rank[:, -1], k) if rows.shape[1] else np.zeros(len(rows), dtype=np.int32)
    if (found == k).all():
        return SearchResult(rows[taken].reshape(-1, k), scores[taken].reshape(-1, k), found)
    result = SearchResult.padded(len(rows), k)
    query, column = np.nonzero(taken)
    place = rank[query, column] - 1
    result.rows[query, place] = rows[query, column]
    result.scores[query, place] = scores[query, column]
    result.found[:] = found
    return result
