from __future__ import annotations

import errno
import gc
import json
import logging
import os
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.release.store import Store
from recsys_cg.serving.follower import Follower
from tests.serving.world import World, point_at, publish_release

FIRST, SECOND = "20260101T000000Z-00000001", "20260102T000000Z-00000002"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def name_of(follower: Follower) -> str | None:
    return follower.lookup.release.name if follower.lookup is not None else None


def test_a_published_release_and_a_rollback_are_taken_over(tower: Path, store_path: Path):
    follower = Follower(store_path)
    assert follower.check()
    assert name_of(follower) == FIRST
    assert not follower.check()
    publish_release(store_path, World(tower, name=SECOND))
    assert follower.check()
    assert name_of(follower) == SECOND
    point_at(store_path, FIRST)
    assert follower.check()
    assert (name_of(follower), follower.swaps) == (FIRST, 3)


def test_a_broken_release_is_refused_logged_once_and_the_old_one_serves(
    tower: Path, store_path: Path, caplog: pytest.LogCaptureFixture
):
    clock = Clock()
    follower = Follower(store_path, clock=clock)
    follower.check()
    serving = follower.lookup
    path = publish_release(store_path, World(tower, name=SECOND))
    whole = (path / "vectors.npy").read_bytes()
    (path / "vectors.npy").write_bytes(whole[:-1])
    with caplog.at_level(logging.ERROR, "recsys_cg"):
        for _ in range(5):
            assert not follower.check()
    assert follower.lookup is serving
    assert follower.refusal is not None
    assert (follower.refusal.release, follower.refusal.attempts) == (SECOND, 1)
    assert "vectors.npy" in follower.refusal.why
    assert len(caplog.records) == 1
    clock.now = 5.0
    follower.check()
    assert (follower.refusal.attempts, follower.refusal.retry_at) == (2, 15.0)
    (path / "vectors.npy").write_bytes(whole)
    clock.now = 15.0
    assert follower.check()
    assert (name_of(follower), follower.refusal) == (SECOND, None)


def test_a_disk_that_is_full_while_loading_leaves_the_old_one_until_there_is_room(
    tower: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A store elsewhere is copied to this disk: the copy stops half-way."""
    clock = Clock()
    follower = Follower(store_path, clock=clock)
    follower.check()
    serving = follower.lookup
    publish_release(store_path, World(tower, name=SECOND))

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Store, "path_of", full)
        assert not follower.check()
    assert follower.lookup is serving
    assert follower.refusal is not None
    assert (follower.refusal.release, follower.refusal.attempts) == (SECOND, 1)
    assert "No space left on device" in follower.refusal.why
    assert not follower.check()
    clock.now = 5.1
    assert follower.check()
    assert (name_of(follower), follower.refusal) == (SECOND, None)


def test_moving_on_from_a_broken_release_forgets_it(tower: Path, store_path: Path):
    follower = Follower(store_path)
    follower.check()
    shutil.rmtree(publish_release(store_path, World(tower, name=SECOND)) / "encoder")
    follower.check()
    assert follower.refusal is not None
    point_at(store_path, FIRST)
    assert not follower.check()
    assert (name_of(follower), follower.refusal) == (FIRST, None)


@pytest.mark.parametrize("text", ["nowhere", "../..", "", "a\nb", "\x00"])
def test_current_that_points_nowhere_leaves_the_old_one(store_path: Path, text: str):
    follower = Follower(store_path)
    follower.check()
    point_at(store_path, text)
    assert not follower.check()
    assert name_of(follower) == FIRST
    assert follower.refusal is not None
    point_at(store_path, FIRST)
    follower.check()
    assert follower.refusal is None


def test_a_store_that_does_not_exist_yet_is_waited_for(tower: Path, tmp_path: Path):
    follower = Follower(tmp_path / "store")
    assert not follower.check()
    assert follower.refusal is not None
    publish_release(tmp_path / "store", World(tower))
    assert follower.check()
    assert name_of(follower) == FIRST


def test_a_directory_under_the_name_of_another_release_is_refused(tower: Path, store_path: Path):
    publish_release(store_path, World(tower, name=SECOND)).rename(store_path / "releases" / "other")
    point_at(store_path, "other")
    follower = Follower(store_path)
    assert not follower.check()
    assert follower.refusal is not None
    assert f"holds release {SECOND}" in follower.refusal.why


def test_a_release_that_loads_but_cannot_answer_is_refused(tower: Path, store_path: Path):
    follower = Follower(store_path)
    follower.check()
    path = publish_release(store_path, World(tower, name=SECOND, info={"history_vectors": "history_vectors.npy"}))
    np.save(path / "history_vectors.npy", np.full((9, 4), np.nan, np.float32))
    seal(path, kind="release", key="0", info=json.loads((path / "manifest.json").read_text())["info"])
    assert not follower.check()
    assert name_of(follower) == FIRST
    assert follower.refusal is not None
    assert "NaN" in follower.refusal.why


def test_a_lone_release_directory_is_served(release_path: Path):
    follower = Follower(release_path)
    assert follower.check()
    assert not follower.check()
    assert name_of(follower) == FIRST


def test_the_release_before_is_let_go(tower: Path, store_path: Path):
    follower = Follower(store_path)
    follower.check()
    assert follower.lookup is not None
    before = weakref.ref(follower.lookup.release.encoder)
    publish_release(store_path, World(tower, name=SECOND))
    follower.check()
    gc.collect()
    assert before() is None
