"""What every request passes before and after the application: identity, size, token, log line, figures."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recsys_cg.config import ServingConfig
from recsys_cg.serving.metrics import Metrics

__all__ = ["FAILED", "OVERLOADED", "Gatehouse", "error_body"]

OVERLOADED = "as many lookups wait as may; try again"

_logger = logging.getLogger(__name__)
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"retry-after: 1\r\nx-request-id: %b\r\n\r\n%b"
)
FAILED = "the service failed; its log has the request id"
_OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/openapi.json"})


def error_body(code: str, message: str, request_id: str) -> bytes:
    """Return the body that every error has."""
    return to_json({"error": {"code": code, "message": message, "request_id": request_id}})


class Gatehouse:
    """ASGI middleware around the whole application.

    Gives each request an id (the caller's ``X-Request-ID`` if it is short and plain), refuses bodies that are too
    large or too slow to arrive and requests without the token, turns what nobody handled into an answer, writes one
    log line and counts.

    Args:
        app: the application.
        config: limits.
        metrics: where to count.
        token: the bearer token, or None when none is asked for. Liveness, readiness, the OpenAPI description and the
            page, which hold no data, need none.
        paths: paths of the application; others are counted as ``"other"``.
        is_full: says of a path whether there is no room for it. Such a request is refused before its body is read:
            under overload refusing must cost little, or nothing is left for answering.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServingConfig,
        metrics: Metrics,
        token: str | None,
        paths: frozenset[str],
        is_full: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._most_bytes = config.max_body_bytes
        self._body_s = config.read_seconds
        self._is_logging = config.log_requests
        self._metrics = metrics
        self._expected = None if token is None else b"Bearer " + token.encode()
        self._paths = paths
        self._is_full = is_full

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            refusal = self._refusal(scope["path"], headers)
            if refusal is not None:
                await _send_error(answer, *refusal, request_id)
            else:
                await self._app(scope, self._limited(receive), answer)
        except Exception:
            _logger.exception("a request failed", extra={"request_id": request_id, "path": scope["path"]})
            if not status:
                await _send_error(answer, 500, "internal", FAILED, request_id)
        finally:
            self._count(scope, status, time.perf_counter() - started, request_id)

    def refuse_early(self, scope: Scope) -> bytes | None:
        """Return the whole response to a request that there is no room for; None: it is to be handled as any other.

        It is what `__call__` would answer, for a server that asks before it makes anything of the request.
        """
        started = time.perf_counter()
        path, headers = scope["path"], dict(scope["headers"])
        if not self._is_full(path) or not self._may_enter(path, headers) or not self._fits(headers):
            return None
        self._metrics.refused.labels("overloaded").inc()
        request_id = _request_id(headers)
        body = error_body("overloaded", OVERLOADED, request_id)
        self._count(scope, 503, time.perf_counter() - started, request_id)
        return _FULL % (len(body), request_id.encode(), body)

    def _may_enter(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if self._expected is None or path in _OPEN_PATHS:
            return True
        return hmac.compare_digest(headers.get(b"authorization", b""), self._expected)

    def _fits(self, headers: dict[bytes, bytes]) -> bool:
        length = headers.get(b"content-length", b"0")
        return length.isdigit() and int(length[:20]) <= self._most_bytes

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        if not self._may_enter(path, headers):
            return 401, "unauthorized", "send the header Authorization: Bearer <token>"
        if not self._fits(headers):
            return 413, "too_large", f"a request body may have {self._most_bytes} bytes"
        if self._is_full(path):
            self._metrics.refused.labels("overloaded").inc()
            return 503, "overloaded", OVERLOADED
        return None

    def _limited(self, receive: Receive) -> Receive:
        """Return ``receive`` that counts bytes and time; the application turns what it raises into an answer."""
        taken = 0
        is_complete = False
        deadline = time.monotonic() + self._body_s

        async def take() -> Message:
            nonlocal taken, is_complete
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, "the request body took too long to arrive") from error
            taken += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if taken > self._most_bytes:
                raise HTTPException(413, f"a request body may have {self._most_bytes} bytes")
            return message

        return take

    def _count(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.requests.labels(path, str(status)).inc()
        self._metrics.latency.labels(path).observe(seconds)
        if self._is_logging:
            extra: dict[str, Any] = {
                "request_id": request_id,
                "method": scope["method"],
                "path": path,
                "status": status,
                "ms": round(seconds * 1000, 3),
            }
            _logger.info("request", extra=extra)


def _request_id(headers: dict[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(16)


async def _send_error(send: Send, status: int, code: str, message: str, request_id: str) -> None:
    body = error_body(code, message, request_id)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 413:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
