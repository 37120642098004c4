from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys_cg.errors import ConfigError, SearchError, ServiceError
from recsys_cg.serving.answer import Request
from recsys_cg.serving.client import Client
from recsys_cg.serving.lookup import CandidateLookup
from tests.serving.server import Server
from tests.serving.world import World, publish_release

TOKEN = "correct horse battery staple"
ANSWER = {
    "release": "r", "candidates": [], "fallback": None, "shortfall": 0, "unknown": 0, "unknown_events": 0, "took_ms": 1
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("client") / "store"
    publish_release(store, World(tower))
    with Server(store, env={"LOOKUP_TOKEN": TOKEN}, token_env="LOOKUP_TOKEN") as running:
        yield running


def test_the_client_answers_as_the_library(server: Server, release_path: Path):
    lookup = CandidateLookup.open(release_path)
    requests: list[dict[str, Any]] = [
        {"history": ["a", {"item": "c", "time": 7.5, "event": "view"}, "?"], "k": 3, "explain": 2, "at": 8.0},
        {"user_id": "böb", "k": 2},
        {"k": 1},
    ]
    with Client(server.url, token=TOKEN, deadline_s=20) as client:
        got = [client.candidates(**one) for one in requests]
        assert client.candidates_batch(requests) == got
        assert client.similar("ä/🎬", 2) == lookup.similar("ä/🎬", 2)
        assert client.complementary("ä/🎬", 2) == lookup.complementary("ä/🎬", 2)
        assert client.similar_content({"genre": "beta"}, 2) == lookup.similar_content({"genre": "beta"}, 2)
        assert client.release()["items"] == 9
    assert got == lookup.candidates_batch([Request(**one) for one in requests])


def test_refusals_are_errors_with_what_was_said(server: Server):
    with Client(server.url, token=TOKEN, deadline_s=20) as client:
        with pytest.raises(SearchError, match="k: Input should be greater"):
            client.candidates(k=0)
        with pytest.raises(ServiceError, match="no item 'zz'") as caught:
            client.similar("zz")
        assert caught.value.status == 404
        assert caught.value.request_id
    with Client(server.url, token="wrong", deadline_s=20) as client, pytest.raises(ServiceError, match="status 401"):
        client.release()


class Script(http.server.BaseHTTPRequestHandler):
    """Answers with the next (status, headers, delay_s) of the server's list; None closes without an answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.client_address)  # type: ignore[attr-defined]
        step = self.server.steps.pop(0)  # type: ignore[attr-defined]
        if step is None:
            self.close_connection = True
            return
        status, headers, delay_s = step
        time.sleep(delay_s)
        body = json.dumps(ANSWER if status == 200 else {"error": {"message": "busy"}}).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def scripted() -> Iterator[Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    server.steps, server.seen = [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


def client_of(scripted: Any, **what: Any) -> Client:
    return Client(f"http://127.0.0.1:{scripted.server_port}", **what)


OK: tuple[int, dict[str, str], float] = (200, {}, 0.0)


def test_a_connection_is_kept(scripted: Any):
    scripted.steps = [OK, OK, OK]
    with client_of(scripted) as client:
        for _ in range(3):
            client.candidates(k=1)
    assert len(set(scripted.seen)) == 1


def test_busy_answers_and_broken_connections_are_tried_again(scripted: Any):
    scripted.steps = [(503, {}, 0.0), None, (502, {}, 0.0), OK]
    with client_of(scripted, deadline_s=20) as client:
        assert client.candidates(k=1).release == "r"
    assert len(scripted.seen) == 4


def test_retry_after_is_waited_for(scripted: Any):
    scripted.steps = [(503, {"Retry-After": "1"}, 0.0), OK]
    started = time.monotonic()
    with client_of(scripted, deadline_s=20) as client:
        client.candidates(k=1)
    assert time.monotonic() - started >= 1.0


def test_retries_end(scripted: Any):
    scripted.steps = [(503, {}, 0.0)] * 3
    with client_of(scripted, deadline_s=20, retries=2) as client, pytest.raises(ServiceError, match="busy") as caught:
        client.candidates(k=1)
    assert caught.value.status == 503
    assert scripted.steps == []


def test_an_error_that_a_retry_cannot_mend_is_not_tried_again(scripted: Any):
    scripted.steps = [(500, {}, 0.0), OK]
    with client_of(scripted, deadline_s=20) as client, pytest.raises(ServiceError, match="status 500"):
        client.candidates(k=1)
    assert scripted.steps == [OK]


def test_the_deadline_holds_over_all_attempts(scripted: Any):
    scripted.steps = [(200, {}, 2.0)]
    started = time.monotonic()
    with client_of(scripted, deadline_s=0.3) as client, pytest.raises(ServiceError, match="no answer in time"):
        client.candidates(k=1)
    assert time.monotonic() - started < 1.5


def test_nobody_there_is_one_clear_error():
    with Client("http://127.0.0.1:9", deadline_s=0.5) as client, pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"):
        client.release()


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(ConfigError, match="no address of a service"):
        Client(url)


def test_impossible_limits_are_refused():
    with pytest.raises(ConfigError):
        Client("http://x", deadline_s=0)
    with pytest.raises(ConfigError):
        Client("http://x", retries=-1)
