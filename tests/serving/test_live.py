from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recsys_cg.errors import ConfigError
from recsys_cg.serving.answer import Request
from recsys_cg.serving.entries import HistoryEvent
from recsys_cg.serving.live import UNAVAILABLE, LiveHistory, RedisHistories
from recsys_cg.serving.lookup import CandidateLookup
from tests.serving.redis_server import RedisServer
from tests.serving.server import Server
from tests.serving.world import World, publish_release


@pytest.fixture
def outcomes() -> Counter[str]:
    return Counter()


@pytest.fixture
def histories(running_redis: RedisServer, outcomes: Counter[str]) -> Iterator[RedisHistories]:
    running_redis.client.flushall()
    source = RedisHistories(
        running_redis.url, timeout_s=5.0, most=3, observe=lambda outcome, count: outcomes.update({outcome: count})
    )
    yield source
    source.close()


def test_elements_are_ids_or_objects_and_the_last_ones_are_read(
    running_redis: RedisServer, histories: RedisHistories, outcomes: Counter[str]
):
    running_redis.write(
        "ann", "old", "a", '{"item": "{b}", "time": 7.5, "event": "view"}', '{"item": "c", "time": "1970-01-01"}'
    )
    running_redis.write("böb/🎬", "ä/🎬")
    ann, nobody, bob = histories.get_many(["ann", "nobody", "böb/🎬"])
    assert ann.entries == [HistoryEvent("a"), HistoryEvent("{b}", 7_500_000, "view"), HistoryEvent("c", 0)]
    assert nobody == LiveHistory()
    assert bob.entries == [HistoryEvent("ä/🎬")]
    assert outcomes == {"found": 2, "absent": 1}
    assert histories.get_many([]) == []


def test_what_is_no_event_is_left_out_and_counted(
    running_redis: RedisServer, histories: RedisHistories, outcomes: Counter[str]
):
    for element in (
        b"\xff",
        "{",
        "{}",
        '{"item": 7}',
        '{"item": "a", "time": NaN}',
        '{"item": "a", "event": []}',
        "{" * 9999,
    ):
        running_redis.write("ann", element, "b")
        assert histories.get_many(["ann"])[0].entries == [HistoryEvent("b")], element
    assert outcomes == {"malformed": 7, "found": 7}
    running_redis.client.set("recsys-cg:history:text", "no list")
    assert histories.get_many(["text", "ann"]) == [UNAVAILABLE, LiveHistory([HistoryEvent("b")])]


def test_live_history_comes_before_the_stored_one_and_both_count_as_seen(
    running_redis: RedisServer, histories: RedisHistories, release_path: Path
):
    lookup = CandidateLookup.open(release_path, live=histories)
    running_redis.write("ann", "c")
    fresh = lookup.candidates(user_id="ann", k=9)
    assert fresh.fallback is None
    assert {one.item_id for one in fresh.candidates}.isdisjoint({"a", "b", "c"})
    given = lookup.candidates(history=["ab"], user_id="ann", k=9)
    assert {one.item_id for one in given.candidates}.isdisjoint({"a", "b", "c", "ab"})
    alone = CandidateLookup.open(release_path)
    assert fresh.candidates[0] == alone.candidates(history=["c"], exclude=["a", "b"], k=1).candidates[0]
    assert lookup.candidates(user_id="böb", k=2) == alone.candidates(user_id="böb", k=2)
    running_redis.write("ann", "no such item")
    assert lookup.candidates(user_id="ann", k=1).fallback == "unknown_items"
    batch = [Request(user_id="ann", k=1), Request(history=["a"], k=1), Request(user_id="nobody", k=1)]
    assert [one.fallback for one in lookup.candidates_batch(batch)] == ["unknown_items", None, "unknown_user"]


def test_a_redis_that_is_down_costs_one_timeout_and_is_left_alone_for_a_while(outcomes: Counter[str]):
    """The listener takes connections and never answers."""
    now = [0.0]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = RedisHistories(
            f"redis://127.0.0.1:{silent.getsockname()[1]}",
            timeout_s=0.2,
            observe=lambda outcome, count: outcomes.update({outcome: count}),
            clock=lambda: now[0],
        )
        taken = []
        for moment in (0.0, 0.1, 0.4, 0.6, 1.0, 1.7):
            now[0] = moment
            started = time.monotonic()
            assert source.get_many(["a", "b"]) == [UNAVAILABLE, UNAVAILABLE]
            taken.append(time.monotonic() - started >= 0.19)
        source.close()
    assert taken == [True, False, False, True, False, True]
    assert outcomes == {"unavailable": 12}


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://x", "redis://x:notaport", "redis://x/notadatabase?db=q"])
def test_what_is_no_address_of_a_redis_is_refused_without_its_password(url: str):
    with pytest.raises(ConfigError, match="live_histories"):
        RedisHistories(url)
    with pytest.raises(ConfigError) as caught:
        RedisHistories("ftp://user:secret@host")
    assert "secret" not in str(caught.value)


def test_the_service_answers_while_redis_stops_and_starts(tower: Path, tmp_path: Path):
    redis_server = RedisServer(tmp_path)
    redis_server.start()
    publish_release(tmp_path / "store", World(tower))
    options = {"live_histories": redis_server.url, "live_histories_timeout_ms": 500}
    try:
        with Server(tmp_path / "store", **options) as service:
            redis_server.write("new user", "a")
            assert ask(service, "new user")["fallback"] is None
            redis_server.stop()
            assert ask(service, "new user")["fallback"] == "histories_unavailable"
            assert ask(service, "ann")["fallback"] is None
            service.wait_for("are not available", where={"histories": "down", "level": "error"})
            redis_server.start()
            redis_server.write("new user", "a")
            deadline = time.monotonic() + 30
            while ask(service, "new user")["fallback"] is not None:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            service.wait_for("available again", where={"histories": "up"})
            metrics = service.ask("GET", "/metrics")[1]
            for outcome in ("found", "unavailable"):
                assert f'recsys_cg_live_histories_total{{outcome="{outcome}"}}' in metrics
    finally:
        redis_server.stop()


def ask(service: Server, user: str) -> dict[str, object]:
    status, answer, _ = service.ask("POST", "/v1/candidates", json.dumps({"user_id": user, "k": 2}).encode())
    assert status == 200, answer
    assert len(answer["candidates"]) == 2
    return dict(answer)


def test_many_threads_share_one_source(running_redis: RedisServer, histories: RedisHistories):
    for number in range(8):
        running_redis.write(f"u{number}", f"item {number}")
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(50):
            (found,) = histories.get_many([f"u{number}"])
            if found.entries != [HistoryEvent(f"item {number}")]:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == []
