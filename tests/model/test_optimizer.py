from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.optimizer import SparseAdam, WarmupCosine


def test_the_rate_rises_to_its_peak_and_falls_to_a_hundredth() -> None:
    schedule = WarmupCosine(0.5, warmup=10, total=110)
    rates = [float(schedule(tf.constant(step))) for step in (0, 4, 9, 59, 109, 1000)]
    assert rates == pytest.approx([0.05, 0.25, 0.5, 0.5 * (0.01 + 0.99 / 2), 0.005, 0.005], rel=1e-5)


def test_a_short_training_warms_up_for_a_fifth_of_it() -> None:
    schedule = WarmupCosine(1.0, warmup=1000, total=10)
    assert [float(schedule(tf.constant(step))) for step in (0, 1)] == pytest.approx([0.5, 1.0])


def slices(rows: list[int], values: list[list[float]], shape: list[int]) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant(shape))


def test_rows_that_had_a_gradient_move_as_in_adam_and_others_stay() -> None:
    table, dense = tf.Variable(tf.ones([4, 2])), tf.Variable(tf.ones([4, 2]))
    ours, adam = SparseAdam(0.1, beta_2=0.98, jit_compile=False), keras.optimizers.Adam(0.1, beta_2=0.98)
    for _ in range(3):
        ours.apply_gradients([(slices([1, 3], [[1.0, 2.0], [0.5, -1.0]], [4, 2]), table)])
        full = tf.constant([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.5, -1.0]])
        adam.apply_gradients([(full, dense)])
    np.testing.assert_allclose(table.numpy(), dense.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(table.numpy()[[0, 2]], 1.0)


def test_a_row_left_alone_does_not_drift_on_old_momentum() -> None:
    table = tf.Variable(tf.ones([2, 1]))
    ours = SparseAdam(0.1, jit_compile=False)
    ours.apply_gradients([(slices([0], [[1.0]], [2, 1]), table)])
    moved = table.numpy()[0, 0]
    ours.apply_gradients([(slices([1], [[1.0]], [2, 1]), table)])
    assert table.numpy()[0, 0] == moved


def test_repeated_rows_are_summed() -> None:
    twice, once = tf.Variable(tf.ones([2, 1])), tf.Variable(tf.ones([2, 1]))
    SparseAdam(0.1, jit_compile=False).apply_gradients([(slices([0, 0], [[1.0], [2.0]], [2, 1]), twice)])
    SparseAdam(0.1, jit_compile=False).apply_gradients([(slices([0], [[3.0]], [2, 1]), once)])
    np.testing.assert_allclose(twice.numpy(), once.numpy())
