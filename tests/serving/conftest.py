"""One exported tower for all tests of serving, and releases around it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.redis_server import RedisServer
from tests.serving.world import DIM, MAX_HISTORY, World, publish_release, write_release


@pytest.fixture(scope="session")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of query.tflite, exported by another process so that this one stays free of TensorFlow."""
    directory = tmp_path_factory.mktemp("tower")
    program = Path(__file__).with_name("tower.py")
    subprocess.run(
        [sys.executable, program, directory, str(MAX_HISTORY), str(DIM)], check=True, capture_output=True, timeout=240
    )
    return directory / "query.tflite"


@pytest.fixture(scope="session")
def release_path(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release of `world.ITEMS`; not to be changed."""
    path = tmp_path_factory.mktemp("release") / "whole"
    write_release(path, World(tower))
    return path


@pytest.fixture
def store_path(tower: Path, tmp_path: Path) -> Path:
    """A store in which that release is published; to be changed at will."""
    publish_release(tmp_path / "store", World(tower))
    return tmp_path / "store"


@pytest.fixture(scope="module")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis of the module's own; skipped where none is installed."""
    running = RedisServer(tmp_path_factory.mktemp("redis"))
    running.start()
    yield running
    running.stop()
