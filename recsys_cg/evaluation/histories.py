"""The history columns of queries as the padded arrays that a query encoder takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.evaluation.ragged import Ragged

__all__ = ["Histories"]


@dataclass(frozen=True)
class Histories:
    """The last interactions of each query, oldest first, left-aligned.

    Attributes:
        rows: int32 [queries, length] item_rows, -1 in padding.
        gap_s: float32 [queries, length] seconds from an interaction to the next, from the last one to the query's
            time; at least 0, and 0 in padding.
        event: int32 [queries, length] event codes, 0 in padding.
        length: int32 [queries] interactions that are no padding.
    """

    rows: NDArray[np.int32]
    gap_s: NDArray[np.float32]
    event: NDArray[np.int32]
    length: NDArray[np.int32]

    @classmethod
    def of(cls, queries: pa.Table, max_history: int, *, known: NDArray[np.bool_] | None = None) -> Histories:
        """Read a table of the queries schema.

        Args:
            queries: ``history``, ``history_times_us``, ``history_events`` and ``time_us`` are read.
            max_history: most interactions kept, the most recent ones.
            known: [items] mask; interactions with other items are left out, and the gaps close over them.
        """
        items = Ragged.from_column(queries, "history")
        times = Ragged.from_column(queries, "history_times_us")
        events = Ragged.from_column(queries, "history_events")
        if known is not None:
            kept = known[items.values]
            items, times, events = items.keep(kept), times.keep(kept), events.keep(kept)
        items, times, events = items.last(max_history), times.last(max_history), events.last(max_history)
        following = np.append(times.values[1:], np.int64(0))
        filled = items.lengths > 0
        following[times.offsets[1:][filled] - 1] = queries.column("time_us").to_numpy()[filled]
        gaps = np.maximum(following - times.values, 0) / 1e6
        place = (items.owners, np.arange(len(items.values)) - np.repeat(items.offsets[:-1], items.lengths))
        shape = (queries.num_rows, max_history)
        result = cls(
            rows=np.full(shape, -1, dtype=np.int32),
            gap_s=np.zeros(shape, dtype=np.float32),
            event=np.zeros(shape, dtype=np.int32),
            length=items.lengths.astype(np.int32),
        )
        result.rows[place] = items.values
        result.gap_s[place] = gaps
        result.event[place] = events.values
        return result

    def look_up(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return float32 [queries, length, dim] rows of ``vectors`` [items, dim], zeros in padding."""
        if not len(vectors):
            return np.zeros((*self.rows.shape, vectors.shape[1]), dtype=np.float32)
        found = np.asarray(vectors[np.maximum(self.rows, 0)], dtype=np.float32)
        found[self.rows < 0] = 0.0
        return found
