"""What goes over the wire: request models that hold the service's limits, and the shape of answers.

Answers are written by `render_answers` and friends as bytes; their models describe them in OpenAPI.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    create_model,
)
from pydantic_core import to_json

from recsys_cg.config import ServingConfig
from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import Answer, Fallback, Request
from recsys_cg.serving.inputs import HistoryEvent, parse_time

__all__ = [
    "BatchAnswer",
    "CandidatesAnswer",
    "ErrorAnswer",
    "ItemsAnswer",
    "Moment",
    "ReleaseAnswer",
    "RequestModels",
    "StatusAnswer",
    "candidate_entries",
    "render_batch",
    "render_single",
    "to_request",
]


def _check_time(value: str) -> str:
    try:
        parse_time(value)
    except SearchError as error:
        raise ValueError(str(error)) from error
    return value


def _check_number(value: object) -> object:
    """Refuse what is no number in JSON; pydantic would read ``true`` and ``"2"`` as integers."""
    if isinstance(value, bool | str):
        raise ValueError("input should be a number")
    return value


_EARLIEST_S, _LATEST_S = -62_135_596_800, 253_402_300_799
_WhenText = Annotated[str, AfterValidator(_check_time), WithJsonSchema({"type": "string", "format": "date-time"})]
_WhenNumber = Annotated[float, Field(ge=_EARLIEST_S, le=_LATEST_S, allow_inf_nan=False)]
Moment = Annotated[_WhenNumber, Strict()] | _WhenText
"""A time: seconds since 1970 or RFC 3339 text."""

_Whole = Annotated[int, BeforeValidator(_check_number)]
_LONGEST_ID = 4096
_ID = Annotated[str, Field(max_length=_LONGEST_ID)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class HistoryItem(_Message):
    """One thing the user did."""

    item: _ID = Field(description="item id")
    time: Moment | None = Field(None, description="when: seconds since 1970, or RFC 3339")
    event: _ID | None = Field(None, description="what: one of the release's event names")


class Because(_Message):
    """A history item near the candidate."""

    item_id: str
    title: str | None
    similarity: float


class CandidateEntry(_Message):
    """One candidate. The similarity (a dot product of unit vectors, not a probability) is null in a fallback."""

    item_id: str
    title: str | None
    similarity: float | None
    bucket: Literal["head", "torso", "tail", "cold"]
    because: list[Because] | None = None


class CandidatesAnswer(_Message):
    """Candidates for one request, best first."""

    release: str
    candidates: list[CandidateEntry]
    fallback: Fallback | None = Field(description="why popular items are answered instead; null: history encoded")
    shortfall: int = Field(description="how many of k are missing because no more items are eligible")
    unknown: int = Field(description="history entries left out: the release has no such item")
    unknown_events: int = Field(description="history entries whose event the release does not know")
    took_ms: float = Field(description="time in the service, waiting included")


class BatchAnswer(_Message):
    """Answers in the order of the requests, all from one release."""

    release: str
    answers: list[CandidatesAnswer]
    took_ms: float


class ItemEntry(_Message):
    """An item of the release."""

    item_id: str
    title: str | None
    bucket: str


class ItemsAnswer(_Message):
    """Items found, most popular first."""

    release: str
    items: list[ItemEntry]


class ReleaseAnswer(_Message):
    """The release that serves."""

    release: str
    created: str
    age_s: float
    items: int
    dim: int
    index: str
    is_exact: bool
    events: list[str]
    max_history: int
    users: int = Field(description="users whose history the release carries")
    encoder_digest: str
    max_k: int
    refused: str | None = Field(description="why the release that CURRENT names is not served, if it is not")


class StatusAnswer(_Message):
    """Health or readiness."""

    status: str
    why: str | None = None


class ErrorBody(_Message):
    """What went wrong and where."""

    code: str
    message: str
    request_id: str


class ErrorAnswer(_Message):
    """Every error has this shape."""

    error: ErrorBody


@dataclass(frozen=True)
class RequestModels:
    """The models of everything that is asked, with the limits of one configuration, which OpenAPI shows."""

    candidates: type[BaseModel]
    batch: type[BaseModel]
    similar: type[BaseModel]
    items: type[BaseModel]

    @classmethod
    def of(cls, config: ServingConfig) -> Self:
        """Return the models under the limits of ``config``."""
        forbid = ConfigDict(extra="forbid")
        most, usual = config.max_k, min(100, config.max_k)
        history = Annotated[list[_ID | HistoryItem], Field(max_length=config.max_history)]
        single = create_model(
            "CandidatesRequest",
            __config__=forbid,
            __doc__="Candidates for a history, given or stored.",
            history=(history | None, Field(None, description="what the user did, oldest first: ids or objects")),
            user_id=(_ID | None, Field(None, description="whose stored history is used when none is given")),
            k=(_Whole, Field(usual, ge=1, le=most, description="candidates wanted")),
            exclude=(list[_ID], Field(default_factory=list, description="items never answered")),
            allow=(list[_ID] | None, Field(None, description="the only items that may be answered")),
            deny_seen=(bool, Field(True, strict=True, description="leave out what the user met")),
            at=(Moment | None, Field(None, description="time of the request; default now")),
            explain=(_Whole, Field(0, ge=0, le=10, description="nearest history items to give")),
        )
        batch = create_model(
            "BatchRequest",
            __config__=forbid,
            __doc__="Many requests at once, answered from one release.",
            requests=(list[single], Field(min_length=1, max_length=config.max_batch)),
        )
        similar = create_model(
            "SimilarQuery",
            __config__=forbid,
            item_id=(_ID, Field(description="item whose neighbours are wanted")),
            k=(int, Field(usual, ge=1, le=most, description="items wanted")),
            at=(_WhenNumber | _WhenText | None, Field(None, description="time of the request; default now")),
        )
        items = create_model(
            "ItemsQuery",
            __config__=forbid,
            q=(str, Field(min_length=1, max_length=200, description="part of a title, or an item id")),
            limit=(int, Field(20, ge=1, le=50)),
        )
        return cls(single, batch, similar, items)


def to_request(message: Any) -> Request:
    """Return the lookup's request for a validated ``CandidatesRequest``."""
    history = message.history
    if history is not None:
        history = [
            entry
            if isinstance(entry, str)
            else HistoryEvent(entry.item, None if entry.time is None else parse_time(entry.time), entry.event)
            for entry in history
        ]
    return Request(
        history=history,
        user_id=message.user_id,
        k=message.k,
        exclude=message.exclude,
        allow=message.allow,
        deny_seen=message.deny_seen,
        at=message.at,
        explain=message.explain,
    )


def candidate_entries(answer: Answer) -> list[dict[str, Any]]:
    """Return the candidates of ``answer`` as they are written."""
    entries: list[dict[str, Any]] = [
        {"item_id": item_id, "title": title, "similarity": score, "bucket": bucket}
        for item_id, title, score, bucket in answer.candidates
    ]
    for entry, reasons in zip(entries, answer.because, strict=False):
        entry["because"] = [reason._asdict() for reason in reasons]
    return entries


def _fields(answer: Answer, took_ms: float) -> dict[str, Any]:
    return {
        "release": answer.release,
        "candidates": candidate_entries(answer),
        "fallback": answer.fallback,
        "shortfall": answer.shortfall,
        "unknown": answer.unknown,
        "unknown_events": answer.unknown_events,
        "took_ms": took_ms,
    }


def _elapsed_ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def render_single(started: float) -> Callable[[Sequence[Answer]], bytes]:
    """Return what writes a ``CandidatesAnswer``; ``started`` is the `time.perf_counter` of the request's arrival."""
    return lambda answers: to_json(_fields(answers[0], _elapsed_ms(started)))


def render_batch(started: float) -> Callable[[Sequence[Answer]], bytes]:
    """Return what writes a ``BatchAnswer``."""

    def render(answers: Sequence[Answer]) -> bytes:
        took_ms = _elapsed_ms(started)
        entries = [_fields(answer, took_ms) for answer in answers]
        return to_json({"release": answers[0].release, "answers": entries, "took_ms": took_ms})

    return render
