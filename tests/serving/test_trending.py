"""Lookups in a release that ranks by what is asked for at the moment, and Redis as the source of that."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.errors import ArtifactCorruptError, ConfigError
from recsys_cg.serving import trending
from recsys_cg.serving.answer import Answer
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.trending import RedisTrends, Trending
from tests.serving.redis_server import RedisServer
from tests.serving.server import Server
from tests.serving.world import World, publish_release, write_release

BONUS, KEY = 0.25, "recsys-cg:trending"
INFO = {"trends": {"half_life_hours": 1.0, "bonus": BONUS}}


class Now:
    """The same at all times, until it is changed."""

    def __init__(self, counts: Mapping[str, float] | None) -> None:
        self.trending = None if counts is None else Trending(list(counts), np.array(list(counts.values()), np.float64))

    def at(self, at_us: int) -> Trending | None:
        return self.trending


def open_with(path: Path, tower: Path, counts: Mapping[str, float] | None) -> CandidateLookup:
    if not path.exists():
        write_release(path, World(tower, info=INFO))
    return CandidateLookup.open(path, trends=Now(counts))


def scores(answer: Answer) -> dict[str, float]:
    return {one.item_id: float(one.score) for one in answer.candidates if one.score is not None}


def names(answer: Answer) -> list[str]:
    return [one.item_id for one in answer.candidates]


def test_an_item_gets_the_bonus_times_the_logarithm_of_its_count(tower: Path, tmp_path: Path) -> None:
    before = scores(open_with(tmp_path / "r", tower, {}).candidates(history=["a"], k=50))
    after = scores(
        open_with(tmp_path / "r", tower, {"c": 6, "cold": 1, "unheard of": 99}).candidates(history=["a"], k=50)
    )
    assert before.keys() == after.keys()
    for item, score in before.items():
        assert after[item] == pytest.approx(score + BONUS * np.log1p({"c": 6, "cold": 1}.get(item, 0)), abs=1e-6)
    assert list(after) == sorted(after, key=lambda item: -after[item])


def test_an_item_from_beyond_the_list_comes_in(tower: Path, tmp_path: Path) -> None:
    ranked = names(open_with(tmp_path / "r", tower, {}).candidates(history=["a"], k=50))
    last = ranked[-1]
    assert names(open_with(tmp_path / "r", tower, {last: 10**6}).candidates(history=["a"], k=2)) == [last, ranked[0]]


def test_exclusions_allow_lists_availability_and_what_was_met_hold_for_what_trends(tower: Path, tmp_path: Path) -> None:
    counts = dict.fromkeys(["a", "b", "c", "soon", "gone"], 1000)
    lookup = open_with(tmp_path / "r", tower, counts)
    assert names(lookup.candidates(history=["a"], k=2, at=1_800_000_000.0)) in (["b", "c"], ["c", "b"])
    assert names(lookup.candidates(history=["a"], k=1, exclude=["b"], at=1_800_000_000.0)) == ["c"]
    assert set(names(lookup.candidates(history=["a"], k=50, allow=["ab", "b"]))) == {"ab", "b"}
    assert names(lookup.candidates(history=["a"], k=1, deny_seen=False, exclude=["b", "c"])) == ["a"]


@pytest.mark.parametrize("counts", [None, {}])
def test_where_nothing_is_known_to_trend_lists_are_by_similarity(
    tower: Path, tmp_path: Path, counts: dict[str, int] | None
) -> None:
    write_release(tmp_path / "plain", World(tower))
    expected = CandidateLookup.open(tmp_path / "plain").candidates(history=["a", "b"], k=50)
    found = open_with(tmp_path / "r", tower, counts).candidates(history=["a", "b"], k=50)
    assert scores(found) == scores(expected)
    assert names(open_with(tmp_path / "r", tower, counts).candidates(k=4)) == names(
        CandidateLookup.open(tmp_path / "plain").candidates(k=4)
    )


def test_a_release_without_trends_takes_no_notice_of_them(tower: Path, tmp_path: Path) -> None:
    write_release(tmp_path / "plain", World(tower))
    asked, unasked = (CandidateLookup.open(tmp_path / "plain", trends=one) for one in (Now({"c": 10**6}), None))
    assert scores(asked.candidates(history=["a"], k=50)) == scores(unasked.candidates(history=["a"], k=50))
    assert names(asked.candidates(k=5)) == names(unasked.candidates(k=5))


def test_who_has_no_history_gets_what_trends_and_then_what_is_popular(tower: Path, tmp_path: Path) -> None:
    lookup = open_with(tmp_path / "r", tower, {"cold": 3, "ac": 7, "gone": 50, "ab": 3})
    answer = lookup.candidates(k=5, at=1_800_000_000.0)
    assert answer.fallback == "empty_history"
    assert names(answer) == ["ac", "ab", "cold", "a", "c"]
    assert {one.score for one in answer.candidates} == {None}
    assert names(lookup.candidates(k=2, exclude=["ac"], at=1_800_000_000.0)) == ["ab", "cold"]
    assert names(lookup.candidates(k=9, allow=["b", "cold"], at=1_800_000_000.0)) == ["cold", "b"]


def test_items_like_an_item_and_items_that_go_with_it_are_not_ranked_by_what_trends(
    tower: Path, tmp_path: Path
) -> None:
    quiet, loud = (open_with(tmp_path / "r", tower, counts) for counts in ({}, {"c": 10**6}))
    assert scores(loud.similar("a", 50)) == scores(quiet.similar("a", 50))
    assert scores(loud.complementary("a", 50)) == scores(quiet.complementary("a", 50))


def test_what_trends_may_change_between_two_lookups(tower: Path, tmp_path: Path) -> None:
    lookup = open_with(tmp_path / "r", tower, {"c": 10**6})
    assert names(lookup.candidates(history=["a"], k=1)) == ["c"]
    lookup._trends.trending = Trending(["b"], np.array([1e6]))  # type: ignore[union-attr]
    assert names(lookup.candidates(history=["a"], k=1)) == ["b"]
    lookup._trends.trending = None  # type: ignore[union-attr]
    assert "b" not in names(lookup.candidates(history=["c"], k=1))


@pytest.mark.parametrize(
    "trends",
    [
        "yes",
        {},
        {"half_life_hours": 1.0},
        *({"half_life_hours": hours, "bonus": 0.1} for hours in ("x", 0, 8785, 10**400, float("inf"))),
        *({"half_life_hours": 1, "bonus": bonus} for bonus in (2.5, -0.1, float("nan"))),
    ],
)
def test_a_rule_that_cannot_be_is_refused_when_the_release_is_opened(
    tower: Path, tmp_path: Path, trends: object
) -> None:
    write_release(tmp_path / "r", World(tower, info={"trends": trends}))
    with pytest.raises(ArtifactCorruptError, match=r"manifest\.json: info\.trends"):
        CandidateLookup.open(tmp_path / "r")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def open_trends() -> Iterator[Callable[..., RedisTrends]]:
    """Open sources, and close them when the test has ended."""
    opened: list[RedisTrends] = []

    def open_one(url: str, **options: object) -> RedisTrends:
        opened.append(RedisTrends(url, timeout_s=5.0, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def now_us() -> int:
    return time.time_ns() // 1000


def read(trends: RedisTrends, at_us: int | None = None) -> dict[str, float] | None:
    found = trends.at(now_us() if at_us is None else at_us)
    return None if found is None else dict(zip(found.item_ids, found.counts.tolist(), strict=True))


def test_a_sorted_set_is_read_and_what_is_no_count_of_an_item_is_left_out(
    running_redis: RedisServer, open_trends: Callable[..., RedisTrends]
) -> None:
    outcomes: Counter[str] = Counter()
    trends = open_trends(running_redis.url, observe=lambda outcome: outcomes.update([outcome]))
    assert read(trends) is None  # nothing was read yet
    running_redis.client.flushall()
    trends.refresh()
    assert read(trends) == {}
    running_redis.client.zadd(KEY, {"ä/🎬": 12, "b": 3.7})
    trends.refresh()
    assert read(trends) == {"ä/🎬": 12.0, "b": 3.7}
    running_redis.client.zadd(KEY, {b"\xff": 5, "zero": 0.0, "faded": 0.062, "negative": -3, "endless": float("inf")})
    trends.refresh()
    assert read(trends) == {"ä/🎬": 12.0, "b": 3.7}
    assert outcomes == {"read": 2, "malformed": 1}
    running_redis.client.zrem(KEY, b"\xff", "endless")
    trends.refresh()
    assert outcomes == {"read": 3, "malformed": 1}, "what has nearly faded is no mistake"
    before = trends.at(now_us())
    trends.refresh()
    assert trends.at(now_us()) is before  # so that nobody looks its ids up again


def test_scores_fade_by_the_commands_that_are_documented(
    running_redis: RedisServer, open_trends: Callable[..., RedisTrends]
) -> None:
    commands = [line.split() for line in (trending.__doc__ or "").splitlines() if line.startswith("    Z")]
    assert [command[0] for command in commands] == ["ZINCRBY", "ZUNIONSTORE", "ZREMRANGEBYSCORE"]
    add, *each_minute = commands
    assert float(each_minute[0][-1]) == pytest.approx(2 ** (-1 / 20), abs=1e-4)
    client = running_redis.client
    client.flushall()
    trends = open_trends(running_redis.url)
    for _ in range(2):
        client.execute_command(*add)
    for minute in range(100):
        for command in each_minute:
            client.execute_command(*command)
        if minute == 19:
            client.execute_command(*add)
            trends.refresh()
            assert read(trends) == pytest.approx({"item-7": 2 * 0.5 + 1}, abs=1e-3)
    trends.refresh()
    assert read(trends) == pytest.approx({"item-7": 2 * 0.5**5 + 0.5**4}, abs=1e-3)
    for _ in range(21):
        for command in each_minute:
            client.execute_command(*command)
    assert not client.exists(KEY)


def test_a_key_of_another_type_is_said_and_kept_from_lookups(
    running_redis: RedisServer, open_trends: Callable[..., RedisTrends], caplog: pytest.LogCaptureFixture
) -> None:
    running_redis.client.flushall()
    running_redis.client.set(KEY, "text")
    trends = open_trends(running_redis.url)
    with caplog.at_level(logging.ERROR, "recsys_cg"):
        trends.refresh()
        trends.refresh()
    assert read(trends) is None
    assert len(caplog.records) == 1


def test_what_trends_now_says_nothing_of_other_times(
    running_redis: RedisServer, open_trends: Callable[..., RedisTrends]
) -> None:
    running_redis.client.flushall()
    running_redis.client.zadd(KEY, {"a": 1})
    trends = open_trends(running_redis.url)
    trends.refresh()
    assert read(trends, now_us() - 30_000_000) == {"a": 1}
    assert read(trends, now_us() - 61_000_000) is None
    assert read(trends, now_us() + 3_600_000_000) is None


def test_what_was_read_last_goes_on_for_five_minutes_without_redis(
    tmp_path: Path, open_trends: Callable[..., RedisTrends], caplog: pytest.LogCaptureFixture
) -> None:
    redis_server, clock = RedisServer(tmp_path), Clock()
    redis_server.start()
    try:
        trends = open_trends(redis_server.url, clock=clock)
        redis_server.client.zadd(KEY, {"a": 1})
        trends.refresh()
        redis_server.stop()
        with caplog.at_level(logging.INFO, "recsys_cg"):
            for clock.now in (100.0, 299.0, 301.0):
                trends.refresh()
                assert read(trends) == ({"a": 1} if clock.now < 300 else None)
            redis_server.start()
            redis_server.client.zadd(KEY, {"b": 2})
            trends.refresh()
        assert read(trends) == {"b": 2}
        said = [record.__dict__.get("trends") for record in caplog.records]
        assert said == ["down", "up"]
    finally:
        redis_server.stop()


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://host:port"])
def test_an_address_that_is_none_of_a_redis_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="live_trends"):
        RedisTrends(url)


def test_the_service_ranks_by_what_redis_says(tower: Path, tmp_path: Path, running_redis: RedisServer) -> None:
    running_redis.client.flushall()
    publish_release(tmp_path / "store", World(tower, info=INFO))
    with Server(tmp_path / "store", live_trends=running_redis.url, reload_seconds=0.1) as service:

        def first(**request: object) -> str:
            status, answer, _ = service.ask("POST", "/v1/candidates", json.dumps(request | {"k": 1}).encode())
            assert status == 200, answer
            return str(answer["candidates"][0]["item_id"])

        assert first(history=["a"]) not in ("cold", "c")
        running_redis.client.zadd(KEY, {"cold": 10**6})
        deadline = time.monotonic() + 30
        while first(history=["a"]) != "cold" or first() != "cold":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert 'recsys_cg_live_trends_total{outcome="read"}' in service.ask("GET", "/metrics")[1]
