"""A real Redis on a free port, to be stopped and started; skipped by name where it is not installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import redis


class RedisServer:
    """A redis-server process of its own, without persistence, on the same port for all its life."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            if os.environ.get("REQUIRE_REDIS"):
                pytest.fail("redis-server is not installed, and REQUIRE_REDIS says that it must be")
            pytest.skip("redis-server is not installed (apt-get install redis-server)")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [
            program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(directory),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return

    def stop(self) -> None:
        self.client.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def write(self, user: str, *elements: str | bytes) -> None:
        self.client.delete(f"recsys-cg:history:{user}")
        self.client.rpush(f"recsys-cg:history:{user}", *elements)
