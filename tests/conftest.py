"""What every test starts from: a clean environment and quiet native libraries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_OURS = ("RECSYS_CG_",)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_OURS[0]):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated world with its project file."""
    from recsys_cg.data.worlds import WorldConfig, simulate_world

    directory = tmp_path_factory.mktemp("data") / "world"
    simulate_world(directory, WorldConfig(users=400, items=200, events=8_000, epochs=20, seed=7))
    return directory
