"""Between the messages of lookup.proto and what a lookup is asked and answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from recsys_cg.config import ServingConfig
from recsys_cg.errors import EnvironmentMismatchError, SearchError, ServiceError
from recsys_cg.schema import BUCKETS
from recsys_cg.serving.answer import LONGEST_ID, USUAL_K, Answer, Candidate, Reason, Request
from recsys_cg.serving.entries import HistoryColumns, HistoryEntry, HistoryEvent, parse_time
from recsys_cg.serving.rpc.values import read_context, write_content, write_context

try:
    from recsys_cg.serving.rpc import lookup_pb2 as pb
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the gRPC face needs more packages: pip install 'recsys-cg[grpc]'") from error

__all__ = [
    "is_by_column",
    "pb",
    "read_answer",
    "read_at",
    "read_event",
    "read_item_id",
    "read_k",
    "read_request",
    "read_requests",
    "to_seconds",
    "write_batch",
    "write_content_request",
    "write_item_request",
    "write_request",
    "write_requests",
    "write_single",
]

_MOST_EXPLAIN = 10
_BUCKET_CODES = {bucket: pb.Bucket.Value(f"BUCKET_{bucket.upper()}") for bucket in BUCKETS}
_BUCKETS = {code: bucket for bucket, code in _BUCKET_CODES.items()}


def read_requests(message: Any, config: ServingConfig) -> list[Request]:
    """Return the requests of a ``BatchRequest``, within the limits of ``config``.

    Raises:
        SearchError: a limit is passed, or a value is of no sense; the message names the field.
    """
    if not 1 <= len(message.requests) <= config.max_batch:
        raise SearchError(f"requests: {len(message.requests)} of them; a batch has 1 to {config.max_batch}")
    return [read_request(one, config) for one in message.requests]


def read_request(message: Any, config: ServingConfig) -> Request:
    """Return the request of a ``CandidatesRequest``; raises as `read_requests`."""
    history: HistoryColumns | None = None
    if message.HasField("history"):
        if len(message.history.items) > config.max_history:
            raise SearchError(f"history: {len(message.history.items)} items; at most {config.max_history} are taken")
        history = _read_history(message.history.items)
    if not 0 <= message.explain <= _MOST_EXPLAIN:
        raise SearchError(f"explain = {message.explain}: 0 to {_MOST_EXPLAIN}")
    return Request(
        history=history,
        user_id=_check_id("user_id", message.user_id) if message.HasField("user_id") else None,
        k=read_k(message, config),
        exclude=[_check_id("exclude", one) for one in message.exclude],
        allow=[_check_id("allow", one) for one in message.allow.ids] if message.HasField("allow") else None,
        deny_seen=message.deny_seen if message.HasField("deny_seen") else None,
        at=read_at(message),
        explain=message.explain,
        context=read_context(message.context),
    )


def read_k(message: Any, config: ServingConfig) -> int:
    """Return the list length that a message asks for; raises as `read_requests`."""
    k: int = message.k if message.HasField("k") else min(USUAL_K, config.max_k)
    if not 1 <= k <= config.max_k:
        raise SearchError(f"k = {k}: 1 to {config.max_k}")
    return k


def read_at(message: Any) -> float | None:
    """Return the time that a message is asked for, seconds since 1970, or None for now."""
    return message.at if message.HasField("at") else None


def read_item_id(message: Any) -> str:
    """Return the item that a message asks about; raises as `read_requests`."""
    return _check_id("item_id", message.item_id)


def _read_history(items: Sequence[Any]) -> HistoryColumns:
    return HistoryColumns(
        [_check_id("item", item.item) for item in items],
        [parse_time(item.time) if item.HasField("time") else None for item in items],
        [read_event(item) for item in items],
    )


def read_event(message: Any) -> str | None:
    """Return the event that a message names, or None; raises as `read_requests`."""
    return _check_id("event", message.event) if message.HasField("event") else None


def _check_id(name: str, value: str) -> str:
    if len(value) > LONGEST_ID:
        raise SearchError(f"{name}: an id of {len(value)} characters; at most {LONGEST_ID} are taken")
    return value


def is_by_column(message: Any) -> bool:
    """Say whether a request is answered by column."""
    return bool(message.by_column) and not getattr(message, "explain", 0)


def write_single(started: float, *, by_column: bool) -> Callable[[Sequence[Answer]], bytes]:
    """Return what writes a ``CandidatesAnswer``; ``started`` is the `time.perf_counter` of the call's arrival."""

    def render(answers: Sequence[Answer]) -> bytes:
        message = pb.CandidatesAnswer()
        _fill(message, answers[0], _elapsed_ms(started), by_column=by_column)
        raw: bytes = message.SerializeToString()
        return raw

    return render


def write_batch(started: float, *, by_column: Sequence[bool]) -> Callable[[Sequence[Answer]], bytes]:
    """Return what writes a ``BatchAnswer``; ``by_column`` says it of each answer."""

    def render(answers: Sequence[Answer]) -> bytes:
        took_ms = _elapsed_ms(started)
        message = pb.BatchAnswer(release=answers[0].release, took_ms=took_ms)
        for answer, columns in zip(answers, by_column, strict=True):
            _fill(message.answers.add(), answer, took_ms, by_column=columns)
        raw: bytes = message.SerializeToString()
        return raw

    return render


def _fill(message: Any, answer: Answer, took_ms: float, *, by_column: bool) -> None:
    message.release, message.took_ms = answer.release, took_ms
    message.shortfall, message.unknown = answer.shortfall, answer.unknown
    message.unknown_events = answer.unknown_events
    if answer.fallback is not None:
        message.fallback = answer.fallback
    if by_column:
        _fill_columns(message.columns, answer.candidates)
        return
    add = message.candidates.add
    for item_id, title, score, bucket in answer.candidates:
        add(item_id=item_id, title=title, similarity=score, bucket=bucket)  # None leaves a field out
    for entry, reasons in zip(message.candidates, answer.because, strict=False):
        for reason in reasons:
            entry.because.add(item_id=reason.item_id, title=reason.title, similarity=reason.similarity)


def _fill_columns(message: Any, candidates: Sequence[Candidate]) -> None:
    message.SetInParent()  # there, even when it is empty
    if not candidates:
        return
    ids, titles, scores, buckets = zip(*candidates, strict=True)
    message.item_ids.extend(ids)
    if None in titles:
        message.untitled.extend(place for place, title in enumerate(titles) if title is None)
        titles = tuple(title or "" for title in titles)
    message.titles.extend(titles)
    if scores[0] is not None:
        message.similarities.extend(scores)
    message.buckets.extend(map(_BUCKET_CODES.__getitem__, buckets))


def _elapsed_ms(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


def write_request(request: Mapping[str, Any]) -> Any:
    """Return the ``CandidatesRequest`` of the arguments of `CandidateLookup.candidates`.

    Raises:
        SearchError: an unknown argument, or a value of another type.
    """
    with _sending():
        given = {name: value for name, value in request.items() if value is not None}
        history, allow = given.pop("history", None), given.pop("allow", None)
        context = given.pop("context", None)
        if "by_column" in given:
            raise TypeError("by_column is for the client to say")
        message = _write(pb.CandidatesRequest, given | {"by_column": not given.get("explain")})
        if history is not None:
            message.history.SetInParent()
            for entry in history:
                _write_event(message.history.items.add(), entry)
        if allow is not None:
            message.allow.SetInParent()
            message.allow.ids.extend(allow)
        if context is not None:
            write_context(message.context, context)
    return message


def write_requests(requests: Sequence[Mapping[str, Any]]) -> Any:
    """Return the ``BatchRequest`` of many; raises as `write_request`."""
    with _sending():
        return pb.BatchRequest(requests=[write_request(one) for one in requests])


def write_item_request(kind: Any, **fields: Any) -> Any:
    """Return a message of ``kind`` that asks what goes with an item; raises as `write_request`."""
    with _sending():
        return _write(kind, fields | {"by_column": True})


def write_content_request(content: Mapping[str, object], **fields: Any) -> Any:
    """Return the ``SimilarContentRequest`` of a row of the catalogue; raises as `write_request`."""
    with _sending():
        message = _write(pb.SimilarContentRequest, fields | {"by_column": True})
        write_content(message.content, content)
    return message


@contextmanager
def _sending() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SearchError(f"the request cannot be sent: {error}") from error


def _write(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Return a message of ``kind``; ``at`` may be a time of any form, and True and False are no numbers."""
    for name in ("k", "explain"):
        if isinstance(fields.get(name), bool):
            raise TypeError(f"{name} = {fields[name]} is no number")
    at = fields.get("at")
    return kind(**{**fields, "at": None if at is None else to_seconds(at)})


def _write_event(message: Any, entry: HistoryEntry) -> None:
    if isinstance(entry, str):
        message.item = entry
        return
    if isinstance(entry, HistoryEvent):
        item, event = entry.item, entry.event
        when = None if entry.time_us is None else entry.time_us / 1e6
    else:
        item, event = entry["item"], entry.get("event")  # type: ignore[assignment]  # checked by the message
        when = None if entry.get("time") is None else to_seconds(entry["time"])
    message.item = item
    if when is not None:
        message.time = when
    if event is not None:
        message.event = event


def to_seconds(value: object) -> float:
    """Return a moment (seconds, RFC 3339 text or datetime) as seconds since 1970; raises SearchError."""
    if isinstance(value, str | datetime | bool):
        return parse_time(value) / 1e6
    return value  # type: ignore[return-value]  # checked by the message


def read_answer(message: Any) -> Answer:
    """Return the answer that a ``CandidatesAnswer`` holds."""
    return Answer(
        release=message.release,
        candidates=_read_columns(message.columns) if message.HasField("columns") else _read_rows(message.candidates),
        fallback=message.fallback if message.HasField("fallback") else None,
        shortfall=message.shortfall,
        unknown=message.unknown,
        unknown_events=message.unknown_events,
        because=tuple(tuple(map(_read_reason, one.because)) for one in message.candidates if one.because),
    )


def _read_columns(message: Any) -> tuple[Candidate, ...]:
    titles: list[str | None] = list(message.titles)
    scores = list(message.similarities) or [None] * len(titles)
    try:
        for place in message.untitled:
            titles[place] = None
        buckets = [_BUCKETS[code] for code in message.buckets]
        return tuple(Candidate(*row) for row in zip(message.item_ids, titles, scores, buckets, strict=True))
    except (LookupError, ValueError) as error:
        raise ServiceError(f"the answer is not one that this version reads: {error!r}") from error


def _read_rows(rows: Sequence[Any]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            one.item_id,
            one.title if one.HasField("title") else None,
            one.similarity if one.HasField("similarity") else None,
            one.bucket,
        )
        for one in rows
    )


def _read_reason(message: Any) -> Reason:
    return Reason(message.item_id, message.title if message.HasField("title") else None, message.similarity)
