"""A small load generator for `bench_serve`: closed loop and open loop over kept HTTP/1.1 connections.

    python -m tests.benchmarks.serve_load HOST PORT PATH BODIES closed CONNECTIONS SECONDS
    python -m tests.benchmarks.serve_load HOST PORT PATH BODIES open RATE SECONDS

BODIES is a file with a JSON body a line, taken in turn. Prints one line of JSON: answers a second by status, and
latency percentiles of status 200. In the open loop requests start at exponential distances whether or not earlier
ones are answered, each on an idle connection or a new one, and latency counts from the moment when a request was due:
a client that falls behind does not hide the wait (coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import numpy as np

_MOST_CONNECTIONS = 1500
_WARM_S = 0.5


class Connection(asyncio.Protocol):
    """One kept connection that has at most one request under way."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._missing = 0
        self._status = 0
        self._due = 0.0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: bytes, due: float) -> None:
        """Send a request that was due at ``due``, by `time.perf_counter`."""
        self._due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            self._status = int(head[9:12])
            place = head.index(b"content-length:") + 15
            length = int(head[place : head.find(b"\r", place) if b"\r" in head[place:] else None])
            self._missing = length - (len(self._buffer) - end - 4)
            self._buffer = b""
        else:
            self._missing -= len(data)
        if not self._missing:
            self._load.note(self._status, self._due)
            self._load.idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost(self)


class Load:
    """Requests, what came back, and idle connections."""

    def __init__(self, host: str, port: int, path: str, bodies: list[bytes]) -> None:
        self._address = host, port
        head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: "
        self._requests = [head.encode() + f"{len(body)}\r\n\r\n".encode() + body for body in bodies]
        self._turn = 0
        self._idle: deque[Connection] = deque()
        self._made: list[Connection] = []
        self._closed_loop = False
        self._from = 0.0
        self.opened = 0
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []
        self.is_over = False

    def _next(self) -> bytes:
        self._turn = (self._turn + 1) % len(self._requests)
        return self._requests[self._turn]

    def note(self, status: int, due: float) -> None:
        """Count an answer to a request that was due at ``due``."""
        if self.is_over or due < self._from:
            return
        self.statuses[status] += 1
        if status == 200:
            self.latencies.append(time.perf_counter() - due)

    def idle(self, connection: Connection) -> None:
        """Take a connection back, or in a closed loop ask again on it."""
        if self._closed_loop and not self.is_over:
            connection.send(self._next(), time.perf_counter())
        else:
            self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        """Count a connection that ended before the load did."""
        if not self.is_over:
            self.statuses[0] += 1
            if connection in self._idle:
                self._idle.remove(connection)

    async def _connect(self) -> Connection:
        self.opened += 1
        _, connection = await asyncio.get_running_loop().create_connection(lambda: Connection(self), *self._address)
        self._made.append(connection)
        return connection

    async def closed(self, connections: int, seconds: float) -> dict[str, Any]:
        """Keep ``connections`` requests under way."""
        self._closed_loop = True
        made = [await self._connect() for _ in range(connections)]
        self._from = time.perf_counter() + _WARM_S
        for connection in made:
            connection.send(self._next(), time.perf_counter())
        await asyncio.sleep(_WARM_S + seconds)
        return self._result(seconds)

    async def open(self, rate: float, seconds: float) -> dict[str, Any]:
        """Start ``rate`` requests a second whatever happens; those for which no connection is left count as lost."""
        rng = random.Random(7)
        due = time.perf_counter()
        self._from, end = due + _WARM_S, due + _WARM_S + seconds
        pending: set[asyncio.Task[None]] = set()
        while due < end:
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            if self._idle:
                self._idle.popleft().send(self._next(), due)
            elif self.opened < _MOST_CONNECTIONS:
                task = asyncio.create_task(self._send_on_new(due))
                pending.add(task)
                task.add_done_callback(pending.discard)
            else:
                self.note(-1, due)
            due += rng.expovariate(rate)
        await asyncio.sleep(1.5)
        return self._result(seconds)

    async def _send_on_new(self, due: float) -> None:
        try:
            connection = await self._connect()
        except OSError:
            self.note(0, due)
        else:
            connection.send(self._next(), due)

    def _result(self, seconds: float) -> dict[str, Any]:
        self.is_over = True
        for connection in self._made:
            connection.transport.abort()
        p50, p99 = np.percentile(self.latencies, [50, 99]).tolist() if self.latencies else (0.0, 0.0)
        by_status = {str(status): count / seconds for status, count in sorted(self.statuses.items())}
        return {"per_second": by_status, "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, "connections": self.opened}


def main() -> None:
    host, port, path, bodies, mode, amount, seconds = sys.argv[1:]
    load = Load(host, int(port), path, Path(bodies).read_bytes().splitlines())
    run = load.closed(int(amount), float(seconds)) if mode == "closed" else load.open(float(amount), float(seconds))
    print(json.dumps(_loop(run)), flush=True)


def _loop(run: Any) -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(run)
    return uvloop.run(run)


if __name__ == "__main__":
    main()
