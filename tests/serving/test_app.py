"""The application in process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsys_cg.config import ServingConfig
from recsys_cg.serving.app import create_app
from recsys_cg.serving.lookup import CandidateLookup


def ask(
    app: Any, method: str, path: str, body: bytes = b"", query: bytes = b"", *, then: Callable[[], None] = lambda: None
) -> tuple[int, Any]:
    """Send one request while the application lives, after ``then``; return status and parsed body."""
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "query_string": query, "http_version": "1.1",
        "headers": [(b"content-type", b"application/json")], "root_path": "", "scheme": "http", "asgi": {},
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def run() -> None:
        async with app.router.lifespan_context(app):
            then()
            await app(scope, receive, send)

    asyncio.run(run())
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    return starts[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


@pytest.mark.parametrize("path", ["/v1/similar", "/v1/candidates"])
def test_what_nobody_expected_is_answered_alike_on_every_path_and_logged_once(
    release_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    def break_lookups() -> None:
        monkeypatch.setattr(CandidateLookup, "similar", fail)
        monkeypatch.setattr(CandidateLookup, "candidates_batch", fail)

    app = create_app(release_path, ServingConfig(log_requests=False))
    with caplog.at_level(logging.ERROR):
        if path == "/v1/similar":
            status, answer = ask(app, "GET", path, query=b"item_id=a", then=break_lookups)
        else:
            status, answer = ask(app, "POST", path, b'{"history": ["a"]}', then=break_lookups)
    assert (status, answer["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(answer)
    logged = [record for record in caplog.records if record.name.startswith("recsys_cg")]
    assert [record.exc_info[0] for record in logged if record.exc_info] == [ZeroDivisionError]


def test_lookups_run_on_the_event_loop_where_they_are_quick(release_path: Path, monkeypatch: pytest.MonkeyPatch):
    from recsys_cg.serving import batching

    handed: list[bool] = []
    real = batching.Batcher._fits_the_loop
    monkeypatch.setattr(
        batching.Batcher, "_fits_the_loop", lambda self, jobs: handed.append(real(self, jobs)) or handed[-1]
    )
    app = create_app(release_path, ServingConfig(log_requests=False))
    assert ask(app, "POST", "/v1/candidates", b'{"history": ["a"]}')[0] == 200
    assert ask(create_app(release_path, ServingConfig()), "POST", "/v1/candidates", b'{"allow": ["a"]}')[0] == 200
    assert handed == [True, False]


@pytest.mark.parametrize("ends", ["as it should", "while it starts"])
def test_sources_of_live_data_are_closed_however_the_service_ends(
    release_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    closed: list[str] = []

    class Source:
        def __init__(self, name: str) -> None:
            self.close = lambda: closed.append(name)

        def refresh(self) -> None:
            if ends == "while it starts":
                raise RuntimeError(ends)

    monkeypatch.setattr("recsys_cg.serving.app._open_live", lambda config, metrics: Source("histories"))
    monkeypatch.setattr("recsys_cg.serving.app._open_trends", lambda config, metrics: Source("trends"))
    app = create_app(release_path, ServingConfig(log_requests=False))

    async def live() -> None:
        async with app.router.lifespan_context(app):
            assert not closed

    if ends == "as it should":
        asyncio.run(live())
    else:
        with pytest.raises(RuntimeError, match=ends):
            asyncio.run(live())
    assert sorted(closed) == ["histories", "trends"]
