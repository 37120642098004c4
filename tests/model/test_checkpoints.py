from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.model.checkpoints import Checkpoints, TrainingState, has_checkpoint
from recsys_cg.model.frameworks import keras, tf


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([1.0, 2.0])


def setup(directory: Path, *, writes: bool = True) -> tuple[Checkpoints, Model]:
    model = Model()
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)
    return Checkpoints(directory, model, optimizer, writes=writes), model


def test_weights_and_state_come_back(tmp_path: Path) -> None:
    saved, model = setup(tmp_path)
    model.weight.assign([3.0, 4.0])
    saved.save(TrainingState("mine", epoch=2, best_epoch=2, best_recall=0.5, epochs=[{"epoch": 1}]), is_best=True)
    again, other = setup(tmp_path)
    state = again.restore("mine")
    assert (state.epoch, state.best_epoch, state.best_recall, state.epochs) == (2, 2, 0.5, [{"epoch": 1}])
    np.testing.assert_array_equal(other.weight.numpy(), [3.0, 4.0])


def test_the_best_epoch_is_kept_beside_the_latest(tmp_path: Path) -> None:
    saved, model = setup(tmp_path)
    state = TrainingState("mine")
    for epoch, is_best in ((1, False), (2, True), (3, False), (4, False)):
        state.epoch = epoch
        model.weight.assign([float(epoch), 0.0])
        saved.save(state, is_best=is_best)
    assert sorted(path.name for path in tmp_path.glob("epoch-*")) == ["epoch-0002", "epoch-0004"]
    saved.restore_best(state)
    assert model.weight.numpy()[0] == 2.0


@pytest.mark.parametrize(
    "text", ['{"fingerprint": "of another", "epoch": 9}', '{"torn', "[]", '{"fingerprint": "mine", "x": 1}']
)
def test_a_foreign_or_torn_state_starts_afresh(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    saved, _ = setup(tmp_path)
    assert saved.restore("mine") == TrainingState("mine")


def test_a_checkpoint_is_there_just_where_one_would_be_restored(tmp_path: Path) -> None:
    assert not has_checkpoint(tmp_path, "this")
    state = {"fingerprint": "this", "epoch": 2, "latest": "epoch-0002"}
    for text, there in (
        (json.dumps(state), True),
        (json.dumps({**state, "fingerprint": "other"}), False),
        (json.dumps({**state, "latest": ""}), False),
        (json.dumps({**state, "of_another_version": 1}), False),
        (json.dumps([state]), False),
        ("{", False),
    ):
        (tmp_path / "state.json").write_text(text)
        assert has_checkpoint(tmp_path, "this") is there, text


def test_killed_between_weights_and_state_the_state_before_holds(tmp_path: Path) -> None:
    saved, model = setup(tmp_path)
    saved.save(TrainingState("mine", epoch=1), is_best=True)
    before = (tmp_path / "state.json").read_text()
    model.weight.assign([9.0, 9.0])
    saved.save(TrainingState("mine", epoch=2, best=json.loads(before)["best"]), is_best=False)
    (tmp_path / "state.json").write_text(before)
    again, other = setup(tmp_path)
    assert again.restore("mine").epoch == 1
    np.testing.assert_array_equal(other.weight.numpy(), [1.0, 2.0])


def test_only_the_first_worker_writes(tmp_path: Path) -> None:
    saved, _ = setup(tmp_path, writes=False)
    saved.save(TrainingState("mine", epoch=1), is_best=True)
    assert list(tmp_path.iterdir()) == []
