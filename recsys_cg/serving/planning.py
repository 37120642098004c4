"""From a request in ids to a plan in rows of one release."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import Fallback, Request, check_ids, check_k
from recsys_cg.serving.context import read_context
from recsys_cg.serving.entries import HistoryColumns, names_of, parse_time
from recsys_cg.serving.inputs import History, read_history
from recsys_cg.serving.live import LiveHistories, LiveHistory
from recsys_cg.serving.release import Release
from recsys_cg.trends import Trend

__all__ = ["NO_HISTORY", "Plan", "make_plan", "make_plans", "now_us"]

_NONE = np.zeros(0, np.int32)
TrendAt = Callable[[int], Trend | None]
NO_HISTORY = History(_NONE, np.zeros(0, np.int64), _NONE)


@dataclass(frozen=True)
class Plan:
    """A request in rows of the release.

    Attributes:
        k: list length.
        at_us: time of the request.
        history: what is encoded.
        fallback: why nothing can be encoded, or None.
        exclude: int32, distinct rows never answered.
        allow: int32, the distinct rows that may be answered, or None for all.
        available: bool [items] at the time of the request, or None when all items are.
        explain: nearest history items to give for each candidate.
        context: codes of `recsys_cg.serving.context.read_context`.
        repeats: int32, distinct rising rows of the history that the encoder reads, where they get its bonus.
        trend: what was asked for of late, where that has a bonus and is known.
    """

    k: int
    at_us: int
    history: History
    fallback: Fallback | None
    exclude: NDArray[np.int32]
    allow: NDArray[np.int32] | None
    available: NDArray[np.bool_] | None
    explain: int
    context: tuple[int, ...] = ()
    repeats: NDArray[np.int32] = field(default_factory=lambda: _NONE)
    trend: Trend | None = None


def now_us() -> int:
    """Return the time, microseconds UTC."""
    return time.time_ns() // 1000


def make_plans(
    release: Release,
    requests: Sequence[Request],
    live: LiveHistories | None = None,
    trend_at: TrendAt = lambda _: None,
) -> list[Plan]:
    """Return the plans of ``requests``; their users are read from ``live``, and their ids looked up, in one call.

    Args:
        release: whose rows the plans are in.
        requests: what is asked.
        live: where fresh histories are read.
        trend_at: gives what trends at a time, microseconds UTC.

    Raises:
        SearchError: as `make_plan`.
    """
    fresh = _read_live(requests, live)
    if len(requests) == 1:
        return [make_plan(release, requests[0], live=fresh[0], trend_at=trend_at)]
    names = [_names(request.history) for request in requests]
    found = release.ids.rows(list(chain.from_iterable(names)))
    ends = np.cumsum([len(part) for part in names])
    rows = np.split(found, ends[:-1]) if len(ends) else []
    return [
        make_plan(release, request, part if len(part) else None, one, trend_at)
        for request, part, one in zip(requests, rows, fresh, strict=True)
    ]


def _read_live(requests: Sequence[Request], live: LiveHistories | None) -> list[LiveHistory | None]:
    """Return what ``live`` holds of the users of ``requests``; None where no user is named."""
    found: list[LiveHistory | None] = [None] * len(requests)
    places = [place for place, request in enumerate(requests) if isinstance(request.user_id, str)]
    if live is not None and places:
        for place, one in zip(places, live.get_many([str(requests[place].user_id) for place in places]), strict=True):
            found[place] = one
    return found


def _names(history: object) -> Sequence[str]:
    is_known = isinstance(history, list | tuple | HistoryColumns)
    return (names_of(history) if is_known else None) or []  # type: ignore[arg-type]  # others are looked up alone


def make_plan(
    release: Release,
    request: Request,
    rows: NDArray[np.int32] | None = None,
    live: LiveHistory | None = None,
    trend_at: TrendAt = lambda _: None,
) -> Plan:
    """Return the plan of ``request``.

    Args:
        release: whose rows the plan is in.
        request: what is asked.
        rows: of the items of the request's history, when they are known already.
        live: what a source of fresh histories holds of the user, when it was asked.
        trend_at: as of `make_plans`.

    Raises:
        SearchError: a field has the wrong type or an impossible value; the message names it.
    """
    k = check_k(request.k)
    if isinstance(request.explain, bool) or not isinstance(request.explain, int) or request.explain < 0:
        raise SearchError(f"explain = {request.explain!r} is not a number of items")
    at_us = now_us() if request.at is None else parse_time(request.at)
    history, seen, reason = _find_history(release, request, at_us, rows, live)
    hidden = [release.ids.rows(check_ids("exclude", request.exclude))] if len(request.exclude) else []
    usable = history if request.at is None else history.before(at_us)
    repeats = _NONE
    if release.filters_seen if request.deny_seen is None else request.deny_seen:
        hidden += [seen] if request.history is None else [history.rows, seen]
    elif release.repeats is not None:
        repeats = _distinct([usable.rows[-release.repeats.max_history :]])
    exclude = _distinct(hidden)
    allow = None if request.allow is None else np.unique(release.ids.rows(check_ids("allow", request.allow)))
    return Plan(
        k,
        at_us,
        usable,
        None if len(usable.rows) else reason,
        exclude,
        None if allow is None else allow[allow >= 0],
        release.availability.at(at_us),
        request.explain,
        read_context(release.encoder.contract.context, request.context),
        repeats,
        trend_at(at_us),
    )


def _distinct(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Return the rows of ``parts``, each once and rising, without -1; `numpy.unique` takes three times as long."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return _NONE
    rows = np.sort(parts[0] if len(parts) == 1 else np.concatenate(parts))
    if rows[0] < 0:
        rows = rows[rows.searchsorted(0) :]
    repeated = rows[1:] == rows[:-1]
    return rows[np.append(True, ~repeated)] if len(rows) and repeated.any() else rows


def _find_history(
    release: Release, request: Request, at_us: int, rows: NDArray[np.int32] | None, live: LiveHistory | None
) -> tuple[History, NDArray[np.int32], Fallback]:
    """Return the history, what counts as seen, and why there is nothing to encode should that be so.

    A history in the request is the freshest; then comes what ``live`` holds, then what the release carries.
    """
    stored = None
    if request.user_id is not None:
        if not isinstance(request.user_id, str):
            raise SearchError(f"user_id is text, not {type(request.user_id).__name__}")
        stored = release.histories.get(request.user_id) if release.histories is not None else None
    seen = _NONE if stored is None else stored.seen
    fresh = None
    if live is not None and live.entries:
        fresh = read_history(live.entries, release.ids, release.events, at_us)
        seen = np.concatenate([seen, fresh.rows])
    if request.history is not None:
        history = read_history(request.history, release.ids, release.events, at_us, rows)
        return history, seen, "unknown_items" if history.unknown else "empty_history"
    if fresh is not None:
        return fresh, seen, "unknown_items"
    if stored is not None:
        return stored.history, seen, "empty_history"
    if live is not None and not live.is_available:
        return NO_HISTORY, seen, "histories_unavailable"
    return NO_HISTORY, seen, "empty_history" if request.user_id is None else "unknown_user"
