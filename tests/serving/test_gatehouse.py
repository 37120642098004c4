from __future__ import annotations

import asyncio
import json
from typing import Any

from recsys_cg.config import ServingConfig
from recsys_cg.serving.gatehouse import Gatehouse
from recsys_cg.serving.metrics import Metrics


def visit(
    app: Any, *, body: list[dict[str, Any]] | None = None, delay_s: float = 0.0, read_seconds: float = 10.0
) -> tuple[int, Any]:
    """Send one POST through a gatehouse; return status and parsed body."""
    sent: list[dict[str, Any]] = []
    waiting = list(body or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(delay_s)
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    config = ServingConfig(max_body_bytes=1024, log_requests=False, read_seconds=read_seconds)
    guarded = Gatehouse(app, config=config, metrics=Metrics(), token=None, paths=frozenset())
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
    asyncio.run(guarded(scope, receive, send))  # type: ignore[arg-type]
    return sent[0]["status"], json.loads(sent[1]["body"])


async def failing(scope: Any, receive: Any, send: Any) -> None:
    raise ZeroDivisionError("a secret")


def test_what_nobody_handled_becomes_an_answer_without_its_text():
    status, answer = visit(failing)
    assert (status, answer["error"]["code"]) == (500, "internal")
    assert "secret" not in json.dumps(answer)


async def reading(scope: Any, receive: Any, send: Any) -> None:
    from starlette.exceptions import HTTPException

    status = 200
    try:
        while (await receive()).get("more_body"):
            pass
    except HTTPException as error:
        status = error.status_code
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def test_a_body_that_grows_too_large_is_stopped():
    parts = [{"type": "http.request", "body": b"x" * 600, "more_body": more} for more in (True, False)]
    assert visit(reading, body=parts)[0] == 413
    assert visit(reading, body=parts[1:])[0] == 200


def test_a_body_that_takes_too_long_is_stopped():
    parts = [{"type": "http.request", "body": b"x", "more_body": True}] * 50
    assert visit(reading, body=parts, delay_s=0.02, read_seconds=0.05)[0] == 408


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await receive()
    await reading(scope, receive, send)


def test_waiting_for_a_disconnect_has_no_deadline():
    parts = [
        {"type": "http.request", "body": b"", "more_body": False},
        {"type": "http.disconnect"},
        {"type": "http.disconnect"},
    ]
    assert visit(waiting, body=parts, delay_s=0.4, read_seconds=1.0)[0] == 200


def test_a_request_for_which_there_is_no_room_is_refused_before_its_body_is_read():
    read: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read.append(scope["path"])
        await reading(scope, receive, send)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    guarded = Gatehouse(
        app, config=ServingConfig(), metrics=Metrics(), token=None, paths=frozenset(), is_full=lambda path: path == "/x"
    )
    answers = {}
    for path in ("/x", "/healthz"):
        sent: list[dict[str, Any]] = []
        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        asyncio.run(guarded(scope, body_once(), send))  # type: ignore[arg-type]
        answers[path] = sent[0]["status"], dict(sent[0]["headers"]).get(b"retry-after")
    assert answers == {"/x": (503, b"1"), "/healthz": (200, None)}
    assert read == ["/healthz"]


def body_once() -> Any:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
