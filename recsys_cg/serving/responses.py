"""What the service answers: the shapes, as OpenAPI shows them, and the bytes.

The bytes are written directly; the models describe them and the tests hold the two together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from recsys_cg.serving.answer import Answer, Fallback

__all__ = [
    "BatchAnswer",
    "Because",
    "CandidateEntry",
    "CandidatesAnswer",
    "ErrorAnswer",
    "ErrorBody",
    "ItemEntry",
    "ItemsAnswer",
    "ReleaseAnswer",
    "StatusAnswer",
    "render_batch",
    "render_single",
]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Because(_Message):
    """A history item near the candidate."""

    item_id: str
    title: str | None
    similarity: float


class CandidateEntry(_Message):
    """One candidate. The similarity (a dot product of unit vectors, not a probability; of an item of the history, where
    such items are candidates, with the encoder's bonus for repeats) is null in a fallback."""

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


def _entries(answer: Answer) -> list[dict[str, Any]]:
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
        "candidates": _entries(answer),
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
    return lambda answers: orjson.dumps(_fields(answers[0], _elapsed_ms(started)))


def render_batch(started: float) -> Callable[[Sequence[Answer]], bytes]:
    """Return what writes a ``BatchAnswer``."""

    def render(answers: Sequence[Answer]) -> bytes:
        took_ms = _elapsed_ms(started)
        entries = [_fields(answer, took_ms) for answer in answers]
        return orjson.dumps({"release": answers[0].release, "answers": entries, "took_ms": took_ms})

    return render
