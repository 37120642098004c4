"""HTTP as uvicorn speaks it, with an end to waiting for a request's head, and refusals that cost next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from recsys_cg.errors import EnvironmentMismatchError

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the service needs more packages: pip install 'recsys-cg[serve]'") from error

__all__ = ["PunctualProtocol"]

_ANSWERED = SimpleNamespace(response_complete=True, message_event=asyncio.Event())
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PunctualProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn is not typed here
    """Close a connection whose request line and headers do not arrive in time.

    uvicorn waits for ever: clients that open connections and send a byte now and then would hold every one of them.
    What comes after the head has a deadline in the gatehouse; between two requests the keep-alive time applies.

    A request that there is no room for is answered as soon as its head is read. Under overload most requests are
    refused, and a task and an ASGI cycle for each would leave the less for those that are answered.

    Attributes:
        head_s: seconds from the connection, or from the first byte of a further request, to the end of its head; and
            from a refusal to the end of the body.
        refuse: given the ASGI scope, returns the whole response to a request that is refused at once, or None.
    """

    head_s: ClassVar[float] = 10.0
    refuse: ClassVar[Callable[[Any], bytes | None]] = staticmethod(lambda _: None)
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        """Begin to wait for the head of a further request."""
        super().on_message_begin()
        if self._waiting is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Stop waiting: the head is there. Refuse the request or begin to handle it."""
        self._stop_waiting()
        response = self._refuse()
        if response is None:
            self._unset_keepalive_if_required()
            super().on_headers_complete()
            return
        self.cycle = _ANSWERED  # the body, which is still to come, is dropped
        self.transport.write(response)
        self._wait()

    def on_message_complete(self) -> None:
        """End a request: after a refusal the next one may come."""
        if self.cycle is _ANSWERED:
            self._stop_waiting()
            self.on_response_complete()
            return
        super().on_message_complete()

    def _refuse(self) -> bytes | None:
        """Return the response of `refuse` to a plain POST: none under way before it, its answers read, to be kept."""
        parser = self.parser
        is_first = self.cycle is None or self.cycle.response_complete
        is_plain = parser.get_method() == b"POST" and parser.get_http_version() == "1.1" and parser.should_keep_alive()
        if not is_first or not is_plain or self.expect_100_continue or self.flow.write_paused:
            return None
        return type(self).refuse({**self.scope, "method": "POST", "path": self.url.decode()})

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting: nobody is there."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.head_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            if self.cycle is not _ANSWERED:
                self.transport.write(_TOO_SLOW)
            self.transport.close()
