"""A project at work: its configuration, its work directory, and how a stage is skipped, built or resumed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_cg import artifacts
from recsys_cg.artifacts import Manifest
from recsys_cg.config import Config
from recsys_cg.errors import ArtifactError, ArtifactMissingError
from recsys_cg.progress import say

__all__ = ["Project", "Stage", "StageKey"]

_KEPT = 3
_COMMANDS = {"dataset": "dataset", "encoder": "train", "release": "index", "evaluation": "evaluate"}


@dataclass(frozen=True)
class Stage:
    """A whole stage directory.

    Attributes:
        path: the directory.
        manifest: its manifest; ``manifest.digest`` is what the next stage's key depends on.
        skipped: True when it was there already.
    """

    path: Path
    manifest: Manifest
    skipped: bool = False


@dataclass(frozen=True)
class StageKey:
    """What decides a stage's contents: the digests of its inputs, its part of the configuration and the seed."""

    kind: str
    inputs: Mapping[str, str]
    config: Mapping[str, Any]
    seed: int | None = None

    @property
    def digest(self) -> str:
        """Hex digest that names the stage's directory."""
        return artifacts.digest_json(
            {
                "format": artifacts.FORMAT,
                "kind": self.kind,
                "inputs": dict(self.inputs),
                "config": dict(self.config),
                "seed": self.seed,
            }
        )


class Project:
    """A configuration and the work directory in which its stages live.

    Args:
        config: the checked project file.
        workdir: holds ``dataset/``, ``encoder/``, ``release/`` and ``evaluation/``, one directory a stage key,
            ``checkpoints/``, and the store unless the project file puts it elsewhere. Need not exist yet.
    """

    def __init__(self, config: Config, workdir: Path) -> None:
        self.config = config
        self.workdir = workdir.absolute()

    @property
    def store_path(self) -> str:
        """The release store: a URL as it is, a relative path below the work directory."""
        path = self.config.store.path
        return path if "://" in path else str(self.workdir / path)

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn."""
        return self.config.project.seed

    def directory(self, key: StageKey) -> Path:
        """Return where the stage of ``key`` is, or will be."""
        return self.workdir / key.kind / key.digest[:16]

    def checkpoints(self, key: StageKey) -> Path:
        """Return where a stage of ``key`` keeps what lets it resume after being killed."""
        return self.workdir / "checkpoints" / key.digest[:16]

    def require(self, key: StageKey) -> Stage:
        """Return the whole stage of ``key``.

        Raises:
            ArtifactMissingError: it was not built yet for this configuration and these inputs.
            ArtifactCorruptError: a byte was changed.
        """
        path = self.directory(key)
        if not (path / artifacts.MANIFEST).exists():
            command = _COMMANDS[key.kind]
            raise ArtifactMissingError(
                f"{self.workdir} has no {key.kind} for this configuration and these inputs: "
                f"run `recsys-cg {command}` first, or `recsys-cg run` for the whole way"
            )
        return Stage(path, artifacts.verify(path, kind=key.kind), skipped=True)

    def build(self, key: StageKey, write: Callable[[Path], Mapping[str, Any]]) -> Stage:
        """Return the stage of ``key``, building it unless it is there whole.

        Args:
            key: what the stage depends on.
            write: fills an empty directory and returns the manifest's ``info``.
        """
        path = self.directory(key)
        found = self._find(path, key)
        if found is not None:
            (path / artifacts.MANIFEST).touch()  # the stages used last are the ones kept
            say(f"{key.kind}: inputs and configuration unchanged, skipped ({path.name})")
            return found
        artifacts.remove_leftovers(path.parent)
        say(f"{key.kind}: building {path.name}")
        with artifacts.write_stage(
            path, kind=key.kind, key=key.digest, inputs=key.inputs, config=key.config, seed=key.seed
        ) as (directory, info):
            info.update(write(directory))
        shutil.rmtree(self.checkpoints(key), ignore_errors=True)
        manifest = artifacts.read_manifest(path, kind=key.kind)
        say(f"{key.kind}: done in {manifest.seconds:.1f} s")
        self._forget_old(path)
        return Stage(path, manifest)

    def _find(self, path: Path, key: StageKey) -> Stage | None:
        if not path.exists():
            return None
        try:
            return Stage(path, artifacts.verify(path, kind=key.kind), skipped=True)
        except ArtifactError as error:
            say(f"{key.kind}: built again, because {error}")
            return None

    def _forget_old(self, newest: Path) -> None:
        """Keep the newest few directories of a stage: a job that runs every day must not fill the disk."""
        stages = [path for path in newest.parent.iterdir() if (path / artifacts.MANIFEST).exists()]
        stages.sort(key=lambda path: (path / artifacts.MANIFEST).stat().st_mtime, reverse=True)
        for path in stages[_KEPT:]:
            if path != newest:
                # The manifest goes first: a reader must not take half a directory for an artifact.
                (path / artifacts.MANIFEST).unlink()
                shutil.rmtree(path)
