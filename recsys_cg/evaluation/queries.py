"""The queries of an evaluation: chosen, put in order of time, and told which items were candidates.

Systems see batches in order of time. Which items are alive changes with time, so the rule "candidates are the items
alive at the query's time" is handed over in two exact parts: a mask of the items alive at any time of the batch, and a
list a query of what is excluded for it alone (seen items, and items of the mask that were not alive at its time).
The cost of the second part is bounded: a batch is halved until queries x items that change within it is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.errors import DataError
from recsys_cg.evaluation.ragged import Ragged

__all__ = ["EXCLUDE", "QUERY", "Batch", "Lifetimes", "QuerySet", "prepare_queries"]

QUERY: Final = "query"
"""Column that the protocol adds: the query's row in the table it came from."""
EXCLUDE: Final = "exclude"
"""Column that the protocol adds: item_rows that may not be recommended to this query."""

_CHANGES = 1 << 22  # queries x items that change within one batch
_BLOCK = 8192
_ALWAYS: Final = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Lifetimes:
    """When each item is a candidate: ``start <= time < stop``; both [items] int64 microseconds UTC."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    @classmethod
    def of(cls, items: pa.Table) -> Lifetimes:
        """Read ``available_from_us`` and ``available_until_us``; a null bound is open.

        Where there is a catalogue, an item outside of it is never alive: a release never answers with it either.
        """
        start, stop = (
            pc.fill_null(items.column(name), value).to_numpy()
            for name, value in zip(("available_from_us", "available_until_us"), _ALWAYS, strict=True)
        )
        listed = items.column("in_catalogue").to_numpy()
        return cls(start, np.where(listed, stop, _ALWAYS[0]) if listed.any() else stop)

    def alive(self, items: NDArray[Any], times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return, element by element with broadcasting, whether the items are alive at the times."""
        result: NDArray[np.bool_] = (self.start[items] <= times) & (times < self.stop[items])
        return result

    def ever_alive(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[items] whether the item is alive at one of ``times``, which are ascending."""
        met: NDArray[np.bool_] = np.searchsorted(times, self.start) < np.searchsorted(times, self.stop)
        return met


@dataclass(frozen=True)
class Batch:
    """Consecutive queries and what may be recommended to them.

    Attributes:
        first: position of the first query in the query set.
        table: the queries with the columns `QUERY` and `EXCLUDE` added.
        allow: [items] mask of the candidates, None when every item is one.
    """

    first: int
    table: pa.Table
    allow: NDArray[np.bool_] | None


@dataclass(frozen=True)
class QuerySet:
    """Queries in order of time, each with at least one target that was a candidate.

    Attributes:
        table: queries schema plus `QUERY`.
        targets: distinct candidate item_rows of each query.
        users: [queries] code of the user, from 0.
        user_count: number of distinct users.
        lifetimes: when each item is alive.
        filter_seen: whether the items of a query's past are excluded.
        selection: what was left out, for the report.
    """

    table: pa.Table
    targets: Ragged
    users: NDArray[np.int64]
    user_count: int
    lifetimes: Lifetimes
    filter_seen: bool
    selection: dict[str, Any]

    @property
    def count(self) -> int:
        """Number of queries."""
        return int(self.table.num_rows)

    @property
    def times(self) -> NDArray[np.int64]:
        """[queries] time of each query, ascending."""
        times: NDArray[np.int64] = self.table.column("time_us").to_numpy()
        return times

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the queries in batches of at most ``rows``."""
        first, times = 0, self.times
        while first < self.count:
            stop = min(first + rows, self.count)
            while stop - first > 1 and (stop - first) * int(self._changing(times[first:stop]).sum()) > _CHANGES:
                stop = first + (stop - first) // 2
            yield self._batch(first, stop, times[first:stop])
            first = stop

    def _changing(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[items] alive at some of the ascending ``times`` but not known to be alive at all of them."""
        through = (self.lifetimes.start <= times[0]) & (times[-1] < self.lifetimes.stop)
        changing: NDArray[np.bool_] = self.lifetimes.ever_alive(times) & ~through
        return changing

    def _batch(self, first: int, stop: int, times: NDArray[np.int64]) -> Batch:
        table = self.table.slice(first, stop - first)
        allow = self.lifetimes.ever_alive(times)
        changing = np.flatnonzero(self._changing(times))
        dead = ~self.lifetimes.alive(changing[None, :], times[:, None])
        owners, columns = np.nonzero(dead)
        values = changing[columns].astype(np.int32)
        if self.filter_seen:
            seen = Ragged.from_column(table, "seen")
            owners, values = np.concatenate((owners, seen.owners)), np.concatenate((values, seen.values))
            order = np.argsort(owners, kind="stable")
            owners, values = owners[order], values[order]
        exclude = Ragged.from_owners(values.astype(np.int32), owners, stop - first)
        table = table.append_column(EXCLUDE, exclude.to_arrow())
        return Batch(first, table, None if allow.all() else allow)


def prepare_queries(queries: pa.Table, items: pa.Table, *, filter_seen: bool, max_queries: int, seed: int) -> QuerySet:
    """Choose, order and check the queries.

    Targets that were no candidates (already seen, when seen items are filtered, or not alive at the query's time) are
    left out and counted; so are queries that keep no target. Beyond ``max_queries`` a seeded sample is used.

    Raises:
        DataError: a target or seen item is no row of ``items``.
    """
    lifetimes = Lifetimes.of(items)
    given = queries.num_rows
    rows = np.arange(given)
    if given > max_queries:
        rows = np.sort(np.random.default_rng(seed).choice(given, max_queries, replace=False))
    table = queries.take(rows).append_column(QUERY, pa.array(rows, pa.int64()))
    table = table.take(np.argsort(table.column("time_us").to_numpy(), kind="stable"))
    targets, lost = _candidate_targets(table, items.num_rows, lifetimes, filter_seen=filter_seen)
    kept = np.flatnonzero(targets.lengths > 0)
    table, targets = table.take(kept), targets.take(kept)
    codes = table.column("user_id").combine_chunks().dictionary_encode()
    selection = {
        "queries_given": given,
        "queries_sampled": len(rows),
        "queries_without_candidate_target": len(rows) - len(kept),
        "targets": len(targets.values),
        **lost,
    }
    return QuerySet(
        table=table,
        targets=targets,
        users=codes.indices.to_numpy().astype(np.int64),
        user_count=len(codes.dictionary),
        lifetimes=lifetimes,
        filter_seen=filter_seen,
        selection=selection,
    )


def _candidate_targets(
    table: pa.Table, items: int, lifetimes: Lifetimes, *, filter_seen: bool
) -> tuple[Ragged, dict[str, int]]:
    """Return the distinct targets that were candidates, and how many were left out by reason."""
    values, owners, lost = [], [], {"targets_seen_before": 0, "targets_not_alive": 0}
    times = table.column("time_us").to_numpy()
    for start in range(0, table.num_rows, _BLOCK):
        block = table.slice(start, _BLOCK)
        keys = np.unique(_keys(block, "targets", items))
        if filter_seen:
            seen = _member(keys, np.sort(_keys(block, "seen", items)))
            lost["targets_seen_before"] += int(seen.sum())
            keys = keys[~seen]
        query, item = start + keys // items, keys % items
        alive = lifetimes.alive(item, times[query])
        lost["targets_not_alive"] += int((~alive).sum())
        owners.append(query[alive])
        values.append(item[alive].astype(np.int32))
    if not values:
        return Ragged(np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)), lost
    return Ragged.from_owners(np.concatenate(values), np.concatenate(owners), table.num_rows), lost


def _keys(block: pa.Table, column: str, items: int) -> NDArray[np.int64]:
    """Return one integer a (query, item) pair of a list column."""
    lists = Ragged.from_column(block, column)
    if len(lists.values) and (lists.values.min() < 0 or lists.values.max() >= items):
        raise DataError(f"queries: column {column} holds an item_row outside 0 .. {items - 1}, the items table")
    keys: NDArray[np.int64] = lists.owners * max(items, 1) + lists.values
    return keys


def _member(keys: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each key is in ``ascending`` (a binary search: np.isin hashes the long side)."""
    if not len(ascending):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    result: NDArray[np.bool_] = ascending[places] == keys
    return result
