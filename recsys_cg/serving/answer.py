"""What a lookup is asked and what it answers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from recsys_cg.errors import SearchError
from recsys_cg.serving.context import ContextValue
from recsys_cg.serving.entries import HistoryColumns, HistoryEntry

__all__ = [
    "LONGEST_ID",
    "USUAL_K",
    "Answer",
    "Candidate",
    "Fallback",
    "Reason",
    "Request",
    "check_ids",
    "check_k",
]

LONGEST_ID = 4096
"""Characters of an id or an event that a service takes at most."""

USUAL_K = 100
"""Candidates that a service answers where a request does not say, if it answers as many at all."""

Fallback = Literal["empty_history", "unknown_user", "unknown_items", "histories_unavailable"]


class Candidate(NamedTuple):
    """One candidate.

    Attributes:
        item_id: the item.
        title: as in the catalogue, or None.
        score: dot product of unit vectors in [-1, 1], a similarity, not a probability; of an item of the history,
            where such items are candidates, with the encoder's bonus for it (`recsys_cg.repeats`). None in a fallback
            list, which is ordered by popularity.
        bucket: popularity bucket: head, torso, tail or cold.
    """

    item_id: str
    title: str | None
    score: float | None
    bucket: str


class Reason(NamedTuple):
    """An item of the history that lies near a candidate: dot product of the two item vectors, in [-1, 1].

    It shows what a candidate resembles; it is not what the query tower computed.
    """

    item_id: str
    title: str | None
    similarity: float


@dataclass(frozen=True)
class Answer:
    """The answer to one request.

    Attributes:
        release: name of the release that every part of the answer comes from.
        candidates: best first; ties in score go to the lower row.
        fallback: None when the history was encoded; else why popular items are answered instead.
        shortfall: how many of the k asked for are missing because no more items are eligible.
        unknown: entries of the given history that the release has no item for; they were left out.
        unknown_events: entries of the given history whose event name the release does not know.
        because: for each candidate the nearest items of the history, when asked for; else empty.
    """

    release: str
    candidates: tuple[Candidate, ...]
    fallback: Fallback | None = None
    shortfall: int = 0
    unknown: int = 0
    unknown_events: int = 0
    because: tuple[tuple[Reason, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One lookup of a batch; see `CandidateLookup.candidates` for the meaning of each field."""

    history: Sequence[HistoryEntry] | HistoryColumns | None = None
    user_id: str | None = None
    k: int = 100
    exclude: Sequence[str] = ()
    allow: Sequence[str] | None = None
    deny_seen: bool | None = None
    at: float | str | datetime | None = None
    explain: int = 0
    context: Mapping[str, ContextValue] | None = None


def check_k(k: object) -> int:
    """Return ``k`` as an int; raise SearchError when it is no integer or below 1."""
    try:
        length = operator.index(k)  # type: ignore[arg-type]  # what is no integer raises TypeError
    except TypeError as error:
        raise SearchError(f"k = {k!r} is not an integer") from error
    if isinstance(k, bool) or length < 1:
        raise SearchError(f"k = {k!r}: ask for at least 1 candidate")
    return length


def check_ids(name: str, ids: object) -> Sequence[str]:
    """Return ``ids`` when it is a list of item ids; raise SearchError, which names ``name``, when it is not."""
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Sequence):
        raise SearchError(f"{name} is a list of item ids, not {type(ids).__name__}")
    for one in ids:
        if not isinstance(one, str):
            raise SearchError(f"{name} holds item ids (text), not {type(one).__name__}")
    return ids
