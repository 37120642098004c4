"""The history of a request: entries one by one, or the same by column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from recsys_cg.errors import SearchError

__all__ = [
    "EARLIEST_S",
    "LATEST_S",
    "HistoryColumns",
    "HistoryEntry",
    "HistoryEvent",
    "columns_of",
    "names_of",
    "parse_time",
    "read_columns",
]

EARLIEST_S, LATEST_S = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999 in seconds since 1970."""

_US = 1_000_000
_ORDERED = ("item", "time", "event")
_KEYS = frozenset(_ORDERED)


class HistoryEvent(NamedTuple):
    """One thing a user did: with which item, when (microseconds UTC, None: not known), what (None: not known)."""

    item: str
    time_us: int | None = None
    event: str | None = None


HistoryEntry = str | Mapping[str, object] | HistoryEvent
"""An item id, a `HistoryEvent`, or a mapping with ``item`` and perhaps ``time`` and ``event``."""


@dataclass(frozen=True)
class HistoryColumns:
    """A history by column, all three of one length, oldest first, as whoever read it has checked.

    Attributes:
        items: item ids.
        times_us: microseconds UTC, None where it is not known.
        events: names, None where it is not known.
    """

    items: Sequence[str]
    times_us: Sequence[int | None]
    events: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.items)


_PLAIN, _EVENTS, _DICTIONARIES = frozenset({str}), frozenset({HistoryEvent}), frozenset({dict})
_NAMES, _NUMBERS = frozenset({str, type(None)}), frozenset({int, float, type(None)})
_FLOATS = frozenset({float})


def parse_time(value: object) -> int:
    """Return a moment as microseconds since the Unix epoch, UTC.

    Args:
        value: seconds since the epoch (int or float), a `datetime`, or RFC 3339 text; without a zone it is UTC.

    Raises:
        SearchError: it is none of these, is not finite, or lies outside the years 1 to 9999.
    """
    if type(value) is float and EARLIEST_S <= value <= LATEST_S:  # what comes most, and never NaN
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
    if not math.isfinite(value) or not EARLIEST_S <= value <= LATEST_S:
        raise SearchError(f"time {value!r} is not a number of seconds within the years 1 to 9999")
    return round(value * _US)


def names_of(history: Sequence[HistoryEntry] | HistoryColumns) -> Sequence[str] | None:
    """Return the items in order when all are ids, all `HistoryEvent`, all dictionaries or a column; else None."""
    if isinstance(history, HistoryColumns):
        return history.items
    kinds = set(map(type, history))
    if kinds == _PLAIN:
        return list(history)  # type: ignore[arg-type]  # all text
    if kinds == _EVENTS:
        return [entry.item for entry in history]  # type: ignore[union-attr]  # all events
    if kinds == _DICTIONARIES:
        names = [entry.get("item") for entry in history]  # type: ignore[union-attr]  # all dictionaries
        return names if set(map(type, names)) == _PLAIN else None  # type: ignore[return-value]  # all text
    return None


def columns_of(entries: Sequence[HistoryEntry]) -> HistoryColumns:
    """Return the same by column.

    Raises:
        SearchError: an entry is of another type, lacks ``item``, holds an unknown key or an impossible time.
    """
    read = read_columns(entries)
    return _parse_columns(entries) if read is None else read


def read_columns(entries: Sequence[object]) -> HistoryColumns | None:
    """Return items, times and events of dictionaries in which nothing is amiss, a column at a time; else None.

    Entry by entry it takes ten times as long, and more than anything else in a lookup.
    """
    if set(map(type, entries)) != _DICTIONARIES:
        return None
    items: list[Any]
    times: list[Any]
    events: list[Any]
    items, times, events = ([entry.get(key) for entry in entries] for key in _ORDERED)  # type: ignore[attr-defined]
    kinds = set(map(type, times))
    if set(map(type, items)) != _PLAIN or not set(map(type, events)) <= _NAMES or not kinds <= _NUMBERS:
        return None
    given = 3 * len(items) - times.count(None) - events.count(None)
    if sum(map(len, entries)) != given and not all(map(_KEYS.issuperset, entries)):  # type: ignore[arg-type]
        return None
    read = _read_floats(times) if kinds == _FLOATS else _read_numbers(times)
    return None if read is None else HistoryColumns(items, read, events)


def _read_floats(seconds: list[float]) -> list[int] | None:
    """Return microseconds, or None where one is not a moment."""
    values = np.array(seconds)
    if not ((values >= EARLIEST_S) & (values <= LATEST_S)).all():
        return None
    moments: list[int] = np.rint(values * _US).astype(np.int64).tolist()
    return moments


def _read_numbers(seconds: list[Any]) -> list[int | None] | None:
    if not all(time is None or EARLIEST_S <= time <= LATEST_S for time in seconds):
        return None
    return [None if time is None else round(time * _US) for time in seconds]


def _parse_columns(entries: Sequence[HistoryEntry]) -> HistoryColumns:
    """Do the same entry by entry, whatever they are, and say what is amiss."""
    parsed = [_parse_entry(entry) for entry in entries]
    return HistoryColumns([one.item for one in parsed], [one.time_us for one in parsed], [one.event for one in parsed])


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
