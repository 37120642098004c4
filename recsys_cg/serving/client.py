"""A small client of the service, on the standard library: kept connections, deadlines, retries."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from recsys_cg.errors import ConfigError, SearchError, ServiceError
from recsys_cg.serving.answer import Answer, Candidate, Reason

__all__ = ["Client"]

_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_KEPT = 8


class Client:
    """Ask the service; safe to use from many threads, each call on a kept connection of its own.

    A call is tried again on a broken connection and on 429, 502, 503 and 504, after ``Retry-After`` or growing pauses
    with jitter, until the deadline. Every call only reads, so trying again is safe.

    Example:
        >>> with Client("http://127.0.0.1:8080") as client:  # doctest: +SKIP
        ...     client.candidates(history=["50", "181"], k=10).candidates[0].item_id

    Args:
        url: ``http://host:port`` or ``https://host:port``, perhaps with a path before ``/v1``.
        token: bearer token, or None.
        deadline_s: time for a call, retries included; above 0.
        retries: further attempts after the first; 0 or more.
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_s: float = 2.0, retries: int = 3) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no address of a service; write http://host:port")
        if deadline_s <= 0 or retries < 0:
            raise ConfigError(f"deadline_s = {deadline_s}, retries = {retries}: a time above 0 and 0 or more retries")
        self._parts = parts
        self._deadline_s, self._retries = deadline_s, retries
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the kept connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def candidates(self, **request: Any) -> Answer:
        """Return candidates; the arguments are those of `CandidateLookup.candidates`, a history of ids or mappings.

        Raises:
            SearchError: the request cannot be sent, or the service refused it as invalid.
            ServiceError: no answer within the deadline and the retries, or a refusal.
        """
        return _read_answer(self._call("POST", "/v1/candidates", request))

    def candidates_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Return answers to many requests, all from one release; raises as `candidates`."""
        try:
            given = list(requests)
        except TypeError as error:
            raise SearchError(f"the requests cannot be sent: {error}") from error
        answer = self._call("POST", "/v1/candidates:batch", {"requests": given})
        return [_read_answer(one) for one in answer["answers"]]

    def similar(self, item_id: str, k: int = 100, *, at: float | str | datetime | None = None) -> Answer:
        """Return the items nearest to an item; raises as `candidates`, and ServiceError 404 for an unknown item."""
        return _read_answer(self._call("GET", "/v1/similar" + _query(item_id=item_id, k=k, at=at)))

    def similar_content(
        self, content: Mapping[str, Any], k: int = 100, *, at: float | str | datetime | None = None
    ) -> Answer:
        """Return the items nearest to one that the release need not have, by its row of the catalogue.

        Raises as `candidates`, and ServiceError 501 where the release's encoder reads no content.
        """
        return _read_answer(self._call("POST", "/v1/similar", {"content": content, "k": k, "at": at}))

    def complementary(
        self,
        item_id: str,
        k: int = 100,
        *,
        event: str | None = None,
        at: float | str | datetime | None = None,
    ) -> Answer:
        """Return the items that go with an item; raises as `similar`, and SearchError for an unknown event."""
        asked = _query(item_id=item_id, k=k, event=event, at=at)
        return _read_answer(self._call("GET", f"/v1/complementary{asked}"))

    def release(self) -> dict[str, Any]:
        """Return what the service says of the release that serves; raises as `candidates`."""
        return self._call("GET", "/v1/release")

    def _call(self, method: str, path: str, message: Any = None) -> dict[str, Any]:
        body = None if message is None else _body(message)
        deadline = time.monotonic() + self._deadline_s
        attempt = 0
        while True:
            try:
                return self._attempt(method, path, body, deadline)
            except _Retry as retry:
                pause = max(
                    retry.after_s, min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
                )
                attempt += 1
                if attempt > self._retries or time.monotonic() + pause >= deadline:
                    raise retry.error from retry.__cause__
                time.sleep(pause)

    def _attempt(self, method: str, path: str, body: bytes | None, deadline: float) -> dict[str, Any]:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ServiceError(f"{self._parts.netloc}: no answer within {self._deadline_s:g} s")
        connection = self._connect(left)
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, body, self._headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            text = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            raise _Retry(ServiceError(f"{self._parts.netloc}: {text}")) from error
        self._keep(connection, response)
        return self._read(response, raw)

    def _read(self, response: http.client.HTTPResponse, raw: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(raw)
        except ValueError:
            answer = None
        if response.status == 200 and isinstance(answer, dict):
            return answer
        fault = answer.get("error") if isinstance(answer, dict) else None
        said = fault.get("message") if isinstance(fault, dict) else raw[:200].decode("utf-8", "replace")
        if response.status == 422:
            raise SearchError(str(said))
        error = ServiceError(
            f"{self._parts.netloc}: status {response.status}: {said}", response.status, response.headers["X-Request-ID"]
        )
        if response.status in _RETRIED:
            after = response.headers.get("Retry-After", "0")
            raise _Retry(error, float(after) if after.isdigit() else 0.0)
        raise error

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            made = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            connection = made(str(self._parts.hostname), self._parts.port)
        connection.timeout = timeout_s
        if isinstance(connection.sock, socket.socket):
            connection.sock.settimeout(timeout_s)
        return connection

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()


class _Retry(Exception):  # noqa: N818 - a signal, not an error
    def __init__(self, error: ServiceError, after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


def _body(message: Any) -> bytes:
    try:
        return json.dumps(message, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SearchError(f"the request cannot be sent: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _query(at: float | str | datetime | None, **fields: Any) -> str:
    """Return the query of a URL: what is not None. Seconds get an exponent, or 20250101 would be read as a date."""
    try:
        if isinstance(at, datetime):
            fields["at"] = at.isoformat()
        else:
            fields["at"] = f"{at:.16e}" if isinstance(at, int | float) and not isinstance(at, bool) else at
        given = {name: value for name, value in fields.items() if value is not None}
        return f"?{urlencode(given, quote_via=quote)}"
    except (TypeError, ValueError, OverflowError) as error:
        raise SearchError(f"the request cannot be sent: {error}") from error


def _read_answer(fields: Mapping[str, Any]) -> Answer:
    entries = fields["candidates"]
    return Answer(
        release=fields["release"],
        candidates=tuple(Candidate(one["item_id"], one["title"], one["similarity"], one["bucket"]) for one in entries),
        fallback=fields["fallback"],
        shortfall=fields["shortfall"],
        unknown=fields["unknown"],
        unknown_events=fields["unknown_events"],
        because=tuple(tuple(Reason(**reason) for reason in one["because"]) for one in entries if "because" in one),
    )
