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


def mark_excluded(rows: Rows, exclude: Sequence[Rows], hidden: Rows | None = None) -> NDArray[np.bool_]:
    """Return where ``rows`` [queries, width] holds a row that its query excludes.

    Each query gets a table of slots that hold one excluded row each, found by the low bits of the row. Rows that lost
    their slot to another take it in a further round, for which only the entries that met a strange row are looked at.

    Args:
        rows: int32 [queries, width].
        exclude: one int32 array of rows a query.
        hidden: all of ``exclude`` joined, where the caller has it already.
    """
    lengths = np.fromiter(map(len, exclude), dtype=np.int64, count=len(exclude))
    slots = 1 << int(max(4, lengths.max() * _SLOTS_PER_ROW - 1)).bit_length()
    if slots * len(rows) > _MAX_SLOTS and len(rows) > 1:
        half = len(rows) // 2
        return np.concatenate([mark_excluded(rows[:half], exclude[:half]), mark_excluded(rows[half:], exclude[half:])])
    if hidden is None:
        hidden = np.concatenate(exclude)
    starts = np.arange(0, len(rows) * slots, slots)
    places = np.bitwise_and(hidden, slots - 1, dtype=np.intp)
    places += np.repeat(starts, lengths)
    asked = np.bitwise_and(rows, slots - 1, dtype=np.intp)
    asked += starts[:, None]
    table = _empty_table(len(rows) * slots)
    table[places] = hidden
    held = table.take(asked)
    marked: NDArray[np.bool_] = held == rows
    lost = table.take(places) != hidden
    if lost.any():
        _mark_lost(table, (hidden[lost], places[lost]), (rows, asked, (held >= 0) & ~marked), marked)
    table[places] = -1
    return marked


def _mark_lost(
    table: Rows,
    lost: tuple[Rows, NDArray[np.intp]],
    strange: tuple[Rows, NDArray[np.intp], NDArray[np.bool_]],
    marked: NDArray[np.bool_],
) -> None:
    """Mark the excluded rows that found their slot taken: ``lost`` with their places, met by none but ``strange``."""
    hidden, places = lost
    rows, asked, is_strange = strange
    where = np.flatnonzero(is_strange)
    values, slots = rows.take(where), asked.take(where)
    flat = marked.reshape(-1)
    while len(hidden):
        table[places] = hidden
        flat[where[table.take(slots) == values]] = True
        waiting = table.take(places) != hidden
        hidden, places = hidden[waiting], places[waiting]


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
    kept = np.count_nonzero(keep, axis=1)
    found = np.minimum(kept, k).astype(np.int32)
    if len(rows) and int(kept.min()) >= k:
        places = np.flatnonzero(keep).take((np.cumsum(kept) - kept)[:, None] + np.arange(k))
        return SearchResult(rows.take(places), scores.take(places), found)
    rank = np.cumsum(keep, axis=1, dtype=np.int32)
    taken = keep & (rank <= k)
    result = SearchResult.padded(len(rows), k)
    query, column = np.nonzero(taken)
    place = rank[query, column] - 1
    result.rows[query, place] = rows[query, column]
    result.scores[query, place] = scores[query, column]
    result.found[:] = found
    return result
