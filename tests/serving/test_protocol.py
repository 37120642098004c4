from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from recsys_cg.config import ServingConfig
from recsys_cg.serving.gatehouse import Gatehouse
from recsys_cg.serving.metrics import Metrics
from recsys_cg.serving.protocol import PunctualProtocol

BODY = b"x" * 100_000


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(str(size)))]})
    await send({"type": "http.response.body", "body": str(size).encode()})


def gatehouse(token: str | None = None) -> Gatehouse:
    return Gatehouse(
        application,
        config=ServingConfig(log_requests=False),
        metrics=Metrics(),
        token=token,
        paths=frozenset({"/full"}),
        is_full=lambda path: path == "/full",
    )


def exchange(monkeypatch: pytest.MonkeyPatch, *requests: bytes, token: str | None = None) -> list[tuple[bytes, bytes]]:
    """Send ``requests`` one after the other on one connection; return (head, body) of each answer.

    What a callback of the event loop raises on the way, the end of the connection included, is raised here.
    """
    front = gatehouse(token)
    raised: list[dict[str, Any]] = []
    monkeypatch.setattr(PunctualProtocol, "refuse", front.refuse_early)

    async def run() -> list[tuple[bytes, bytes]]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        config = uvicorn.Config(front, port=0, http=PunctualProtocol, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        for request in requests:
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            answers.append((head, b"" if request.startswith(b"HEAD") else await reader.readexactly(size)))
        writer.close()
        await asyncio.sleep(0.05)
        server.should_exit = True
        await serving
        return answers

    answers = asyncio.run(run())
    assert raised == []
    return answers


def post(path: str, headers: bytes = b"", body: bytes = BODY) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (path.encode(), headers, len(body), body)


def test_a_refused_request_is_answered_whole_and_its_connection_goes_on(monkeypatch: pytest.MonkeyPatch):
    first, second, third = exchange(
        monkeypatch, post("/full", b"X-Request-ID: mine\r\n"), post("/other"), post("/full", body=b"")
    )
    assert first[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1\r\n" in first[0]
    assert b"x-request-id: mine\r\n" in first[0]
    assert b'"code":"overloaded"' in first[1]
    assert b'"request_id":"mine"' in first[1]
    assert (second[0].split(b"\r\n")[0], second[1]) == (b"HTTP/1.1 200 OK", b"100000")
    assert third[0].startswith(b"HTTP/1.1 503 ")


def test_who_may_not_enter_is_told_so_however_full_it_is(monkeypatch: pytest.MonkeyPatch):
    given = b"authorization: Bearer secret-of-the-house\r\n"
    without, with_token = exchange(
        monkeypatch, post("/full", body=b""), post("/full", given, b""), token="secret-of-the-house"
    )
    assert without[0].startswith(b"HTTP/1.1 401 ")
    assert with_token[0].startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    "request_",
    [
        b"HEAD /full HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /full HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
        b"POST /full HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        post("/full", b"expect: 100-continue\r\n", b""),
    ],
)
def test_what_is_not_plain_is_refused_in_the_ordinary_way(monkeypatch: pytest.MonkeyPatch, request_: bytes):
    early: list[object] = []
    monkeypatch.setattr(Gatehouse, "refuse_early", lambda _, scope: early.append(scope))
    ((head, _),) = exchange(monkeypatch, request_)
    assert head.split(b" ")[1] == b"503"
    assert early == []


def test_a_body_that_may_not_be_read_is_refused_for_that_and_the_connection_closed(monkeypatch: pytest.MonkeyPatch):
    huge = b"POST /full HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000000\r\n\r\n"
    ((head, body),) = exchange(monkeypatch, huge)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head
    assert b'"code":"too_large"' in body


def test_who_sends_no_body_after_a_refusal_does_not_hold_the_connection(monkeypatch: pytest.MonkeyPatch):
    front = gatehouse()
    monkeypatch.setattr(PunctualProtocol, "refuse", front.refuse_early)
    monkeypatch.setattr(PunctualProtocol, "head_s", 0.2)

    async def run() -> bytes:
        config = uvicorn.Config(front, port=0, http=PunctualProtocol, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.servers[0].sockets[0].getsockname()[1])
        writer.write(b"POST /full HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        received = await asyncio.wait_for(reader.read(), 10)  # to the end of the connection
        writer.close()
        server.should_exit = True
        await serving
        return received

    assert asyncio.run(run()).count(b"HTTP/1.1") == 1


def test_refusals_are_counted_as_other_answers_are():
    front = gatehouse()
    metrics = front._metrics
    assert front.refuse_early({"path": "/other", "headers": []}) is None
    assert front.refuse_early({"method": "POST", "path": "/full", "headers": []}) is not None
    text = metrics.expose().decode()
    assert 'recsys_cg_refused_requests_total{reason="overloaded"} 1.0' in text
    assert 'path="/full",status="503"} 1.0' in text
