"""Histories: training sequences, and evaluation queries that know only what came strictly before them.

Everything is offset arithmetic on flat arrays; no Python runs per user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cg.schema import queries_schema, sequences_schema

__all__ = ["Timeline", "evaluation_queries", "ragged_range", "training_sequences"]

_CHUNK_VALUES: Final = 4_000_000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Timeline:
    """Events of a group of users, ordered by user, time and item_id.

    Attributes:
        users: user_ids.
        user: int32 ``[n]``, position in ``users``, not decreasing.
        time_us: int64 ``[n]``.
        item_row: int32 ``[n]``.
        event: int8 ``[n]``, event codes.
        weight: float32 ``[n]``.
        context: columns ``c_<name>`` int32 ``[n]`` of `recsys_cg.data.context.ContextSet.encode`; None without.
    """

    users: pa.Array
    user: npt.NDArray[np.int32]
    time_us: npt.NDArray[np.int64]
    item_row: npt.NDArray[np.int32]
    event: npt.NDArray[np.int8]
    weight: npt.NDArray[np.float32]
    context: pa.Table | None = None

    def user_starts(self) -> Ints:
        """Return the position of each user's first event, and ``n`` behind them; int64 ``[users + 1]``."""
        counts = np.bincount(self.user, minlength=len(self.users))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def moment_starts(self) -> Ints:
        """Return for each event the position of the first event of its user and time; int64 ``[n]``."""
        count = len(self.user)
        is_new = np.ones(count, dtype=bool)
        is_new[1:] = (self.user[1:] != self.user[:-1]) | (self.time_us[1:] != self.time_us[:-1])
        return np.maximum.accumulate(np.where(is_new, np.arange(count), 0)) if count else np.zeros(0, dtype=np.int64)


def ragged_range(starts: Ints, lengths: Ints) -> Ints:
    """Return ``starts[i], starts[i] + 1, ...``, ``lengths[i]`` of each, one behind the other."""
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def training_sequences(timeline: Timeline, is_training: npt.NDArray[np.bool_]) -> pa.Table:
    """Return each user's training events as `recsys_cg.schema.sequences_schema`; users without any are left out.

    Args:
        timeline: all events.
        is_training: bool ``[n]``, the events to take.
    """
    user = timeline.user[is_training]
    counts = np.bincount(user, minlength=len(timeline.users)).astype(np.int64)
    present = np.flatnonzero(counts)
    offsets = _offsets(counts[present])
    columns = [
        timeline.users.take(pa.array(present)),
        _lists(offsets, timeline.item_row[is_training]),
        _lists(offsets, timeline.time_us[is_training]),
        _lists(offsets, timeline.event[is_training]),
        _lists(offsets, timeline.weight[is_training]),
    ]
    table = pa.table(columns, schema=sequences_schema)
    for name, codes in _context_columns(timeline):
        table = table.append_column(
            pa.field(name, pa.list_(pa.int32()), nullable=False), _lists(offsets, codes[is_training])
        )
    return table


def _context_columns(timeline: Timeline) -> Iterator[tuple[str, npt.NDArray[np.int32]]]:
    if timeline.context is not None:
        for name in timeline.context.column_names:
            yield name, timeline.context.column(name).to_numpy()


def evaluation_queries(
    timeline: Timeline,
    from_us: int,
    until_us: int,
    *,
    targets: Literal["next", "window"],
    max_history: int,
    exposures: pa.Table | None = None,
) -> Iterator[pa.Table]:
    """Yield the queries of the window ``[from_us, until_us)``, ordered by user, time and target.

    ``next`` asks one query an event, with that event's item as the target. ``window`` asks one query a user, at the
    time of the user's first event in the window, with all distinct items of the user's events in the window as
    targets, in order of time. Either way the history and ``seen`` hold what the user did strictly before the
    query's time: events of the same instant are left out.

    Args:
        timeline: all events of these users, of every window.
        from_us: start, inclusive.
        until_us: end, exclusive.
        targets: see above.
        max_history: newest items kept of a history.
        exposures: columns ``[n]`` that say how each event's item was shown, of
            `recsys_cg.data.impressions.exposures_of`; of the targets they are kept, as lists ``target_<column>`` beside
            ``targets``.

    Yields:
        tables of `recsys_cg.schema.queries_schema`, then the context at the event that is asked for, then the columns
        of ``exposures``; each of at most about four million list values, so that memory stays bounded where users have
        long pasts.
    """
    asked = np.flatnonzero((timeline.time_us >= from_us) & (timeline.time_us < until_us)).astype(np.int64)
    if not len(asked):
        return
    target_positions, target_counts = asked, np.ones(len(asked), dtype=np.int64)
    if targets == "window":
        target_positions = _first_meetings(timeline, asked)
        is_first = np.concatenate([[True], timeline.user[asked][1:] != timeline.user[asked][:-1]])
        asked = asked[is_first]
        counts = np.bincount(timeline.user[target_positions], minlength=len(timeline.users))
        target_counts = counts[timeline.user[asked]].astype(np.int64)
    pasts = _Pasts.of(timeline, asked, max_history)
    target_ends = np.cumsum(target_counts)
    for start, end in _cut(pasts.lengths + pasts.seen_lengths + target_counts):
        first = int(target_ends[start - 1]) if start else 0
        chosen = target_positions[first : int(target_ends[end - 1])]
        offsets = _offsets(target_counts[start:end])
        lists = _lists(offsets, timeline.item_row[chosen])
        table = _query_table(timeline, asked[start:end], lists, pasts.slice(start, end))
        for name, codes in _context_columns(timeline):
            table = table.append_column(pa.field(name, pa.int32(), nullable=False), pa.array(codes[asked[start:end]]))
        if exposures is not None:
            for name in exposures.column_names:
                values = exposures.column(name).combine_chunks().take(pa.array(chosen))
                table = table.append_column(f"target_{name}", pa.ListArray.from_arrays(pa.array(offsets), values))
        yield table


@dataclass(frozen=True)
class _Pasts:
    """Where each query's history and seen items lie: ranges of the timeline and of ``meetings``."""

    starts: Ints
    lengths: Ints
    totals: Ints
    meetings: Ints
    seen_starts: Ints
    seen_lengths: Ints

    @classmethod
    def of(cls, timeline: Timeline, asked: Ints, max_history: int) -> _Pasts:
        begins = timeline.user_starts()
        user_start = begins[timeline.user[asked]]
        moment = timeline.moment_starts()[asked]
        users = np.unique(timeline.user[asked])
        own = ragged_range(begins[users], begins[users + 1] - begins[users])
        meetings = _first_meetings(timeline, own)
        seen_starts = np.searchsorted(meetings, user_start)
        return cls(
            starts=np.maximum(user_start, moment - max_history),
            lengths=np.minimum(moment - user_start, max_history),
            totals=moment - user_start,
            meetings=meetings,
            seen_starts=seen_starts,
            seen_lengths=np.searchsorted(meetings, moment) - seen_starts,
        )

    def slice(self, start: int, end: int) -> _Pasts:
        part = slice(start, end)
        return _Pasts(
            self.starts[part],
            self.lengths[part],
            self.totals[part],
            self.meetings,
            self.seen_starts[part],
            self.seen_lengths[part],
        )


def _first_meetings(timeline: Timeline, positions: Ints) -> Ints:
    """Return those of ``positions``, ascending, at which a user meets an item for the first time among them."""
    width = int(timeline.item_row.max(initial=0)) + 1
    keys = timeline.user[positions].astype(np.int64) * width + timeline.item_row[positions]
    order = np.argsort(keys, kind="stable")
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = keys[order][1:] != keys[order][:-1]
    return positions[np.sort(order[is_first])]


def _cut(sizes: Ints) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, done + _CHUNK_VALUES, side="right")), start + 1)
        yield start, end
        start = end


def _query_table(timeline: Timeline, asked: Ints, targets: pa.ListArray, pasts: _Pasts) -> pa.Table:
    events = ragged_range(pasts.starts, pasts.lengths)
    offsets = _offsets(pasts.lengths)
    seen = pasts.meetings[ragged_range(pasts.seen_starts, pasts.seen_lengths)]
    columns = [
        timeline.users.take(pa.array(timeline.user[asked])),
        pa.array(timeline.time_us[asked]),
        targets,
        _lists(offsets, timeline.item_row[events]),
        _lists(offsets, timeline.time_us[events]),
        _lists(offsets, timeline.event[events]),
        pa.array(pasts.totals.astype(np.int32)),
        _lists(_offsets(pasts.seen_lengths), timeline.item_row[seen]),
    ]
    return pa.table(columns, schema=queries_schema)


def _offsets(lengths: Ints) -> npt.NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _lists(offsets: npt.NDArray[np.int32], values: npt.NDArray[np.generic]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
