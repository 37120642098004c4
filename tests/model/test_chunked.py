from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from recsys_cg.model.chunked import masked_logsumexp
from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import EXCLUDED, Exclusions

RNG = np.random.default_rng(0)


def problem(queries: int, candidates: int, dim: int = 8) -> tuple[tf.Tensor, ...]:
    arrays = (RNG.normal(size=(queries, dim)), RNG.normal(size=(candidates, dim)), RNG.normal(size=candidates))
    return tuple(tf.constant(array, tf.float32) for array in arrays)


def exclusions(queries: int, candidates: int) -> Exclusions:
    return Exclusions(
        positive=tf.constant(RNG.integers(0, 9, queries), tf.int32),
        candidate=tf.constant(RNG.integers(0, 9, candidates), tf.int32),
        owner=tf.constant(RNG.integers(0, 2, queries), tf.int32),
        owned=tf.constant(RNG.random((2, candidates)) < 0.3),
    )


def plain(queries: tf.Tensor, candidates: tf.Tensor, offset: tf.Tensor, excluded: tf.Tensor) -> tf.Tensor:
    logits = tf.matmul(queries, candidates, transpose_b=True) + offset
    return tf.reduce_logsumexp(tf.where(excluded, EXCLUDED, logits), axis=1)


@pytest.mark.parametrize("chunk", [1, 4, 10, 11, 32, 100])
def test_value_and_gradient_do_not_depend_on_the_chunk(chunk: int) -> None:
    inputs = problem(6, 32)
    masks = exclusions(6, 32)
    upstream = tf.constant(RNG.normal(size=6), tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        expected = plain(*inputs, masks.slice(0, 32))
        computed = masked_logsumexp(*inputs, masks, chunk=chunk)
        sums = (tf.reduce_sum(expected * upstream), tf.reduce_sum(computed * upstream))
    np.testing.assert_allclose(computed.numpy(), expected.numpy(), rtol=1e-5)
    for one, other in zip(*(tape.gradient(value, inputs) for value in sums), strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", [2, 8])
def test_an_excluded_candidate_has_no_gradient(chunk: int) -> None:
    inputs = problem(3, 5)
    masks = Exclusions(tf.constant([7, 7, 7]), tf.constant([7, 1, 7, 2, 3]))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = tf.reduce_sum(masked_logsumexp(*inputs, masks, chunk=chunk))
    toward = tape.gradient(value, inputs)[1].numpy()
    np.testing.assert_array_equal(toward[[0, 2]], 0.0)
    assert (np.abs(toward[[1, 3, 4]]).sum(axis=1) > 0).all()


_MEASURE = """
import resource, sys, time
from recsys_cg.model.frameworks import tf
from recsys_cg.model.chunked import masked_logsumexp
from recsys_cg.model.logits import EXCLUDED, Exclusions
way, queries, candidates, dim = sys.argv[1], 8192, 16384, 128
q = tf.math.l2_normalize(tf.random.stateless_normal([queries, dim], [1, 2]), 1) * 10.0
c = tf.math.l2_normalize(tf.random.stateless_normal([candidates, dim], [3, 4]), 1)
offset = tf.random.stateless_normal([candidates], [5, 6])
masks = Exclusions(tf.range(queries), tf.range(candidates))

@tf.function(autograph=False)
def step():
    with tf.GradientTape() as tape:
        tape.watch([q, c])
        if way == "plain":
            logits = tf.matmul(q, c, transpose_b=True) + offset
            value = tf.reduce_mean(tf.reduce_logsumexp(tf.where(masks.slice(0, candidates), EXCLUDED, logits), axis=1))
        else:
            value = tf.reduce_mean(masked_logsumexp(q, c, offset, masks, chunk=512))
    return value, *tape.gradient(value, [q, c])

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
value, toward_q, toward_c = step()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for _ in range(3):
    start = time.process_time(); step(); times.append(time.process_time() - start)
print((peak - before) / 1024, min(times), float(value), float(tf.norm(toward_q)), float(tf.norm(toward_c)))
"""


@pytest.mark.slow
def test_chunks_need_a_fifth_of_the_memory_at_equal_loss_and_gradient() -> None:
    figures = {}
    for way in ("plain", "chunked"):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE, way], capture_output=True, text=True, check=True, timeout=280
        )
        figures[way] = [float(word) for word in done.stdout.split()[-5:]]
    assert figures["chunked"][0] * 5 <= figures["plain"][0], figures
    assert figures["chunked"][1] <= 1.3 * figures["plain"][1], figures
    np.testing.assert_allclose(figures["chunked"][2:], figures["plain"][2:], rtol=1e-5)
