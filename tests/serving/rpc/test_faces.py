"""The gRPC face, the HTTP face and the library say the same, answers and refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from recsys_cg.errors import SearchError, ServiceError
from recsys_cg.serving.client import Client
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.rpc.client import RpcClient
from recsys_cg.serving.rpc.messages import pb
from tests.serving.rpc.conftest import LARGE
from tests.serving.rpc.server import RpcServer, raw_call
from tests.serving.test_context import NOON
from tests.serving.world import World, publish_release

ASKED: dict[str, Any] = {"history": ["c"], "k": 3, "at": NOON, "deny_seen": False}
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def call(name: str, *given: Any, **named: Any) -> Call:
    return name, given, named


def outcome(client: Client | RpcClient, asked: Call) -> Any:
    name, given, named = asked
    try:
        return getattr(client, name)(*given, **named)
    except SearchError:
        return "refused"
    except ServiceError as error:
        return error.status


def nested(kind: str, depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


@pytest.mark.parametrize(
    "context",
    [
        None,
        {},
        {"device": "pc"},
        {"device": " tv ", "hour": 23},
        {"device": "7", "hour": "0"},
        {"device": 7},
        {"device": 7.0},
        {"device": True, "hour": 2},
        {"device": 1.5},
        {"device": -(2**63)},
        {"device": 2**64},
        {"device": 10**30},
        {"device": None, "hour": None},
        {"device": ""},
        {"device": "é" * 4096},
    ],
)
def test_a_context_is_read_alike(rpc: RpcClient, http: Client, lookup: CandidateLookup, context: dict[str, Any] | None):
    asked = {**ASKED, "context": context}
    answer = rpc.candidates(**asked)
    assert answer == http.candidates(**asked)
    assert answer == lookup.candidates(**asked)
    assert rpc.candidates_batch([asked, ASKED]) == [answer, lookup.candidates(**ASKED)]


def test_a_context_decides_what_is_answered(rpc: RpcClient):
    found = [
        rpc.candidates(**ASKED, context=context).candidates[0].item_id
        for context in (None, {"device": "pc"}, {"device": "tv"}, {"device": 7}, {"hour": 0}, {"hour": None})
    ]
    assert found == ["c", "a", "b", "c", "a", "c"]


@pytest.mark.parametrize(
    "asked",
    [
        call("similar", "ab", 2),
        call("similar", "ä/🎬", at="2019-01-01", k=50),
        call("similar", "ab", 50, at=datetime(2031, 1, 1, tzinfo=UTC)),
        call("complementary", "a", 3, at=NOON),
        call("complementary", "ä/🎬", event="view", at=1_700_000_000),
        call("complementary", "a", 5, event="buy", at=datetime(2019, 1, 1)),
        call("complementary", "a", at="2026-01-01T01:30:00Z", k=2),
        call("similar_content", {"genre": "alpha"}, 3),
        call("similar_content", {"genre": LARGE}, 3),
        call("similar_content", {"genre": float(LARGE)}, 3),
        call("similar_content", {"genre": ["alpha", str(LARGE)], "title": {"en": [1, None]}}, 3),
        call("similar_content", {"genre": ("alpha", None), "price": 15}, 3),
        call("similar_content", {"genre": True}, 3),
        call("similar_content", {"genre": "alpha", "price": None, "": []}, 3),
        call("similar_content", {"genre": "alpha", "more": nested("list", 30)}, 3),
        call("similar_content", {"genre": "alpha", "more": nested("object", 30)}, 3),
        call("similar_content", {"price": "+1.5e1"}, 50, at="2031-01-01"),
        call("similar_content", {"genre": "alpha", "price": 15}, 1, at=20_250_101),
        call("similar_content", {"genre": "alpha", "price": 15}, 1, at=20_250_101.05),
    ],
    ids=lambda asked: asked[0],
)
def test_related_items_are_found_alike(rpc: RpcClient, http: Client, lookup: CandidateLookup, asked: Call):
    answer = outcome(rpc, asked)
    assert answer == outcome(http, asked)
    name, given, named = asked
    assert answer == getattr(lookup, name)(*given, **named)


def test_a_whole_number_stays_one(rpc: RpcClient):
    rows = [{"genre": "alpha"}, {"genre": LARGE}, {"genre": str(LARGE)}, {"genre": float(LARGE)}, {"genre": LARGE - 1}]
    assert [rpc.similar_content(row, 1).candidates[0].item_id for row in rows] == ["a", "b", "b", "c", "c"]


def test_seconds_are_no_date(rpc: RpcClient, http: Client):
    """20250101 is a second of 1970, when an item that closed in 2020 was there."""
    for client in (rpc, http):
        for at in (20_250_101, 20_250_101.05):
            assert client.similar("gone", 50, at=at) == client.similar("gone", 50, at="1970-08-23T09:01:41Z")
            row = {"genre": "alpha", "price": 15}
            assert client.similar_content(row, 1, at=at).candidates[0].item_id == "gone"


@pytest.mark.parametrize(
    "asked",
    [
        *(
            call("candidates", **ASKED, context=context)
            for context in (
                {"devise": "pc"},
                {"hour": 99},
                {"hour": 3.0},
                {"hour": True},
                {"hour": 10**30},
                {"device": []},
                {"device": {}},
                {"device": "x" * 4097},
                {"x" * 4097: None},
                {str(number): None for number in range(65)},
                {"device": float("nan")},
                {"device": float("-inf")},
                {"device": object()},
                {"device": 10**5000},
                "device",
                [["device", "tv"]],
            )
        ),
        call("candidates_batch", [ASKED, {**ASKED, "context": {"devise": "pc"}}]),
        call("candidates", k=True),
        call("candidates", explain=True),
        call("candidates", at=True),
        call("candidates_batch", [ASKED, 7]),
        call("similar", "a" * 4097),
        call("similar", "a", 0),
        call("similar", "a", 201),
        call("similar", "a", "many"),
        call("similar", "a", True),
        call("similar", "a", at="never"),
        call("similar", "a", at=10**400),
        call("similar", "\ud800"),
        call("complementary", "a", event="sale"),
        call("complementary", "a", event=""),
        call("complementary", "a", event="e" * 4097),
        call("complementary", "a" * 4097),
        call("complementary", "a", 2**40),
        call("complementary", "a", at=float("inf")),
        call("complementary", "a", at=True),
        call("similar_content", {}),
        call("similar_content", {"title": "Alpha"}),
        call("similar_content", {"genre": None}),
        call("similar_content", {"genre": {"a": 1}}),
        call("similar_content", {"genre": ["a", 1]}),
        call("similar_content", {"price": "cheap"}),
        call("similar_content", {"price": 2**63}),
        call("similar_content", {"price": float("nan")}),
        call("similar_content", {"price": object()}),
        call("similar_content", {"genre": "alpha", "x" * 4097: 1}),
        call("similar_content", {"genre": "alpha"} | dict.fromkeys(map(str, range(256)))),
        call("similar_content", {"genre": "alpha"}, 0),
        call("similar_content", {"genre": "alpha"}, 201),
        call("similar_content", {"genre": "alpha"}, at="never"),
        call("similar_content", "alpha"),
    ],
    ids=lambda asked: asked[0],
)
def test_what_is_refused_is_refused_by_both(rpc: RpcClient, http: Client, asked: Call):
    assert (outcome(rpc, asked), outcome(http, asked)) == ("refused", "refused")


@pytest.mark.parametrize("asked", [call("similar", "zz"), call("complementary", "zz"), call("complementary", "")])
def test_an_unknown_item_is_not_found(rpc: RpcClient, http: Client, asked: Call):
    assert (outcome(rpc, asked), outcome(http, asked)) == (404, 404)
    with pytest.raises(ServiceError, match=r"NOT_FOUND.*no item '"):
        getattr(rpc, asked[0])(*asked[1])


def test_limits_of_context_and_content_are_reached(rpc: RpcClient, http: Client):
    row = {"genre": "alpha"} | dict.fromkeys(map(str, range(255)))
    assert rpc.similar_content(row, 1) == http.similar_content(row, 1)
    for client in (rpc, http):
        with pytest.raises(SearchError, match="no context feature"):  # 64 entries are read, and one is unknown
            client.candidates(**ASKED, context={str(number): None for number in range(64)})


def test_an_encoder_without_content_is_said_to_be_one(tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(tower, features=None))
    with (
        RpcServer(tmp_path / "store") as running,
        RpcClient(f"grpc://{running.target}", deadline_s=20) as rpc,
        Client(running.url, deadline_s=20) as http,
    ):
        asked = call("similar_content", {"genre": "alpha"})
        assert (outcome(rpc, asked), outcome(http, asked)) == (501, 501)
        with pytest.raises(ServiceError, match=r"UNIMPLEMENTED: the encoder of release .* reads no content") as caught:
            rpc.similar_content({"genre": "alpha"})
        assert caught.value.request_id
        with pytest.raises(SearchError, match="trained without context"):
            rpc.candidates(history=["a"], context={"device": "pc"})
        assert rpc.candidates(history=["a"], context={}) == http.candidates(history=["a"], context={})


def test_too_large_a_message_is_refused_unread(rpc: RpcClient):
    for asked in (
        call("similar_content", {"genre": "x" * 30_000}),
        call("candidates", context={"device": "x" * 30_000}),
        call("complementary", "x" * 30_000),
    ):
        assert outcome(rpc, asked) == 413


def test_the_service_itself_keeps_the_limits(service: RpcServer):
    messages = []
    for number in (float("nan"), float("inf")):
        messages.append(pb.CandidatesRequest())
        messages[-1].context["device"].double_value = number
    messages.append(pb.CandidatesRequest())
    messages[-1].context["device"].list_value.values.add()
    for message, said in zip(messages, ("nan is no finite", "inf is no finite", "is due, not list"), strict=True):
        code, details, _, _ = raw_call(service, "Candidates", message.SerializeToString())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"context.device: {said}" in details or f"boolean or null {said}" in details
    untold = pb.CandidatesRequest(k=1)
    untold.context["device"].SetInParent()
    assert raw_call(service, "Candidates", untold.SerializeToString())[0] is grpc.StatusCode.OK


def test_content_that_nests_too_deep_is_refused(service: RpcServer, rpc: RpcClient):
    for kind in ("list", "object"):
        with pytest.raises(SearchError, match=r"content\.more: lists and objects nest 30 deep"):
            rpc.similar_content({"genre": "alpha", "more": nested(kind, 31)})
    message = pb.SimilarContentRequest()
    value = message.content["more"]
    for _ in range(99):
        value = value.list_value.values.add()
    code, said, _, _ = raw_call(service, "SimilarContent", message.SerializeToString())
    assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no such message")


def test_new_calls_are_counted_by_name(service: RpcServer, rpc: RpcClient):
    rpc.similar_content({"genre": "alpha"})
    rpc.complementary("a")
    figures = service.ask("GET", "/metrics")[1]
    for name in ("SimilarContent", "Complementary"):
        assert f'recsys_cg_requests_total{{path="grpc:{name}",status="OK"}}' in figures
