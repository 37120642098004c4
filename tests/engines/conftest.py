"""What all engines are tested with: one small world, its dataset by the in-process runner, and workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys_cg.beam.dataset import build_dataset
from recsys_cg.config import load_config
from recsys_cg.data.worlds import WorldConfig, simulate_world

from .contract import OVERRIDES
from .servers import environment, serve_workers


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project file of a world with impressions and a catalogue."""
    directory = tmp_path_factory.mktemp("engines") / "world"
    simulate_world(directory, WorldConfig(users=400, items=200, events=20_000, epochs=20, seed=7))
    return directory / "project.toml"


@pytest.fixture(scope="session")
def expected(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The world's dataset, as the in-process runner builds it, and what it says of it."""
    directory = tmp_path_factory.mktemp("expected")
    return directory, build_dataset(load_config(project, OVERRIDES), directory)


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Flags for the workers of a pool that is started apart, as on a cluster."""
    with serve_workers(tmp_path_factory.mktemp("pool")) as address:
        yield ["--environment_type=EXTERNAL", f"--environment_config={address}"]


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags for workers that the submitting process starts, each in a process of its own."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return ["--environment_type=LOOPBACK", "--experiments=use_loopback_process_worker"]
