"""From what is known of a user to the tensors that the query tower reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import SearchError
from recsys_cg.serving.ids import IdIndex

__all__ = [
    "History",
    "HistoryEntry",
    "HistoryEvent",
    "QueryTensors",
    "history_inputs",
    "names_of",
    "parse_time",
    "read_history",
]

_US = 1_000_000
_ORDERED = ("item", "time", "event")
_KEYS = frozenset(_ORDERED)
_EARLIEST_S, _LATEST_S = -62_135_596_800, 253_402_300_799


class HistoryEvent(NamedTuple):
    """One thing a user did: with which item, when (microseconds UTC, None: not known), what (None: not known)."""

    item: str
    time_us: int | None = None
    event: str | None = None


HistoryEntry = str | Mapping[str, object] | HistoryEvent
"""An item id, a `HistoryEvent`, or a mapping with ``item`` and perhaps ``time`` and ``event``."""

_PLAIN, _EVENTS, _DICTIONARIES = frozenset({str}), frozenset({HistoryEvent}), frozenset({dict})
_NAMES, _NUMBERS = frozenset({str, type(None)}), frozenset({int, float, type(None)})
_FLOATS = frozenset({float})


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


def parse_time(value: object) -> int:
    """Return a moment as microseconds since the Unix epoch, UTC.

    Args:
        value: seconds since the epoch (int or float), a `datetime`, or RFC 3339 text; without a zone it is UTC.

    Raises:
        SearchError: it is none of these, is not finite, or lies outside the years 1 to 9999.
    """
    if type(value) is float and _EARLIEST_S <= value <= _LATEST_S:  # what comes most, and never NaN
        return round(value * _US)
    if isinstance(value, str):
        text = value
        try:
            value = datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise SearchError(f"time {text[:40]!r} is neither RFC 3339 nor seconds since 1970") from error
    if isinstance(value, datetime):
        try:
            value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        except (OverflowError, ValueError) as error:
            raise SearchError(f"time {value} lies outside the years 1 to 9999") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SearchError(f"a time is seconds since 1970 or RFC 3339 text, not {type(value).__name__}")
    if not math.isfinite(value) or not _EARLIEST_S <= value <= _LATEST_S:
        raise SearchError(f"time {value!r} is not a number of seconds within the years 1 to 9999")
    return round(value * _US)


def names_of(entries: Sequence[HistoryEntry]) -> list[str] | None:
    """Return the items of ``entries`` in order when all are ids, all `HistoryEvent` or all dictionaries; else None."""
    kinds = set(map(type, entries))
    if kinds == _PLAIN:
        return list(entries)  # type: ignore[arg-type]  # all text
    if kinds == _EVENTS:
        return [entry.item for entry in entries]  # type: ignore[union-attr]  # all events
    if kinds == _DICTIONARIES:
        names = [entry.get("item") for entry in entries]  # type: ignore[union-attr]  # all dictionaries
        return names if set(map(type, names)) == _PLAIN else None  # type: ignore[return-value]  # all text
    return None


def read_history(
    entries: Sequence[HistoryEntry],
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
    _require_list(entries)
    if set(map(type, entries)) <= _PLAIN:
        found = ids.rows(entries) if rows is None else rows  # type: ignore[arg-type]  # all text
        known = found >= 0
        unknown = len(found) - int(np.count_nonzero(known))
        kept = found[known] if unknown else found
        return History(kept, np.full(len(kept), at_us, np.int64), np.zeros(len(kept), np.int32), unknown)
    names, given, happened = _read_columns(entries) or _parse_columns(entries)
    found = ids.rows(names) if rows is None else rows
    order = np.flatnonzero(found >= 0)
    is_timed = None not in given
    times = np.array(given if is_timed else _fill_times(given, at_us), np.int64)
    if is_timed:
        order = order[times[order].argsort(kind="stable")]
    codes, strange = _codes_of(happened, events)
    return History(found[order], times[order], codes[order], len(found) - len(order), strange)


def _codes_of(names: Sequence[str | None], events: Mapping[str, int]) -> tuple[NDArray[np.int32], int]:
    """Return the codes of event names, 0 for None and for unknown ones, and the number of these."""
    if names.count(None) == len(names):
        return np.zeros(len(names), np.int32), 0
    codes = [0 if name is None else events.get(name, -1) for name in names]
    return np.maximum(np.array(codes, np.int32), 0), codes.count(-1)


_Columns = tuple[list[str], Sequence[int | None], list[str | None]]


def _read_columns(entries: Sequence[HistoryEntry]) -> _Columns | None:
    """Return items, times and events of dictionaries in which nothing is amiss, a column at a time; else None.

    Entry by entry it takes ten times as long, and more than anything else in a lookup.
    """
    if set(map(type, entries)) != _DICTIONARIES:
        return None
    items: list[Any]
    times: list[Any]
    events: list[Any]
    items, times, events = ([entry.get(key) for entry in entries] for key in _ORDERED)  # type: ignore[union-attr]
    kinds = set(map(type, times))
    if set(map(type, items)) != _PLAIN or not set(map(type, events)) <= _NAMES or not kinds <= _NUMBERS:
        return None
    given = 3 * len(items) - times.count(None) - events.count(None)
    if sum(map(len, entries)) != given and not all(map(_KEYS.issuperset, entries)):
        return None
    read = _read_floats(times) if kinds == _FLOATS else _read_numbers(times)
    return None if read is None else (items, read, events)


def _read_floats(seconds: list[float]) -> list[int] | None:
    """Return microseconds, or None where one is not a moment."""
    values = np.array(seconds)
    if not ((values >= _EARLIEST_S) & (values <= _LATEST_S)).all():
        return None
    moments: list[int] = np.rint(values * _US).astype(np.int64).tolist()
    return moments


def _read_numbers(seconds: list[Any]) -> list[int | None] | None:
    if not all(time is None or _EARLIEST_S <= time <= _LATEST_S for time in seconds):
        return None
    return [None if time is None else round(time * _US) for time in seconds]


def _parse_columns(entries: Sequence[HistoryEntry]) -> _Columns:
    """Do the same entry by entry, whatever they are, and say what is amiss."""
    parsed = [_parse_entry(entry) for entry in entries]
    return [one.item for one in parsed], [one.time_us for one in parsed], [one.event for one in parsed]


def _require_list(entries: object) -> None:
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Sequence):
        raise SearchError(f"a history is a list of items, not {type(entries).__name__}")


def _parse_entry(entry: HistoryEntry) -> HistoryEvent:
    if isinstance(entry, HistoryEvent):
        return entry
    if isinstance(entry, str):
        return HistoryEvent(entry)
    if not isinstance(entry, Mapping):
        raise SearchError(f"a history holds item ids or mappings with 'item', not {type(entry).__name__}")
    item, time, event = entry.get("item"), entry.get("time"), entry.get("event")
    if not entry.keys() <= _KEYS:
        strange = min(map(str, set(entry) - _KEYS))
        raise SearchError(f"a history entry has 'item', 'time' and 'event', not {strange!r}")
    if not isinstance(item, str):
        raise SearchError(f"'item' of a history entry is an id (text), not {type(item).__name__}")
    if event is not None and not isinstance(event, str):
        raise SearchError(f"'event' of a history entry is a name (text), not {type(event).__name__}")
    return HistoryEvent(item, None if time is None else parse_time(time), event)


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
