"""HTTP as uvicorn speaks it, with an end to waiting for a request's head."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from recsys_cg.errors import EnvironmentMismatchError

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the service needs more packages: pip install 'recsys-cg[serve]'") from error

__all__ = ["PunctualProtocol"]

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PunctualProtocol(HttpToolsProtocol):  # type: ignore[misc]  # uvicorn is not typed here
    """Close a connection whose request line and headers do not arrive in time.

    uvicorn waits for ever: clients that open connections and send a byte now and then would hold every one of them.
    What comes after the head has a deadline in the gatehouse; between two requests the keep-alive time applies.

    Attributes:
        head_s: seconds from the connection, or from the first byte of a further request, to the end of its head.
    """

    head_s: ClassVar[float] = 10.0
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
        """Stop waiting: the head is there."""
        self._stop_waiting()
        super().on_headers_complete()

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
            self.transport.write(_TOO_SLOW)
            self.transport.close()
