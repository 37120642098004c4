"""The gRPC face of a running service, and its client."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from recsys_cg.errors import ConfigError, SearchError, ServiceError
from recsys_cg.serving.answer import Request
from recsys_cg.serving.client import Client
from recsys_cg.serving.entries import HistoryEvent
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.rpc import messages
from recsys_cg.serving.rpc.client import RpcClient
from recsys_cg.serving.rpc.messages import pb
from tests.serving.rpc.server import TOKEN, RpcServer, raw_call
from tests.serving.world import World, point_at, publish_release


@pytest.fixture(scope="module")
def server(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpcServer]:
    store = tmp_path_factory.mktemp("rpc") / "store"
    publish_release(store, World(tower))
    limits = {"max_k": 50, "max_batch": 4, "max_history": 8, "max_body_bytes": 20_000}
    with RpcServer(store, env={"LOOKUP_TOKEN": TOKEN}, token_env="LOOKUP_TOKEN", **limits) as running:
        yield running


@pytest.fixture
def client(server: RpcServer) -> Iterator[RpcClient]:
    with RpcClient(f"grpc://{server.target}", token=TOKEN, deadline_s=20) as one:
        yield one


REQUESTS: list[dict[str, Any]] = [
    {"history": ["a", {"item": "c", "time": 7.5, "event": "view"}, "?"], "k": 3, "explain": 2, "at": 8.0},
    {"history": [HistoryEvent("ä/🎬", 1_000_000, "share")], "k": 9, "exclude": ["a"], "deny_seen": False},
    {"history": [{"item": "b", "time": "2025-01-01T00:00:00Z"}], "allow": ["a", "ab"], "k": 2},
    {"history": [], "user_id": "ann", "k": 2},
    {"user_id": "böb", "k": 2},
    {"user_id": "", "k": 1},
    {"allow": [], "k": 1},
    {"k": 50},
]


def test_grpc_answers_as_the_library(server: RpcServer, client: RpcClient, release_path: Path):
    lookup = CandidateLookup.open(release_path)
    got = [client.candidates(**one) for one in REQUESTS]
    want = lookup.candidates_batch([Request(**one) for one in REQUESTS])
    for one, other in zip(got, want, strict=True):
        assert [entry.item_id for entry in one.candidates] == [entry.item_id for entry in other.candidates]
        assert [entry.score for entry in one.candidates] == pytest.approx([entry.score for entry in other.candidates])
        assert (one.fallback, one.shortfall, one.unknown) == (other.fallback, other.shortfall, other.unknown)
        assert (one.unknown_events, one.release) == (other.unknown_events, other.release)
        assert [[r.item_id for r in reasons] for reasons in one.because] == [
            [r.item_id for r in reasons] for reasons in other.because
        ]
    assert client.candidates_batch(REQUESTS[:4]) == got[:4]
    assert [one.item_id for one in client.similar("ab", 2).candidates] == ["a", "b"]


def test_grpc_and_http_answer_alike(server: RpcServer, client: RpcClient):
    with Client(server.url, token=TOKEN, deadline_s=20) as other:
        for request in REQUESTS[:1] + REQUESTS[3:]:
            assert client.candidates(**request) == other.candidates(**request)
        release = other.release()
        ours = client.release()
        assert {name: ours[name] for name in ours if name != "age_s"} == {
            name: release[name] for name in ours if name != "age_s"
        }


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"k": 0}, "k = 0: 1 to 50"),
        ({"k": 51}, "k = 51: 1 to 50"),
        ({"explain": 11}, "explain = 11: 0 to 10"),
        ({"history": ["a"] * 9}, "at most 8"),
        ({"history": [{"item": "a", "time": float("nan")}]}, "nan"),
        ({"at": float("inf")}, "inf"),
        ({"user_id": "u" * 5000}, "user_id: an id of 5000"),
        ({"exclude": ["u" * 5000]}, "exclude: an id of 5000"),
    ],
)
def test_what_passes_a_limit_is_refused_by_name(client: RpcClient, request_: dict[str, Any], message: str):
    with pytest.raises(SearchError, match=re.escape(message)):
        client.candidates(**request_)


@pytest.mark.parametrize(
    "request_", [{"k": "many"}, {"histroy": []}, {"history": [7]}, {"allow": [1]}, {"at": "never"}]
)
def test_what_cannot_be_sent_is_refused_before_it_is(client: RpcClient, request_: dict[str, Any]):
    with pytest.raises(SearchError):
        client.candidates(**request_)


def test_a_batch_has_its_limits(client: RpcClient):
    for count in (0, 5):
        with pytest.raises(SearchError, match="1 to 4"):
            client.candidates_batch([{"k": 1}] * count)


def test_errors_carry_a_code_and_the_request_id(server: RpcServer, client: RpcClient):
    with pytest.raises(ServiceError, match=r"NOT_FOUND.*no item 'zz'") as caught:
        client.similar("zz", 5)
    assert caught.value.status == 404
    assert re.fullmatch("[0-9a-f]{32}", caught.value.request_id or "")
    code, said, _, metadata = raw_call(server, "Candidates", b"\xff\xff\xff", x_request_id="abc-1")
    assert (code, metadata["x-request-id"]) == (grpc.StatusCode.INVALID_ARGUMENT, "abc-1")
    assert "no such message" in said
    line = server.wait_for("request", where={"request_id": "abc-1"})
    assert (line["path"], line["status"], line["method"]) == ("grpc:Candidates", "INVALID_ARGUMENT", "GRPC")
    code, _, answer, metadata = raw_call(server, "Candidates", b"", x_request_id='no"t plain')
    assert code is grpc.StatusCode.OK
    assert metadata["x-request-id"] != 'no"t plain'
    assert len(pb.CandidatesAnswer.FromString(answer).candidates) > 0


def test_unknown_methods_and_too_large_messages_are_refused(server: RpcServer):
    assert raw_call(server, "Nothing", b"")[0] is grpc.StatusCode.UNIMPLEMENTED
    assert raw_call(server, "Candidates", b" " * 20_001)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raw_call(server, "Candidates", b"")[0] is grpc.StatusCode.OK


def test_without_the_token_nothing_but_health_is_answered(server: RpcServer):
    for token in (None, "wrong", "ünicode"):
        with RpcClient(
            f"grpc://{server.target}", token=None if token is None else token.encode().hex(), deadline_s=20
        ) as stranger:
            with pytest.raises(ServiceError, match="UNAUTHENTICATED") as caught:
                stranger.candidates(k=1)
            assert caught.value.status == 401
    with grpc.insecure_channel(server.target) as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20) == b"\x08\x01"


def test_figures_count_grpc_calls(server: RpcServer, client: RpcClient):
    client.candidates(k=1)
    text = server.ask("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})[1]
    assert 'recsys_cg_requests_total{path="grpc:Candidates",status="OK"}' in text
    assert 'recsys_cg_request_seconds_count{path="grpc:Candidates"}' in text


def test_a_service_without_a_release_is_tried_again_until_it_has_one(tower: Path, tmp_path: Path):
    store = tmp_path / "store"
    path = publish_release(store, World(tower))
    vectors = path / "vectors.npy"
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-4])
    running = RpcServer(store)
    try:
        running.wait_for("startup complete")
        with grpc.insecure_channel(running.target) as channel:
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20) == b"\x08\x02"
        with RpcClient(f"grpc://{running.target}", deadline_s=20, retries=0) as hasty:
            with pytest.raises(ServiceError, match=r"UNAVAILABLE.*no release") as caught:
                hasty.candidates(k=1)
            assert caught.value.status == 503
        second = World(tower, name="20260102T000000Z-00000002")
        mend = threading.Timer(0.3, lambda: publish_release(store, second))
        started = time.monotonic()
        mend.start()
        with RpcClient(f"grpc://{running.target}", deadline_s=30, retries=4) as patient:
            assert patient.candidates(k=1).release == second.name
        assert time.monotonic() - started >= 1.0  # the service asks for a second's pause
        mend.join()
        point_at(store, second.name)
    finally:
        running.stop()


def test_nobody_there_is_one_clear_error():
    with (
        RpcClient("grpc://127.0.0.1:9", deadline_s=1.0) as client,
        pytest.raises(ServiceError, match=r"127\.0\.0\.1:9"),
    ):
        client.release()


@pytest.mark.parametrize("url", ["", "localhost:80", "http://x", "grpc://"])
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(ConfigError, match="no address of a service"):
        RpcClient(url)
    with pytest.raises(ConfigError):
        RpcClient("grpc://x", deadline_s=0)
    with pytest.raises(ConfigError):
        RpcClient("grpc://x", retries=5)


def test_two_workers_share_the_port(tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(tower))
    with RpcServer(tmp_path / "store", workers=2) as running:
        deadline = time.monotonic() + 30
        while 'release_workers{release="20260101T000000Z-00000001"} 2.0' not in running.ask("GET", "/metrics")[1]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for _ in range(40):
            with RpcClient(f"grpc://{running.target}", deadline_s=20) as client:
                client.candidates(k=1)
        assert len({line["process"] for line in running.log if line.get("path") == "grpc:Candidates"}) == 2


def test_the_generated_messages_are_those_of_the_proto_file():
    text = Path(messages.__file__).with_name("lookup.proto").read_text(encoding="utf-8")
    described = dict(re.findall(r"message (\w+) \{([^}]*)\}", text))
    assert set(described) == set(pb.DESCRIPTOR.message_types_by_name)
    for name, body in described.items():
        fields = {(field, int(number)) for field, number in re.findall(r"(\w+) = (\d+);", body)}
        made = {(field.name, field.number) for field in pb.DESCRIPTOR.message_types_by_name[name].fields}
        assert fields == made, name


def test_the_client_needs_nothing_of_what_the_service_needs():
    blocked = ("orjson", "fastapi", "starlette", "uvicorn", "lmdb", "scann", "ai_edge_litert", "prometheus_client")
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); import recsys_cg.serving.rpc.client"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
