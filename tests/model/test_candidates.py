"""Candidates drawn several times: counted, not repeated, and the loss is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cg.model.candidates import merge_copies, side_by_side
from recsys_cg.model.frameworks import tf
from recsys_cg.model.negatives import Draw
from tests.model.test_options import build

UNIT = tf.constant([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
FIRST = Draw(tf.constant([5, 8, 5, 5]), tf.constant([True, True, True, False]), tf.constant(3.0))
SECOND = Draw(tf.constant([8, 9]), tf.constant([True, False]), tf.constant(1.0))
PLACES = tf.constant([0, 1, 0, 0, 1, 2, 7])  # rows of UNIT of items 5, 8 and 9; the last one belongs to nobody here
REMEMBERED = Draw(tf.constant([5, 6]), tf.constant([True, False]), tf.constant(1.0), vectors=tf.zeros([2, 2]))


def test_an_item_that_was_drawn_again_is_there_once_with_the_number_of_its_valid_copies() -> None:
    drawn = merge_copies((FIRST, SECOND), UNIT, PLACES)
    assert drawn.items.numpy().tolist() == [5, 8, 9]
    assert drawn.copies.numpy().tolist() == [2.0, 2.0, 0.0]
    assert drawn.valid.numpy().tolist() == [True, True, False]
    np.testing.assert_array_equal(drawn.vectors, UNIT)
    assert drawn.most == 6


def test_vectors_from_elsewhere_are_never_merged() -> None:
    drawn = merge_copies((REMEMBERED, FIRST), UNIT, PLACES)
    assert drawn.items.numpy().tolist() == [5, 8, 5, 6]
    assert drawn.copies.numpy().tolist() == [2.0, 1.0, 1.0, 0.0]
    np.testing.assert_array_equal(drawn.vectors, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    assert drawn.most == 6


def test_only_vectors_from_elsewhere() -> None:
    for together in (merge_copies, side_by_side):
        drawn = together((REMEMBERED,), UNIT, PLACES[:0])
        assert drawn.items.numpy().tolist() == [5, 6]
        assert drawn.valid.numpy().tolist() == [True, False]


def test_side_by_side_repeats_every_draw() -> None:
    drawn = side_by_side((FIRST, REMEMBERED, SECOND), UNIT, PLACES)
    assert drawn.items.numpy().tolist() == [5, 8, 5, 5, 5, 6, 8, 9]
    assert drawn.valid.numpy().tolist() == [True, True, True, False, True, False, True, False]
    np.testing.assert_array_equal(drawn.vectors, np.concatenate([UNIT.numpy()[[0, 1, 0, 0]], np.zeros((2, 2)),
                                                                 UNIT.numpy()[[1, 2]]]))  # fmt: skip
    assert drawn.copies is None


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"mask_history": False},
        {"loss": "symmetric"},
        {"correction_strength": 0.5},
        {"correction": "none"},
        {"negatives": [{"kind": "in_batch", "count": 64}, {"kind": "cross_batch", "count": 64, "max_age": 2}]},
    ],
    ids=lambda model: "-".join(model) or "default",
)
@pytest.mark.parametrize("chunk", [5, 4096])
def test_loss_gradients_and_counts_are_those_of_every_copy_by_itself(
    dataset: Path, model: dict[str, Any], chunk: int
) -> None:
    measured = []
    for together in (merge_copies, side_by_side):
        network, batches = build(dataset, model, softmax_chunk=chunk)
        assert network._put_together is merge_copies
        network._put_together = together
        step = tf.function(network.loss_and_gradients)
        step(batches[0])  # fills the memory, where there is one
        loss, gradients, figures = step(batches[1])
        flat = np.concatenate([tf.convert_to_tensor(gradient).numpy().ravel() for gradient in gradients])
        measured.append((float(loss), flat, {name: float(value) for name, value in figures.items()}))
    (loss, gradients, figures), (plain_loss, plain_gradients, plain_figures) = measured
    assert loss == pytest.approx(plain_loss, rel=1e-5)
    assert np.linalg.norm(gradients - plain_gradients) <= 1e-4 * np.linalg.norm(plain_gradients)
    assert figures == pytest.approx(plain_figures)
    assert figures["masked"] > 0


@pytest.mark.parametrize("loss", ["sigmoid", "triplet", "margin"])
def test_losses_that_do_not_sum_exponentials_meet_every_copy(dataset: Path, loss: str) -> None:
    network, _ = build(dataset, {"loss": loss, "correction": "standard" if loss == "sigmoid" else "none"})
    assert network._put_together is side_by_side
