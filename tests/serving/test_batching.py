from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import Answer, Request
from recsys_cg.serving.batching import Batcher, DeadlineError, NotReadyError, OverloadedError


class FakeLookup:
    """Answers each request with its k as the release name; ``open`` lets it go on."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.threads: list[bool] = []
        self.open = threading.Event()
        self.open.set()

    def candidates_batch(self, requests: Sequence[Request]) -> list[Answer]:
        self.batches.append(len(requests))
        self.threads.append(threading.current_thread() is threading.main_thread())
        assert self.open.wait(10)
        if any(request.k == 13 for request in requests):
            raise SearchError("thirteen")
        return [Answer(str(request.k), ()) for request in requests]


def render(answers: Sequence[Answer]) -> bytes:
    return ",".join(answer.release for answer in answers).encode()


def play(
    scene: Any,
    *,
    lookup: Any = None,
    most: int = 4,
    waiting: int = 6,
    deadline_s: float = 5.0,
    on_loop: bool = False,
) -> SimpleNamespace:
    """Run ``scene(batcher, lookup)`` beside the batcher's task; return what was seen."""
    lookup = lookup or FakeLookup()
    seen: list[int] = []

    async def run() -> Any:
        batcher = Batcher(
            lambda: None if lookup == "none" else lookup,
            most=most,
            waiting=waiting,
            deadline_s=deadline_s,
            observe=lambda answers: seen.append(len(answers)),
            is_quick=(lambda one: one is lookup) if on_loop else None,
        )
        task = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(scene(batcher, lookup), 20)
        finally:
            lookup == "none" or lookup.open.set()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    return SimpleNamespace(result=asyncio.run(run()), seen=seen, lookup=lookup)


def asks(batcher: Batcher, *ks: int) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(batcher.ask([Request(k=k)], render)) for k in ks]


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_each_gets_its_own_answer():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[bytes]:
        return await asyncio.gather(*asks(batcher, 1, 2, 3, 4, 5, 6))

    played = play(scene)
    assert played.result == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert sum(played.seen) == 6


def test_what_waits_together_is_answered_together_up_to_the_batch_size():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> None:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        tasks += asks(batcher, 2, 3, 4, 5, 6)
        await until(lambda: batcher.waiting == 5)
        lookup.open.set()
        await asyncio.gather(*tasks)

    assert play(scene).lookup.batches == [1, 4, 1]


def test_more_than_may_wait_is_refused_at_once_and_the_rest_is_answered():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[Any]:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        tasks += asks(batcher, *range(2, 10))
        await until(lambda: sum(task.done() for task in tasks) == 2)
        lookup.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    result = play(scene).result
    assert [one for one in result if isinstance(one, bytes)] == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert [type(one) for one in result[-2:]] == [OverloadedError, OverloadedError]


def test_a_job_larger_than_the_bound_is_taken_when_nothing_waits():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> bytes:
        return await batcher.ask([Request(k=k) for k in range(1, 10)], render)

    assert play(scene).result == b"1,2,3,4,5,6,7,8,9"


def test_what_waited_too_long_is_not_tried():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[Any]:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        tasks += asks(batcher, 2)
        await asyncio.sleep(0.1)
        lookup.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    played = play(scene, deadline_s=0.05)
    assert played.result[0] == b"1"
    assert isinstance(played.result[1], DeadlineError)
    assert played.lookup.batches == [1]


def test_one_bad_request_fails_alone():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[Any]:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        tasks += asks(batcher, 2, 13, 3)
        await until(lambda: batcher.waiting == 3)
        lookup.open.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    result = play(scene).result
    assert [result[0], result[1], result[3]] == [b"1", b"2", b"3"]
    assert isinstance(result[2], SearchError)


def test_a_call_runs_in_turn_and_its_error_is_its_own():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[Any]:
        def fail(_: Any) -> bytes:
            raise SearchError("no")

        good = batcher.call(lambda given: b"yes" if given is lookup else b"no")
        return await asyncio.gather(good, batcher.call(fail), *asks(batcher, 5), return_exceptions=True)

    good, bad, asked = play(scene).result
    assert (good, type(bad), asked) == (b"yes", SearchError, b"5")


def test_an_abandoned_request_is_not_answered():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> None:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        (lost,) = asks(batcher, 2)
        await until(lambda: batcher.waiting == 1)
        lost.cancel()
        await asyncio.sleep(0)
        lookup.open.set()
        await asyncio.gather(*tasks, *asks(batcher, 3))

    assert play(scene).lookup.batches == [1, 1]


def test_without_a_release_nothing_is_tried():
    async def scene(batcher: Batcher, lookup: Any) -> None:
        with pytest.raises(NotReadyError):
            await batcher.ask([Request()], render)

    play(scene, lookup="none")


def test_the_loop_is_free_while_a_batch_is_answered():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> float:
        lookup.open.clear()
        tasks = asks(batcher, 1)
        await until(lambda: lookup.batches)
        started = time.monotonic()
        await asyncio.sleep(0.01)
        free_after = time.monotonic() - started
        lookup.open.set()
        await asyncio.gather(*tasks)
        return free_after

    assert play(scene).result < 5


def test_short_work_is_done_on_the_loop_and_long_work_in_the_thread():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[bytes]:
        short = await asyncio.gather(*asks(batcher, 1, 2))
        await batcher.ask([Request(k=200)] * 4, render)
        history = [f"{place}" for place in range(501)]
        for long in (
            [Request(k=201)],
            [Request(allow=["a"])],
            [Request(k=3)] * 5,
            [Request(history=history)],
            [Request(exclude=history)],
            [Request(explain=1)],
        ):
            await batcher.ask(long, render)
        called = await batcher.call(lambda _: str(threading.current_thread() is threading.main_thread()).encode())
        return [*short, called]

    played = play(scene, on_loop=True)
    assert played.result == [b"1", b"2", b"False"]
    assert played.lookup.threads == [True, True] + [False] * 6
    assert played.lookup.batches == [2, 4, 1, 1, 5, 1, 1, 1]


def test_work_on_the_loop_lets_others_in_between_batches():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[int]:
        turns = []
        tasks = asks(batcher, *range(1, 7))
        while not all(task.done() for task in tasks):
            turns.append(len(lookup.batches))
            await asyncio.sleep(0)
        return turns

    turns = play(scene, on_loop=True).result
    assert turns.count(1) > 1


def test_what_a_lookup_on_the_loop_refuses_is_said_to_the_one_who_asked():
    async def scene(batcher: Batcher, lookup: FakeLookup) -> list[Any]:
        return await asyncio.gather(*asks(batcher, 2, 13, 3), return_exceptions=True)

    first, second, third = play(scene, on_loop=True).result
    assert (first, third) == (b"2", b"3")
    assert isinstance(second, SearchError)
