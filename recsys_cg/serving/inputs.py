"""From what is known of a user to the tensors that the query tower reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import SearchError
from recsys_cg.serving.entries import HistoryColumns, HistoryEntry, columns_of
from recsys_cg.serving.ids import IdIndex

__all__ = ["History", "QueryTensors", "history_inputs", "read_history"]

_US = 1_000_000


@dataclass(frozen=True)
class History:
    """A history in the rows of one release, oldest first.

    Attributes:
        rows: int32 [events], items known to the release.
        times_us: int64 [events], microseconds UTC.
        events: int32 [events], event codes.
        unknown: how many entries were left out because the release has no such item.
        unknown_events: how many entries name an event that the release does not know; they count as its first.
    """

    rows: NDArray[np.int32]
    times_us: NDArray[np.int64]
    events: NDArray[np.int32]
    unknown: int = 0
    unknown_events: int = 0

    def before(self, at_us: int) -> History:
        """Return the history without what came after ``at_us``."""
        kept = self.times_us <= at_us
        if kept.all():
            return self
        return History(self.rows[kept], self.times_us[kept], self.events[kept], self.unknown, self.unknown_events)


class QueryTensors(TypedDict):
    """The arguments of `recsys_cg.serving.encoder.QueryEncoder.encode`."""

    history: NDArray[np.float32]
    gap_s: NDArray[np.float32]
    event: NDArray[np.int32]
    length: NDArray[np.int32]


def read_history(
    entries: Sequence[HistoryEntry] | HistoryColumns,
    ids: IdIndex,
    events: Mapping[str, int],
    at_us: int,
    rows: NDArray[np.int32] | None = None,
) -> History:
    """Resolve a history given from outside.

    Entries stand oldest first; when every one has a time they are sorted by it, ties as given. An entry without a
    time is taken to have happened at the time of the entry after it, the last one at the time of the query.

    Args:
        entries: what the user did.
        ids: the items of the release.
        events: code of each event name. An entry without an event gets code 0, as does one with an unknown event,
            which is counted.
        at_us: the time of the query.
        rows: ``ids.rows`` of the items of ``entries``, when that is known already.

    Raises:
        SearchError: an entry is of another type, lacks ``item``, holds an unknown key or an impossible time.
    """
    if not isinstance(entries, HistoryColumns):
        _require_list(entries)
        if set(map(type, entries)) <= {str}:
            return _read_ids(ids.rows(entries) if rows is None else rows, at_us)  # type: ignore[arg-type]  # all text
        entries = columns_of(entries)
    found = ids.rows(entries.items) if rows is None else rows
    order = np.flatnonzero(found >= 0)
    is_timed = None not in entries.times_us
    times = np.array(entries.times_us if is_timed else _fill_times(entries.times_us, at_us), np.int64)
    if is_timed:
        order = order[times[order].argsort(kind="stable")]
    codes, strange = _codes_of(entries.events, events)
    return History(found[order], times[order], codes[order], len(found) - len(order), strange)


def _read_ids(found: NDArray[np.int32], at_us: int) -> History:
    known = found >= 0
    unknown = len(found) - int(np.count_nonzero(known))
    kept = found[known] if unknown else found
    return History(kept, np.full(len(kept), at_us, np.int64), np.zeros(len(kept), np.int32), unknown)


def _codes_of(names: Sequence[str | None], events: Mapping[str, int]) -> tuple[NDArray[np.int32], int]:
    """Return the codes of event names, 0 for None and for unknown ones, and the number of these."""
    if names.count(None) == len(names):
        return np.zeros(len(names), np.int32), 0
    codes = [0 if name is None else events.get(name, -1) for name in names]
    return np.maximum(np.array(codes, np.int32), 0), codes.count(-1)


def _require_list(entries: object) -> None:
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Sequence):
        raise SearchError(f"a history is a list of items, not {type(entries).__name__}")


def _fill_times(times: Sequence[int | None], at_us: int) -> list[int]:
    filled: list[int] = []
    following = at_us
    for time in reversed(times):
        following = following if time is None else time
        filled.append(following)
    return filled[::-1]


def history_inputs(
    rows: NDArray[np.int32],
    times_us: NDArray[np.int64],
    events: NDArray[np.integer],
    lengths: NDArray[np.integer],
    at_us: NDArray[np.int64],
    *,
    vectors: NDArray[np.float32],
    max_history: int,
) -> QueryTensors:
    """Lay histories out as the query tower reads them: the last ``max_history`` events, left-aligned.

    The histories of a batch stand one behind the other in the first three arguments.

    Args:
        rows: [total], each history oldest first; rows within ``vectors``.
        times_us: [total], when each happened.
        events: [total], event codes.
        lengths: [batch], events of each history, any number; they sum to ``total``.
        at_us: [batch], time of each query.
        vectors: float32 [items, history_dim], the history vectors of the release.
        max_history: events kept of each history, at least 1.

    Returns:
        ``history`` float32 [batch, max_history, history_dim], ``gap_s`` float32 [batch, max_history] (seconds to the
        following event, for the last one to the query, 0 where time runs backwards), ``event`` int32 of the same
        shape and ``length`` int32 [batch]. What lies behind ``length`` is zero.
    """
    if len(lengths) == 1:
        given = History(rows, times_us, events)  # type: ignore[arg-type]  # any integers do
        return _one_history(given, int(at_us[0]), vectors, max_history)
    lengths = np.asarray(lengths, np.int64)
    batch, total = len(lengths), len(rows)
    ends = np.cumsum(lengths, dtype=np.int64)
    following = np.empty(total, np.int64)
    following[:-1] = times_us[1:]
    filled = lengths > 0
    following[ends[filled] - 1] = at_us[filled]
    gaps = np.maximum(following - times_us, 0) / _US
    first = ends - np.minimum(lengths, max_history)
    query = np.repeat(np.arange(batch), lengths)
    place = np.arange(total) - first[query]
    kept = place >= 0
    query, place = query[kept], place[kept]
    history = np.zeros((batch, max_history, vectors.shape[1]), np.float32)
    gap_s = np.zeros((batch, max_history), np.float32)
    event = np.zeros((batch, max_history), np.int32)
    history[query, place] = vectors[rows[kept]]
    gap_s[query, place] = gaps[kept]
    event[query, place] = events[kept]
    return {
        "history": history,
        "gap_s": gap_s,
        "event": event,
        "length": np.minimum(lengths, max_history).astype(np.int32),
    }


def _one_history(given: History, at_us: int, vectors: NDArray[np.float32], max_history: int) -> QueryTensors:
    """Lay out a single history: the same, in a fraction of the calls."""
    history = np.zeros((1, max_history, vectors.shape[1]), np.float32)
    gap_s = np.zeros((1, max_history), np.float32)
    event = np.zeros((1, max_history), np.int32)
    count = min(len(given.rows), max_history)
    if count:
        times = given.times_us[-count:]
        gaps = np.empty(count, np.int64)
        np.subtract(times[1:], times[:-1], out=gaps[:-1])
        gaps[-1] = at_us - times[-1]
        history[0, :count] = vectors.take(given.rows[-count:], axis=0)
        gap_s[0, :count] = np.maximum(gaps, 0, out=gaps) / _US
        event[0, :count] = given.events[-count:]
    return {"history": history, "gap_s": gap_s, "event": event, "length": np.array([count], np.int32)}
