from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.responses import BatchAnswer, CandidatesAnswer, ErrorAnswer, ItemsAnswer, ReleaseAnswer
from tests.serving.server import Server
from tests.serving.world import World, publish_release

TOKEN = "correct horse battery staple"


@pytest.fixture(scope="module")
def server(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("service") / "store"
    publish_release(store, World(tower))
    with Server(store, max_k=50, max_batch=4, max_history=8, max_body_bytes=20_000) as running:
        yield running


def error_code(answer: Any) -> str:
    return ErrorAnswer.model_validate(answer).error.code


def test_candidates_are_those_of_the_library(server: Server, release_path: Path):
    request = {"history": ["b", {"item": "a", "time": 5}], "user_id": "ann", "k": 5, "exclude": ["ac"], "explain": 1}
    status, answer, headers = server.ask("POST", "/v1/candidates", request)
    assert (status, headers["content-type"]) == (200, "application/json")
    want = CandidateLookup.open(release_path).candidates(**request)
    got = CandidatesAnswer.model_validate(answer)
    assert [one.item_id for one in got.candidates] == [one.item_id for one in want.candidates]
    assert [one.similarity for one in got.candidates] == pytest.approx([one.score for one in want.candidates])
    assert [one.because[0].item_id for one in got.candidates if one.because] == [one[0].item_id for one in want.because]
    assert (got.release, got.shortfall, got.unknown) == (want.release, want.shortfall, 0)


def test_nothing_known_gets_popular_items_without_similarity(server: Server):
    _, answer, _ = server.ask("POST", "/v1/candidates", {"k": 2})
    assert answer["fallback"] == "empty_history"
    assert [(one["item_id"], one["similarity"]) for one in answer["candidates"]] == [("a", None), ("c", None)]


def test_unicode_ids_and_titles_pass_both_ways(server: Server):
    body = json.dumps({"history": ["ä/🎬"], "k": 1, "deny_seen": False}, ensure_ascii=False).encode()
    _, answer, _ = server.ask("POST", "/v1/candidates", body)
    assert answer["candidates"][0]["item_id"] == "ä/🎬"
    assert answer["candidates"][0]["title"] == "Ünïcode <b>&amp;"
    status, answer, _ = server.ask("GET", "/v1/similar?item_id=%C3%A4%2F%F0%9F%8E%AC&k=1")
    assert (status, len(answer["candidates"])) == (200, 1)


def test_a_batch_is_answered_in_order_from_one_release(server: Server):
    status, answer, _ = server.ask(
        "POST",
        "/v1/candidates:batch",
        {"requests": [{"history": ["a"], "k": 1}, {"k": 3}, {"user_id": "nobody", "k": 1}]},
    )
    got = BatchAnswer.model_validate(answer)
    assert status == 200
    assert [len(one.candidates) for one in got.answers] == [1, 3, 1]
    assert [one.fallback for one in got.answers] == [None, "empty_history", "unknown_user"]
    assert {one.release for one in got.answers} == {got.release}


def test_complementary_items_and_an_unknown_item(server: Server):
    status, answer, _ = server.ask("GET", "/v1/complementary?item_id=a&k=2&event=view")
    assert (status, [one["item_id"] for one in answer["candidates"]]) == (200, ["ab", "ac"])
    assert server.ask("GET", "/v1/complementary?item_id=zz")[0] == 404
    assert server.ask("GET", "/v1/complementary?item_id=a&event=sip")[0] == 422
    assert server.ask("GET", "/v1/complementary?item_id=a&colour=blue")[0] == 422


def test_items_like_the_content_of_one_that_the_release_does_not_have(server: Server):
    body = {"content": {"genre": "beta", "price": None, "title": "New"}, "k": 1}
    status, answer, _ = server.ask("POST", "/v1/similar", body)
    assert (status, answer["candidates"][0]["item_id"]) == (200, "b")
    for wrong in ({}, {"content": {}}, {"content": {"title": "x"}}, {"content": {"genre": {}}}, {"content": [1]}):
        status, answer, _ = server.ask("POST", "/v1/similar", wrong)
        assert (status, answer["error"]["code"]) == (422, "invalid")


def test_similar_items_and_an_unknown_item(server: Server):
    status, answer, _ = server.ask("GET", "/v1/similar?item_id=ab&k=2")
    assert (status, [one["item_id"] for one in answer["candidates"]]) == (200, ["a", "b"])
    for at in ("1893456000", "2030-01-01T00:00:00Z"):
        _, answer, _ = server.ask("GET", f"/v1/similar?item_id=ab&k=9&at={at}")
        assert "soon" in [one["item_id"] for one in answer["candidates"]]
    status, answer, _ = server.ask("GET", "/v1/similar?item_id=zz")
    assert (status, error_code(answer)) == (404, "no_such_item")


def test_items_are_found_by_title_and_id_popular_first(server: Server):
    _, answer, _ = server.ask("GET", "/v1/items?q=ALPHA")
    assert [one.item_id for one in ItemsAnswer.model_validate(answer).items] == ["a", "ab", "ac"]
    _, answer, _ = server.ask("GET", "/v1/items?q=cold&limit=1")
    assert [one["item_id"] for one in answer["items"]] == ["cold"]
    assert server.ask("GET", "/v1/items?q=(%5B.*")[1]["items"] == []


def test_the_release_describes_itself(server: Server):
    _, answer, _ = server.ask("GET", "/v1/release")
    found = ReleaseAnswer.model_validate(answer)
    assert (found.items, found.index, found.users, found.events) == (9, "exact", 4, ["buy", "view"])
    assert found.refused is None


DEEP = b'{"history":' + b"[" * 9000 + b"]" * 9000 + b"}"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe\x00", 400),
        (b'{"history": ["a"]} x', 400),
        (b'{"k": NaN1}', 400),
        (DEEP, 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b'{"k": NaN}', 422),
        (b'{"k": Infinity}', 422),
        (b'{"k": 0}', 422),
        (b'{"k": -1}', 422),
        (b'{"k": 51}', 422),
        (b'{"k": 1e400}', 422),
        (b'{"k": 99999999999999999999999999}', 422),
        (b'{"k": 2.5}', 422),
        (b'{"k": "2"}', 422),
        (b'{"k": true}', 422),
        (b'{"k": null}', 422),
        (b'{"histroy": []}', 422),
        (b'{"history": "a"}', 422),
        (b'{"history": [1]}', 422),
        (b'{"history": [null]}', 422),
        (b'{"history": [{"id": "a"}]}', 422),
        (b'{"history": [{"item": "a", "time": NaN}]}', 422),
        (b'{"history": [{"item": "a", "time": 1e300}]}', 422),
        (b'{"history": [{"item": "a", "time": "yesterday"}]}', 422),
        (b'{"history": [{"item": "a", "event": 5}]}', 422),
        (b'{"history": ["a","a","a","a","a","a","a","a","a"]}', 422),
        (b'{"user_id": 5}', 422),
        (b'{"exclude": {"a": 1}}', 422),
        (b'{"allow": "a"}', 422),
        (b'{"deny_seen": 1}', 422),
        (b'{"at": "soon"}', 422),
        (b'{"at": -62135596801}', 422),
        (b'{"at": "5"}', 422),
        (b'{"at": true}', 422),
        (b'{"at": 0, "k": 2.0, "explain": 1.0}', 200),
        (b'{"at": "2025-01-01t00:00:00.5z"}', 200),
        (b'{"explain": 11}', 422),
        (b'{"user_id": "\\ud800"}', 400),
        (b'{"history": ["\\u0000", "../../etc/passwd", "%s%n"]}', 200),
        (b'{"user_id": "../../etc/passwd"}', 200),
        (b'{"at": "2025-01-01T00:00:00Z", "allow": []}', 200),
        (b'{"k": 1, "k": 2}', 200),
    ],
)
def test_each_body_gets_a_clear_answer(server: Server, body: bytes, status: int):
    got, answer, headers = server.ask("POST", "/v1/candidates", body)
    assert got == status, answer
    if got != 200:
        fault = ErrorAnswer.model_validate(answer).error
        assert fault.code == {400: "malformed_json", 422: "invalid"}[got]
        assert fault.request_id == headers["x-request-id"]
        assert "Traceback" not in fault.message


def test_a_refusal_names_the_field(server: Server):
    _, answer, _ = server.ask("POST", "/v1/candidates", {"k": 51, "histroy": []})
    message = ErrorAnswer.model_validate(answer).error.message
    assert "k: Input should be less than or equal to 50" in message
    assert "histroy: Extra inputs are not permitted" in message


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/similar", 422),
        ("/v1/similar?item_id=a&k=0", 422),
        ("/v1/similar?item_id=a&k=51", 422),
        ("/v1/similar?item_id=a&k=nan", 422),
        ("/v1/similar?item_id=a&at=never", 422),
        ("/v1/similar?item_id=a&at=nan", 422),
        ("/v1/similar?item_id=a&colour=blue", 422),
        ("/v1/similar?item_id=%ff%fe", 404),
        ("/v1/items", 422),
        ("/v1/items?q=", 422),
        ("/v1/items?q=a&limit=51", 422),
        ("/v1/nothing", 404),
        ("/../../etc/passwd", 404),
        ("/v1/candidates", 405),
    ],
)
def test_each_path_gets_a_clear_answer(server: Server, path: str, status: int):
    got, answer, _ = server.ask("GET", path)
    assert got == status, answer
    error_code(answer)


def test_a_body_that_is_too_large_is_refused_announced_or_not(server: Server):
    status, answer, _ = server.ask("POST", "/v1/candidates", b" " * 20_001)
    assert (status, error_code(answer)) == (413, "too_large")
    for length in ("-5", "x", "9" * 500):
        assert server.ask("POST", "/v1/candidates", b"", {"Content-Length": length})[0] in (400, 413)
    with socket.create_connection(server.netloc.split(":"), timeout=10) as raw:
        raw.sendall(b"POST /v1/candidates HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        raw.sendall((b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 2)
        assert b" 413 " in raw.recv(1000).split(b"\r\n")[0]


def test_what_is_not_http_does_no_harm(server: Server):
    for noise in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00", b"A" * 100_000 + b"\r\n\r\n"):
        with socket.create_connection(server.netloc.split(":"), timeout=10) as raw:
            raw.sendall(noise)
    assert server.ask("GET", "/healthz")[0] == 200


def test_clients_that_send_slowly_are_let_go_and_others_answered(tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(tower))
    head = b"POST /v1/candidates HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n"
    with Server(tmp_path / "store", read_seconds=0.5) as server:
        address = server.netloc.split(":")
        slow = [socket.create_connection(address, timeout=20) for _ in range(30)]
        try:
            for place, one in enumerate(slow):
                one.sendall((b"", head[:20], head, head + b"\r\n", head + b"\r\n{")[place % 5])
            assert server.ask("POST", "/v1/candidates", {"k": 1})[0] == 200
            answers = [one.recv(1000) for one in slow]
            assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
            assert server.ask("POST", "/v1/candidates", {"k": 1})[0] == 200
        finally:
            for one in slow:
                one.close()


def malformed(generator: random.Random) -> bytes:
    whole = b'{"history": ["a", {"item": "b", "time": 5, "event": "buy"}], "k": 3, "exclude": ["c"], "at": 1e9}'
    kind = generator.randrange(4)
    if kind == 0:
        return whole[: generator.randrange(len(whole))]
    if kind == 1:
        changed = bytearray(whole)
        for _ in range(generator.randrange(1, 6)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        return bytes(changed)
    if kind == 2:
        return generator.randbytes(generator.randrange(200))
    fields = ["history", "user_id", "k", "exclude", "allow", "deny_seen", "at", "explain", "other"]
    values: list[object] = [None, -1, 10**30, 1e308, "", "x" * 500, [], [[]], {}, {"item": {}}, True, ["\u0000"]]
    return json.dumps({generator.choice(fields): generator.choice(values) for _ in range(3)}).encode()


def send_malformed(server: Server, count: int) -> set[int]:
    import http.client

    generator = random.Random(7)
    statuses = set()
    connection = http.client.HTTPConnection(server.netloc, timeout=30)
    for _ in range(count):
        connection.request("POST", generator.choice(["/v1/candidates", "/v1/candidates:batch"]), malformed(generator))
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            ErrorAnswer.model_validate(answer)
        statuses.add(response.status)
    connection.close()
    return statuses


def test_malformed_requests_are_answered_each_and_the_service_lives(server: Server):
    assert send_malformed(server, 1000) <= {200, 400, 422}
    assert server.ask("POST", "/v1/candidates", {"history": ["a"], "k": 1})[0] == 200
    assert not [line for line in server.log if line.get("level") == "error"]


@pytest.mark.slow
def test_ten_thousand_malformed_requests(server: Server):
    assert send_malformed(server, 10_000) <= {200, 400, 422}
    assert server.process.poll() is None


def test_a_request_id_is_taken_when_it_is_plain_and_logged(server: Server):
    assert server.ask("GET", "/healthz", headers={"X-Request-ID": "abc-1.2_3"})[2]["x-request-id"] == "abc-1.2_3"
    line = server.wait_for("request", where={"request_id": "abc-1.2_3"})
    assert (line["method"], line["path"], line["status"], line["level"]) == ("GET", "/healthz", 200, "info")
    given = 'x"y\\' * 10
    assert server.ask("GET", "/healthz", headers={"X-Request-ID": given})[2]["x-request-id"] != given


def metrics_of(server: Server) -> dict[str, float]:
    text = server.ask("GET", "/metrics")[1]
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_figures_count_what_happened(server: Server):
    before = metrics_of(server)
    server.ask("POST", "/v1/candidates", {"history": ["a", "x", "y"], "k": 50})
    server.ask("POST", "/v1/candidates", {"user_id": "nobody"})
    server.ask("GET", "/some/thing/else")
    after = metrics_of(server)

    def grew(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grew('recsys_cg_requests_total{path="/v1/candidates",status="200"}') == 2
    assert grew('recsys_cg_requests_total{path="other",status="404"}') == 1
    assert grew('recsys_cg_fallbacks_total{reason="unknown_user"}') == 1
    assert grew("recsys_cg_unknown_history_items_total") == 2
    assert grew("recsys_cg_shortfalls_total") == 2
    assert after['recsys_cg_release_workers{release="20260101T000000Z-00000001"}'] == 1
    assert after["recsys_cg_reload_broken"] == 0
    assert after["recsys_cg_index_age_seconds"] >= 0


def test_openapi_shows_the_limits(server: Server):
    document = server.ask("GET", "/openapi.json")[1]
    schemas = document["components"]["schemas"]
    assert schemas["CandidatesRequest"]["properties"]["k"]["maximum"] == 50
    assert schemas["BatchRequest"]["properties"]["requests"]["maxItems"] == 4
    named = {one["name"]: one["schema"] for one in document["paths"]["/v1/similar"]["get"]["parameters"]}
    assert named["k"]["maximum"] == 50
    text = json.dumps(document)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in schemas


def test_the_page_needs_nothing_from_elsewhere(server: Server):
    status, page, headers = server.ask("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


def test_with_a_token_nothing_is_answered_without_it(tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(tower))
    with Server(tmp_path / "store", env={"LOOKUP_TOKEN": TOKEN}, token_env="LOOKUP_TOKEN") as server:
        for path in ("/v1/release", "/metrics", "/v1/items?q=a", "/v1/nothing"):
            for given in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": TOKEN},
                {"Authorization": "Bearer ü"},
            ):
                status, answer, headers = server.ask("GET", path, headers=given)
                assert (status, error_code(answer), headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
        assert server.ask("POST", "/v1/candidates", b"{")[0] == 401
        assert server.ask("GET", "/v1/release", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert server.ask("GET", path)[0] == 200
        assert TOKEN not in json.dumps(server.log)
