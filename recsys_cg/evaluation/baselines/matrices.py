"""Training interactions and query histories as sparse matrices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from scipy import sparse

from recsys_cg.data.co_occurrence import Matrix
from recsys_cg.evaluation.baselines.sessions import Sessions
from recsys_cg.evaluation.ragged import Ragged

__all__ = ["history_matrix", "interaction_matrix"]


def interaction_matrix(sessions: Sessions, *, last: int | None = None) -> Matrix:
    """Return [users, items] float32 with 1 where the user met the item (in their ``last`` interactions)."""
    lists = sessions.item_rows if last is None else sessions.item_rows.last(last)
    ones = np.ones(len(lists.values), dtype=np.float32)
    # A copy: merging repeated meetings rewrites the arrays, and these are the sessions' own.
    matrix = sparse.csr_array((ones, lists.values, lists.offsets), shape=(lists.rows, sessions.items), copy=True)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def history_matrix(batch: pa.Table, items: int, *, decay: float, last: int | None = None) -> Matrix:
    """Return [queries, items] float32 weights of each query's history: ``decay ** age``.

    Age counts interactions from the end: 0 for the most recent. An item met more than once weighs as its most
    recent meeting.

    Args:
        batch: queries schema.
        items: number of items.
        decay: in (0, 1]; 1 forgets the order.
        last: only so many most recent interactions; None: the whole ``history`` column.
    """
    history = Ragged.from_column(batch, "history")
    if last is not None:
        history = history.last(last)
    keys = history.owners * items + history.values
    ages = history.positions_from_end
    order = np.lexsort((ages, keys))
    newest = np.ones(len(order), dtype=np.bool_)
    newest[1:] = keys[order[1:]] != keys[order[:-1]]
    kept = order[newest]
    weights = np.power(np.float32(decay), ages[kept].astype(np.float32))
    places = (history.owners[kept], history.values[kept])
    return sparse.coo_array((weights, places), shape=(batch.num_rows, items)).tocsr()
