"""The service as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from recsys_cg.config import ServingConfig

_PROGRAM = (
    "import sys\n"
    "from recsys_cg.config import ServingConfig\n"
    "from recsys_cg.serving.service import serve\n"
    "if __name__ == '__main__':\n"
    "    serve(sys.argv[1], ServingConfig.model_validate_json(sys.argv[2]), workers=int(sys.argv[3]))\n"
)


class Server:
    """Run the service on a free port; the log is kept, line by line, as parsed JSON."""

    def __init__(self, store: Path, *, workers: int = 1, env: dict[str, str] | None = None, **config: Any) -> None:
        settings = ServingConfig(port=0, **({"reload_seconds": 0.05} | config))
        script = store.parent / "serve.py"
        script.write_text(_PROGRAM)
        self.process = subprocess.Popen(
            [sys.executable, script, store, settings.model_dump_json(), str(workers)],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )
        self.log: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.wait_for("listening")["url"]
        self.netloc = urlsplit(self.url).netloc

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"message": line.rstrip()}
            self.log.append(entry)
            self._lines.put(entry)

    def wait_for(self, text: str, *, where: dict[str, Any] | None = None, timeout_s: float = 30.0) -> dict[str, Any]:
        """Return the next log line whose message contains ``text`` and which has the fields of ``where``."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                entry = self._lines.get(timeout=0.2)
            except queue.Empty:
                if self.process.poll() is not None:
                    break
                continue
            if text in str(entry.get("message", "")) and (where or {}).items() <= entry.items():
                return entry
        raise AssertionError(f"no {text!r} in the log: {self.log}")

    def ask(
        self, method: str, path: str, body: bytes | dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, answer (parsed when it is JSON) and headers, names in lower case."""
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        try:
            raw = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, path, raw, headers or {})
            response = connection.getresponse()
            content = response.read()
            named = {name.lower(): value for name, value in response.getheaders()}
        finally:
            connection.close()
        is_json = named.get("content-type", "").startswith("application/json")
        return response.status, json.loads(content) if is_json else content.decode(), named

    def wait_until_ready(self) -> Self:
        deadline = time.monotonic() + 30
        while self.ask("GET", "/readyz")[0] != 200:
            assert time.monotonic() < deadline, self.log
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        return self

    def stop(self, timeout_s: float = 20.0) -> int:
        """Ask it to stop and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join(timeout=5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def __enter__(self) -> Self:
        try:
            return self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
