"""Start what a job of Beam needs beside itself, each in a process of its own, and end it whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["environment", "free_port", "serve", "serve_workers"]

_ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


def environment() -> Mapping[str, str]:
    """Return the environment of workers: Beam starts ``python`` by its name, and they import the tests' encoder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(_ROOT)}


@contextmanager
def serve(command: Sequence[str], port: int, log: Path, *, seconds: float = 120.0) -> Iterator[str]:
    """Run ``command`` until the block ends, with all the processes that it started; give its address.

    Args:
        command: a server that listens at ``port``.
        port: of this machine.
        log: where its output goes; the path is printed, and pytest shows it when the test fails.
        seconds: how long it may take until it listens.
    """
    print(f"log of {Path(command[0]).name}: {log}")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment(), start_new_session=True
        )
    try:
        _wait(process, port, log, seconds)
        yield f"localhost:{port}"
    finally:
        _end(process)


@contextmanager
def serve_workers(folder: Path) -> Iterator[str]:
    """Run Beam's pool of Python workers, which starts a process a worker; give its address."""
    port = free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    with serve(command, port, folder / "workers.log") as address:
        yield address


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1.0):
            return
        time.sleep(0.1)
    state = f"ended with {process.returncode}" if process.poll() is not None else f"does not answer in {seconds:g} s"
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])
    raise AssertionError(f"the server {state}; {log} ends with:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=10)
