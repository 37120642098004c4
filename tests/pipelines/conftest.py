"""One small world, walked the whole way once; the tests look at what it left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL = [
    "model.dim=16",
    "model.blocks=1",
    "model.negatives=[{kind='in_batch', count=64}, {kind='popularity', count=64}]",
    "training.epochs=2",
    "training.batch_sequences=8",
    "training.row_length=32",
    "training.warmup_steps=5",
    "dataset.max_history=20",
    "dataset.shards=2",
    "evaluation.k=[5, 20]",
    "evaluation.primary_k=20",
    "evaluation.bootstrap_samples=100",
    "evaluation.baselines=['popularity', 'ease']",
    "index.kind=scann",
    "index.k=20",
    "index.target_recall=0.9",
    "gates.beat_baseline=off",
    "gates.min_index_recall=0.8",
]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from recsys_cg.cli import main; main()", *arguments]


def call(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would, in its own process."""
    environment = {**os.environ, "RECSYS_CG_DEBUG": "1"} if check else dict(os.environ)
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment, check=False)
    if check:
        assert done.returncode == 0, done.stderr[-4000:]
    return done


@dataclass(frozen=True)
class Site:
    """A project file with its data and a work directory."""

    config: Path
    workdir: Path

    @property
    def store(self) -> Path:
        return self.workdir / "store"

    def options(self, *overrides: str) -> list[str]:
        settings = [f"--set={one}" for one in (*SMALL, *overrides)]
        return ["--config", str(self.config), "--workdir", str(self.workdir), *settings]

    def current(self) -> Path:
        return self.store / "releases" / (self.store / "CURRENT").read_text(encoding="utf-8").strip()


@pytest.fixture(scope="session")
def site(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A finished site. Tests must not change it: they copy."""
    made = Site(world / "project.toml", tmp_path_factory.mktemp("site") / "work")
    done = call("run", *made.options(), "--json")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    (made.workdir / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (made.workdir / "log.txt").write_text(done.stderr, encoding="utf-8")
    return made


@pytest.fixture
def copy_site(site: Site, tmp_path: Path) -> Callable[[], Site]:
    def copy() -> Site:
        target = tmp_path / "work"
        shutil.copytree(site.workdir, target, copy_function=shutil.copy2)
        return Site(site.config, target)

    return copy
