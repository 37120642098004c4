"""A tiny project for schedulers to run: the simulated world, and a model that trains in seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SCHEDULE = Path(__file__).parents[2] / "pipelines" / "schedule"

_SMALL = """
[dataset]
max_history = 20
shards = 2

[model]
dim = 16
blocks = 1
negatives = [{ kind = "in_batch", count = 64 }, { kind = "popularity", count = 64 }]

[training]
epochs = 2
batch_sequences = 8
row_length = 32
warmup_steps = 5

[evaluation]
k = [5, 20]
primary_k = 20
bootstrap_samples = 100
baselines = ["popularity"]

[index]
kind = "exact"

[gates]
beat_baseline = "off"
"""


@pytest.fixture(scope="session")
def project(world: Path) -> Path:
    """The project file of a world that runs in half a minute."""
    file = world / "small.toml"
    file.write_text((world / "project.toml").read_text(encoding="utf-8") + _SMALL, encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def recsys_cg(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as an executable file, whether or not the package's scripts were installed."""
    file = tmp_path_factory.mktemp("bin") / "recsys-cg"
    file.write_text(f"#!{sys.executable}\nfrom recsys_cg.cli import main\nmain()\n", encoding="utf-8")
    file.chmod(0o755)
    return file
