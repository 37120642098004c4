"""What every test starts from: a clean environment, and logging as it was before."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RECSYS_CG_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """The command line sets up the project's logger; a test that calls it in process must not change the next one."""
    logger = logging.getLogger("recsys_cg")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated world with its project file."""
    from recsys_cg.data.worlds import WorldConfig, simulate_world

    directory = tmp_path_factory.mktemp("data") / "world"
    simulate_world(directory, WorldConfig(users=400, items=200, events=8_000, epochs=20, seed=7))
    return directory
