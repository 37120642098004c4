"""Bestsellers: of the whole training window, and of the last hours before each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.evaluation.baselines.sessions import Sessions
from recsys_cg.evaluation.queries import EXCLUDE
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.evaluation.ranking import top_k
from recsys_cg.trends import first_targets

__all__ = ["Popularity", "RecentPopularity", "events_of"]

_CELLS = 1 << 23
_HOUR_US = 3_600_000_000


class Popularity:
    """Recommend the items with the most training interactions; ties by item_row."""

    name = "popularity"

    def __init__(self, train_counts: NDArray[np.int64]) -> None:
        self.settings: Mapping[str, Any] = {}
        self._order = np.lexsort((np.arange(len(train_counts)), -train_counts)).astype(np.int32)

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """Take the first k of one ranking that are not excluded; see `System.recommend`."""
        order = self._order if allow is None else self._order[allow[self._order]]
        excluded = Ragged.from_column(batch, EXCLUDE)
        longest = int(excluded.lengths.max(initial=0))
        head = order[: k + longest]
        places = np.full(len(self._order), -1, dtype=np.int64)
        places[head] = np.arange(len(head))
        barred = np.zeros((batch.num_rows, len(head)), dtype=np.bool_)
        inside = places[excluded.values] >= 0
        barred[excluded.owners[inside], places[excluded.values[inside]]] = True
        first = np.argsort(barred, axis=1, kind="stable")[:, :k]
        lists = np.full((batch.num_rows, k), -1, dtype=np.int32)
        taken = np.where(np.take_along_axis(barred, first, axis=1), -1, head[first])
        lists[:, : taken.shape[1]] = taken
        return lists


def events_of(sessions: Sessions, evaluation: Sequence[pa.Table]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (times ascending, item_rows) of all training interactions and of `recsys_cg.trends.first_targets`."""
    times, rows = [sessions.times_us], [sessions.item_rows.values]
    for queries in evaluation:
        when, what = first_targets(queries)
        times.append(when)
        rows.append(what)
    all_times, all_rows = np.concatenate(times), np.concatenate(rows)
    order = np.argsort(all_times, kind="stable")
    return all_times[order], all_rows[order].astype(np.int32)


class RecentPopularity:
    """Recommend the items with the most interactions in the hours strictly before the query.

    An interaction at time t counts for a query at time T when ``T - window <= t < T``. Items without one follow by
    training popularity.

    Args:
        times: [events] int64 ascending.
        item_rows: [events] int32.
        items: number of items; item_row is the rank by training popularity.
        hours: the window.
    """

    name = "popularity_recent"

    def __init__(self, times: NDArray[np.int64], item_rows: NDArray[np.int32], items: int, *, hours: float) -> None:
        self.settings: Mapping[str, Any] = {"hours": hours}
        self._times, self._rows, self._items = times, item_rows, items
        self._window_us = round(hours * _HOUR_US)

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """Count the window of each query; see `System.recommend`."""
        times = batch.column("time_us").to_numpy()
        starts = np.searchsorted(self._times, times - self._window_us, side="left")
        stops = np.searchsorted(self._times, times, side="left")
        lists = np.full((batch.num_rows, k), -1, dtype=np.int32)
        start = 0
        while start < batch.num_rows:
            columns, stop = self._columns(batch, start, starts, stops, k=k, allow=allow)
            part = slice(start, stop)
            scores = self._count(starts[part], stops[part], columns)
            excluded = Ragged.from_column(batch.slice(start, stop - start), EXCLUDE)
            places = np.full(self._items, -1, dtype=np.int64)
            places[columns] = np.arange(len(columns))
            inside = places[excluded.values] >= 0
            scores[excluded.owners[inside], places[excluded.values[inside]]] = -np.inf
            found = top_k(scores, k)
            lists[part] = np.where(found >= 0, columns[found], -1)
            start = stop
        return lists

    def _columns(
        self,
        batch: pa.Table,
        start: int,
        starts: NDArray[np.int64],
        stops: NDArray[np.int64],
        *,
        k: int,
        allow: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], int]:
        """Return (ascending item_rows that can be in a list, end of the queries that fit in memory with them)."""
        possible = np.zeros(self._items, dtype=np.bool_)
        possible[self._rows[starts[start:].min() : stops[start:].max()]] = True
        if allow is not None:
            possible &= allow
        excluded = Ragged.from_column(batch.slice(start), EXCLUDE)
        spare = k + int(excluded.lengths.max(initial=0))
        popular = np.arange(self._items) if allow is None else np.flatnonzero(allow)
        possible[popular[:spare]] = True
        columns = np.flatnonzero(possible)
        return columns, min(batch.num_rows, start + max(1, _CELLS // max(1, len(columns))))

    def _count(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return [queries, columns] events in each query's window, moving the window from query to query."""
        counts = np.zeros(self._items, dtype=np.float32)
        scores = np.empty((len(starts), len(columns)), dtype=np.float32)
        low = high = int(starts[0])
        for query, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if stop < high or start < low:
                counts[:] = 0.0
                low = high = start
            np.add.at(counts, self._rows[high:stop], np.float32(1.0))
            np.subtract.at(counts, self._rows[low:start], np.float32(1.0))
            low, high = start, stop
            scores[query] = counts[columns]
        return scores
