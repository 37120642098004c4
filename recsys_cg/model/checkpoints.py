"""Training state on disk: weights, optimiser, and where the training stands, so that a killed run goes on.

A checkpoint's files are written first and named by ``state.json`` last, in one rename; whatever is killed in between,
the state names whole files. The directory belongs to one training: another fingerprint starts afresh.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.model.frameworks import tf
from recsys_cg.progress import say

__all__ = ["Checkpoints", "TrainingState", "has_checkpoint"]

_STATE = "state.json"


@dataclass
class TrainingState:
    """Where a training stands.

    Attributes:
        fingerprint: what the training is of; a checkpoint of another one is not used.
        epoch: epochs finished.
        best_epoch: epoch of the best validation recall, from 1; 0 before the first.
        best_recall: that recall, -1 before the first.
        stopped: why training ended, empty while it goes on.
        seconds: spent in training steps.
        epochs: the record of each epoch.
        latest: name of the newest checkpoint.
        best: name of the checkpoint of ``best_epoch``.
    """

    fingerprint: str
    epoch: int = 0
    best_epoch: int = 0
    best_recall: float = -1.0
    stopped: str = ""
    seconds: float = 0.0
    epochs: list[dict[str, Any]] = field(default_factory=list)
    latest: str = ""
    best: str = ""


def has_checkpoint(directory: Path, fingerprint: str) -> bool:
    """Tell whether a training of ``fingerprint`` has a checkpoint in ``directory`` that `Checkpoints` would restore."""
    try:
        state = _load_state(directory)
    except (FileNotFoundError, ValueError, TypeError):
        return False
    return state.fingerprint == fingerprint and bool(state.latest)


def _load_state(directory: Path) -> TrainingState:
    return TrainingState(**json.loads((directory / _STATE).read_text(encoding="utf-8")))


class Checkpoints:
    """Save and restore one training in ``directory``.

    Args:
        directory: created when missing.
        model: its weights are saved, and the state of its negatives.
        optimizer: its moments and step count are saved.
        writes: false in all workers but the first, which only read.
    """

    def __init__(self, directory: Path, model: Any, optimizer: Any, *, writes: bool = True) -> None:
        self._writes = writes
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._state_file = directory / _STATE
        self._weights = tf.train.Checkpoint(variables=model.variables)
        self._whole = tf.train.Checkpoint(variables=model.variables, optimizer=list(optimizer.variables))

    def save(self, state: TrainingState, *, is_best: bool) -> None:
        """Write weights, optimiser and state; drop what the state no longer names."""
        state.latest = f"epoch-{state.epoch:04d}"
        if is_best:
            state.best = state.latest
        if not self._writes:
            return
        self._whole.write(str(self._directory / state.latest / "checkpoint"))
        write_text_atomically(self._state_file, json.dumps(asdict(state), indent=1))
        for path in self._directory.glob("epoch-*"):
            if path.name not in (state.latest, state.best):
                shutil.rmtree(path, ignore_errors=True)

    def restore(self, fingerprint: str) -> TrainingState:
        """Load the newest checkpoint of this training and return its state; a fresh state where there is none."""
        state = self._read_state(fingerprint)
        if state.latest:
            self._whole.read(str(self._directory / state.latest / "checkpoint")).assert_consumed()
            say(f"training goes on after epoch {state.epoch}, from its checkpoint")
        return state

    def restore_best(self, state: TrainingState) -> None:
        """Load the weights of the best epoch."""
        self._weights.read(str(self._directory / state.best / "checkpoint")).expect_partial()

    def _read_state(self, fingerprint: str) -> TrainingState:
        try:
            state = _load_state(self._directory)
        except FileNotFoundError:
            return TrainingState(fingerprint)
        except (ValueError, TypeError):
            say(f"{self._state_file} cannot be read; training starts afresh")
            return TrainingState(fingerprint)
        if state.fingerprint != fingerprint:
            say("the checkpoint is of another dataset or configuration; training starts afresh")
            return TrainingState(fingerprint)
        return state
