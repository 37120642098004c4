"""Releases change, processes end and things break while requests come in."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serving.server import Server
from tests.serving.world import ITEMS, World, point_at, publish_release

FIRST, SECOND = "20260101T000000Z-00000001", "20260102T000000Z-00000002"


def second_world(tower: Path) -> World:
    """The same items under other titles, so that an answer shows which release each part comes from."""
    return World(tower, name=SECOND, items=[replace(item, title=f"second {item.item_id}") for item in ITEMS])


class Load:
    """Threads that ask without pause; every answer is kept apart by release and checked to be of one."""

    def __init__(self, server: Server, threads: int = 3) -> None:
        self._server = server
        self._stop = threading.Event()
        self.answered: dict[str, int] = {}
        self.wrong: list[Any] = []
        self.broken = 0
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)

    def _ask(self) -> None:
        body = json.dumps({"requests": [{"history": ["a"], "k": 3}, {"k": 2}, {"user_id": "ann", "k": 1}]})
        connection = http.client.HTTPConnection(self._server.netloc, timeout=30)
        while not self._stop.is_set():
            try:
                connection.request("POST", "/v1/candidates:batch", body)
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException):
                self.broken += 1
                connection.close()
                return
            if response.status != 200 or not is_of_one_release(answer):
                self.wrong.append(answer)
                return
            self.answered[answer["release"]] = self.answered.get(answer["release"], 0) + 1
        connection.close()


def is_of_one_release(answer: dict[str, Any]) -> bool:
    titles = [str(one["title"]) for part in answer["answers"] for one in part["candidates"]]
    releases = {part["release"] for part in answer["answers"]} | {answer["release"]}
    is_second = [title.startswith("second") for title in titles]
    return len(releases) == 1 and (all(is_second) if answer["release"] == SECOND else not any(is_second))


def swap_under_load(tower: Path, store: Path, swaps: int) -> None:
    publish_release(store, second_world(tower))
    point_at(store, FIRST)
    with Server(store, log_requests=False) as server, Load(server) as load:
        resident = []
        for turn in range(swaps):
            name = (SECOND, FIRST)[turn % 2]
            point_at(store, name)
            server.wait_for("serving release", where={"release": name})
            resident.append(resident_mb(server))
            time.sleep(0.02)
        load.__exit__()
        assert load.wrong == []
        assert load.broken == 0
        assert set(load.answered) == {FIRST, SECOND}
        assert f"recsys_cg_reloads_total {swaps + 1}.0" in server.ask("GET", "/metrics")[1]
    if swaps >= 100:
        assert max(resident[-10:]) - max(resident[20:30]) < 10


def resident_mb(server: Server) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_releases_swap_under_load_without_a_failed_or_mixed_answer(tower: Path, store_path: Path):
    swap_under_load(tower, store_path, 10)


@pytest.mark.slow
def test_a_hundred_swaps_under_load(tower: Path, store_path: Path):
    swap_under_load(tower, store_path, 100)


def test_a_broken_release_is_refused_aloud_and_the_old_one_serves_on(tower: Path, store_path: Path):
    with Server(store_path) as server:
        path = publish_release(store_path, second_world(tower))
        point_at(store_path, FIRST)
        (path / "vectors.npy").write_bytes(b"")
        point_at(store_path, SECOND)
        line = server.wait_for("is refused")
        assert (line["level"], line["release"], line["serving"]) == ("error", SECOND, FIRST)
        answer = server.ask("GET", "/v1/release")[1]
        assert answer["release"] == FIRST
        assert "vectors.npy" in answer["refused"]
        assert server.ask("POST", "/v1/candidates", {"history": ["a"]})[1]["release"] == FIRST
        assert server.ask("GET", "/readyz")[0] == 200
        metrics = server.ask("GET", "/metrics")[1]
        assert "recsys_cg_reload_broken 1.0" in metrics
        assert "recsys_cg_reload_failures_total 1.0" in metrics
        point_at(store_path, FIRST)
        deadline = time.monotonic() + 10
        while server.ask("GET", "/v1/release")[1]["refused"] is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_service_whose_release_vanishes_says_so_and_comes_back(tower: Path, store_path: Path):
    server = Server(store_path)
    try:
        server.wait_until_ready()
        point_at(store_path, "20990101T000000Z-00000009")
        server.wait_for("is refused")
        assert server.ask("POST", "/v1/candidates", {"k": 1})[1]["release"] == FIRST
        publish_release(store_path, second_world(tower))
        server.wait_for("serving release", where={"release": SECOND})
    finally:
        server.stop()


def test_what_the_release_cannot_answer_is_a_defect_of_the_service_not_of_the_request(tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(tower, sequences=[("bad", [99], [1], [0])]))
    with Server(tmp_path / "store") as server:
        status, answer, headers = server.ask("POST", "/v1/candidates", {"user_id": "bad"})
        assert (status, answer["error"]["code"]) == (500, "lookup_failed")
        assert str(tmp_path) not in json.dumps(answer)
        line = server.wait_for("lookup failed", where={"request_id": headers["x-request-id"]})
        assert "row 99 of 9 items" in line["message"]
        assert server.ask("POST", "/v1/candidates", {"user_id": "nobody"})[0] == 200


def test_a_service_without_a_release_is_alive_but_not_ready(tower: Path, store_path: Path):
    """It starts on a store whose release cannot be loaded, and serves as soon as one can."""
    vectors = store_path / "releases" / FIRST / "vectors.npy"
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-4])
    server = Server(store_path)
    try:
        server.wait_for("is refused")
        server.wait_for("startup complete")
        assert server.ask("GET", "/healthz")[0] == 200
        status, answer, headers = server.ask("GET", "/readyz")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "vectors.npy" in answer["why"]
        for method, path, body in (
            ("POST", "/v1/candidates", {"k": 1}),
            ("GET", "/v1/similar?item_id=a", None),
            ("GET", "/v1/release", None),
        ):
            status, answer, headers = server.ask(method, path, body)
            assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "not_ready", "1")
        publish_release(store_path, second_world(tower))
        server.wait_until_ready()
    finally:
        server.stop()


def _wait_for_figure(server: Server, line: str) -> None:
    """Wait for a figure: an answer is counted when it has been sent, and perhaps by the other worker."""
    deadline = time.monotonic() + 20
    while line not in server.ask("GET", "/metrics")[1]:
        assert time.monotonic() < deadline, line
        time.sleep(0.1)


def test_two_workers_answer_and_count_together(store_path: Path):
    with Server(store_path, workers=2) as server:
        server.wait_for("serving release")
        _wait_for_figure(server, 'release_workers{release="20260101T000000Z-00000001"} 2.0')
        for _ in range(20):
            assert server.ask("POST", "/v1/candidates", {"history": ["a"], "k": 1})[0] == 200
        _wait_for_figure(server, 'recsys_cg_requests_total{path="/v1/candidates",status="200"} 20.0')
        assert len({line["process"] for line in server.log if line.get("path") == "/v1/candidates"}) == 2


def test_sigterm_under_load_finishes_what_is_under_way(store_path: Path):
    server = Server(store_path).wait_until_ready()
    with Load(server) as load:
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) in (0, -signal.SIGTERM)
    server.stop()
    assert load.wrong == []
    assert sum(load.answered.values()) > 0
    assert not [line for line in server.log if line.get("level") == "error"]


def test_an_address_in_use_or_an_empty_store_is_one_clear_error(store_path: Path, tmp_path: Path, monkeypatch):
    import socket

    from recsys_cg.config import ServingConfig
    from recsys_cg.errors import ConfigError, StoreError
    from recsys_cg.serving.service import serve

    with pytest.raises(StoreError, match="neither a release nor a store"):
        serve(tmp_path / "empty", ServingConfig())
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        serve(store_path, ServingConfig(token_env="NO_SUCH_VARIABLE"))
    monkeypatch.setenv("SHORT", "abc")
    with pytest.raises(ConfigError, match="at least 16 characters"):
        serve(store_path, ServingConfig(token_env="SHORT"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        script = tmp_path / "serve.py"
        done = run_serve(script, store_path, port)
    assert "cannot be bound (Address already in use)" in done


def run_serve(script: Path, store: Path, port: int) -> str:
    import subprocess
    import sys

    script.write_text(
        "import sys\n"
        "from recsys_cg.config import ServingConfig\n"
        "from recsys_cg.errors import ConfigError\n"
        "from recsys_cg.serving.service import serve\n"
        "try:\n"
        "    serve(sys.argv[1], ServingConfig(port=int(sys.argv[2])))\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, script, store, str(port)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60).stdout


def test_the_socket_names_its_protocol_so_that_answers_are_not_delayed():
    """Asyncio sets TCP_NODELAY only on such a socket; without it each answer on a kept connection takes 40 ms."""
    import socket

    from recsys_cg.serving.service import _bind

    with _bind("127.0.0.1", 0) as listener:
        assert (listener.proto, listener.getsockname()[0]) == (socket.IPPROTO_TCP, "127.0.0.1")
    with _bind("localhost", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
