"""The parts of `bench_serve`: what is started, asked and read off."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from recsys_cg.config import ServingConfig
from tests.benchmarks.serve_world import NAMES, K, item_id, point_at

PATH = "/v1/candidates"


class Child:
    """A way to look up, in a process of its own."""

    def __init__(self, mode: str, world: Path) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.serve_child", mode, str(world)]
        env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )
        self.asks: list[str] = self._read()["asks"]

    def order(self, **what: Any) -> dict[str, float]:
        """Give one order and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer: dict[str, float] = self._read()
        return answer

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Service:
    """The service over a store, as a process of its own, ready to answer."""

    def __init__(self, store: Path, *, workers: int = 1, body_bytes: int = 1000, **config: Any) -> None:
        settings = ServingConfig(port=0, log_requests=False, **config)
        command = [sys.executable, "-m", "tests.benchmarks.serve_server", str(store), settings.model_dump_json()]
        started = time.monotonic()
        self.process = subprocess.Popen(
            [*command, str(workers), str(body_bytes)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self.process.stderr is not None
        said = next(found for found in map(_said, self.process.stderr) if "url" in found)
        self.url, self.grpc_url = said["url"], f"grpc://127.0.0.1:{said.get('grpc_port')}"
        self.host, port = self.url.removeprefix("http://").rsplit(":", 1)
        self.port = int(port)
        self._drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)
        while self.ask("GET", "/readyz")[0] != 200:
            if self.process.poll() is not None or time.monotonic() - started > 120:
                raise RuntimeError("the service did not become ready")
            time.sleep(0.01)
        self.ready_s = time.monotonic() - started

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; status 0 when nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def load(self, path: str, bodies: Path, mode: str, amount: float, seconds: float) -> dict[str, Any]:
        """Return what a load generator in a process of its own saw."""
        return self.start_load(path, bodies, mode, amount, seconds)()

    def start_load(self, path: str, bodies: Path, mode: str, amount: float, seconds: float) -> Any:
        """Start that load generator; return what waits for its answer."""
        command = [sys.executable, "-m", "tests.benchmarks.serve_load", self.host, str(self.port), path, str(bodies)]
        process = subprocess.Popen([*command, mode, f"{amount:g}", f"{seconds:g}"], stdout=subprocess.PIPE, text=True)

        def wait() -> dict[str, Any]:
            said, _ = process.communicate()
            result: dict[str, Any] = json.loads(said)
            return result

        return wait

    def resident_mb(self) -> float:
        """Return the resident memory of the process, which is the worker when there is one."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._drain.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def _said(line: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return found


def write_bodies(world: Path, file: Path, count: int = 512) -> None:
    """Write requests for K candidates with histories of item ids, one a line."""
    rows = np.load(world / "histories.npz")["rows"][:count].tolist()
    lines = [json.dumps({"history": [item_id(row) for row in history], "k": K}) for history in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure_in_process(world: Path, rounds: int, count: int) -> dict[str, list[dict[str, float]]]:
    """Return latency percentiles of each way, round by round, the ways taking turns."""
    children = [Child("ours", world), Child("tfrs", world)]
    measured: dict[str, list[dict[str, float]]] = {}
    try:
        for turn in range(rounds):
            for mode, child in zip(("ours", "tfrs"), children, strict=True):
                for ask in child.asks:
                    taken = child.order(ask=ask, first=turn * count, count=count)
                    measured.setdefault(f"{mode}_{ask}", []).append(taken)
    finally:
        for child in children:
            child.close()
    return measured


def measure_http(store: Path, bodies: Path, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Return closed loop, open loop at half and overload at three times the rate, and the constant body's rate."""
    with Service(store) as single:
        body_bytes = len(single.ask("POST", PATH, bodies.read_bytes().splitlines()[0])[1])
    connections = 32
    measured: dict[str, list[dict[str, Any]]] = {"candidates": [], "constant": [], "half": [], "triple": []}
    with Service(store, workers=2, body_bytes=body_bytes) as service:
        service.load(PATH, bodies, "closed", connections, 2)
        for _ in range(rounds):
            measured["constant"].append(service.load("/constant", bodies, "closed", connections, seconds))
            measured["candidates"].append(service.load(PATH, bodies, "closed", connections, seconds))
            rate = measured["candidates"][-1]["per_second"].get("200", 1.0)
            measured["half"].append(service.load(PATH, bodies, "open", rate / 2, seconds))
            measured["triple"].append(service.load(PATH, bodies, "open", rate * 3, seconds))
    return {"body_bytes": body_bytes, **measured}


def measure_clients(store: Path, bodies: Path, *, rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Return what the shipped clients reach over gRPC and over HTTP, with one thread and with eight."""
    measured: dict[str, list[dict[str, float]]] = {}
    with Service(store, workers=2, grpc_port=0) as service:
        for turn in range(rounds + 1):
            for threads in (1, 8):
                for face, url in (("grpc", service.grpc_url), ("http", service.url)):
                    command = [sys.executable, "-m", "tests.benchmarks.serve_clients", url, str(bodies)]
                    done = subprocess.run(
                        [*command, str(threads), f"{seconds:g}"], capture_output=True, text=True, check=True
                    )
                    if turn:  # the first round warms
                        measured.setdefault(f"{face}_{threads}", []).append(json.loads(done.stdout))
    return measured


def measure_start(store: Path, bodies: Path, rounds: int) -> list[tuple[float, float]]:
    """Return seconds from start of the process to ready, and its resident MB after a second of load."""
    measured = []
    for _ in range(rounds):
        with Service(store) as service:
            service.load(PATH, bodies, "closed", 8, 1)
            measured.append((service.ready_s, service.resident_mb()))
    return measured


def soak(store: Path, bodies: Path, *, seconds: float, every_s: float) -> dict[str, Any]:
    """Ask without pause while CURRENT moves every ``every_s``; return answers by status and the memory over time."""
    with Service(store, reload_seconds=0.5) as service:
        wait = service.start_load(PATH, bodies, "closed", 4, seconds)
        resident: list[float] = []
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            turn += 1
            point_at(store, NAMES[turn % 2])
            time.sleep(every_s)
            resident.append(service.resident_mb())
        result = wait()
        metrics = service.ask("GET", "/metrics")[1].decode()
        reloads = next(line for line in metrics.splitlines() if line.startswith("recsys_cg_reloads_total"))
        point_at(store, NAMES[0])
    return {"statuses": result["per_second"], "resident_mb": resident, "reloads": float(reloads.split()[-1])}
