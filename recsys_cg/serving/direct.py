"""The short way to the paths that are asked thousands of times a second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["DirectPaths"]

Endpoint = Callable[[Request], Awaitable[Response]]


class DirectPaths:
    """ASGI middleware that calls some endpoints itself and passes everything else on.

    FastAPI's routing, dependencies and two layers of exception handling cost more than a micro-batched lookup. An
    endpoint here takes a request and returns a response, and its exceptions go to the application's own handlers, so
    the answers are those that FastAPI would give. The paths stay registered with the application: other methods on
    them and the OpenAPI description come from there.

    Args:
        app: the application.
        owner: whose exception handlers explain what an endpoint raises.
        posted: endpoints of POST by path.
    """

    def __init__(self, app: ASGIApp, *, owner: FastAPI, posted: Mapping[str, Endpoint]) -> None:
        self._app = app
        self._owner = owner
        self._posted = posted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        endpoint = None
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._posted.get(scope["path"])
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except Exception as error:
            response = await self._explain(request, error)
        await response(scope, receive, send)

    async def _explain(self, request: Request, error: Exception) -> Response:
        """Answer with the handler of the nearest class of ``error``; raise it again when there is none."""
        for kind in type(error).__mro__:
            if kind is Exception:
                break  # what nobody expected is the gatehouse's to answer and to log
            handler = self._owner.exception_handlers.get(kind)
            if handler is not None:
                answer: Response = await handler(request, error)  # type: ignore[misc]  # ours are coroutines
                return answer
        raise error
