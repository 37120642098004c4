"""From what goes wrong to an answer: one shape for every error."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from recsys_cg.errors import MetricMismatchError, RecsysError, SearchError
from recsys_cg.serving.batching import DeadlineError, NotReadyError, OverloadedError
from recsys_cg.serving.gatehouse import FAILED, OVERLOADED, error_body
from recsys_cg.serving.known import NoContentTowerError, NoSuchItemError
from recsys_cg.serving.metrics import Metrics

__all__ = ["add_handlers"]

_logger = logging.getLogger(__name__)
_RETRY_AFTER = {"Retry-After": "1"}
_CODES = {404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "too_large"}
_BUSY: Mapping[type[Exception], tuple[str, str]] = {
    OverloadedError: ("overloaded", OVERLOADED),
    DeadlineError: ("deadline", "the lookup waited longer than it may; try again"),
    NotReadyError: ("not_ready", "no release is loaded yet; try again"),
}
_FAULTS_SHOWN = 5


def add_handlers(app: FastAPI, metrics: Metrics) -> None:
    """Answer every error of ``app`` with a status, a code and a message; count refusals in ``metrics``."""

    async def busy(request: Request, error: Exception) -> Response:
        code, message = _BUSY[type(error)]
        metrics.refused.labels(code).inc()
        return _answer(request, 503, code, message, _RETRY_AFTER)

    for kind in _BUSY:
        app.add_exception_handler(kind, busy)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(NoSuchItemError, _missing)
    app.add_exception_handler(NoContentTowerError, _unable)
    app.add_exception_handler(RecsysError, _failed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _broken)


def _answer(
    request: Request, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    body = error_body(code, message, request.scope["state"]["request_id"])
    return Response(body, status, headers, media_type="application/json")


async def _invalid(request: Request, error: Exception) -> Response:
    faults: Sequence[Any] = error.errors(include_url=False) if isinstance(error, ValidationError) else []
    if faults and faults[0]["type"] == "json_invalid":
        return _answer(request, 400, "malformed_json", faults[0]["msg"])
    lines = [f"{'.'.join(map(_printable, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults]
    more = f"; and {len(lines) - _FAULTS_SHOWN} more" if len(lines) > _FAULTS_SHOWN else ""
    return _answer(request, 422, "invalid", "; ".join(lines[:_FAULTS_SHOWN]) + more)


def _printable(part: object) -> str:
    return str(part)[:80].encode("utf-8", "replace").decode()


async def _missing(request: Request, error: Exception) -> Response:
    return _answer(request, 404, "no_such_item", str(error))


async def _unable(request: Request, error: Exception) -> Response:
    return _answer(request, 501, "no_content_tower", str(error))


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, SearchError) and not isinstance(error, MetricMismatchError):
        return _answer(request, 422, "invalid", str(error).encode("utf-8", "replace").decode())
    _logger.error("lookup failed: %s", error, extra={"request_id": request.scope["state"]["request_id"]})
    return _answer(request, 500, "lookup_failed", "the release cannot answer; the log has the request id")


async def _broken(request: Request, _: Exception) -> Response:
    """Answer what nobody expected; Starlette raises it again, for the gatehouse to log."""
    return _answer(request, 500, "internal", FAILED)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    code = _CODES.get(error.status_code, "refused")
    return _answer(request, error.status_code, code, str(error.detail), error.headers)
