from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from recsys_cg.serving import follower as follower_module
from recsys_cg.serving.follower import Follower
from recsys_cg.serving.memory import return_unused
from tests.serving.world import World, point_at, publish_release

FIRST, SECOND = "20260101T000000Z-00000001", "20260102T000000Z-00000002"


def test_the_c_library_is_asked_to_give_back_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=asked.append))
    return_unused()
    assert asked == [0]


def test_a_c_library_without_that_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    return_unused()


def test_memory_is_given_back_at_the_look_after_a_swap_and_then_not_again(
    tower: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[str | None] = []
    follower = Follower(store_path)
    monkeypatch.setattr(follower_module, "return_unused", lambda: times.append(follower._taken))
    follower.check()
    follower.check()
    assert times == []  # nothing served before
    publish_release(store_path, World(tower, name=SECOND))
    follower.check()
    assert times == []  # requests may still hold the release before
    follower.check()
    follower.check()
    assert times == [SECOND]
    point_at(store_path, FIRST)
    follower.check()
    follower.check()
    assert times == [SECOND, FIRST]
