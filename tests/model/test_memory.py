from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.model.frameworks import tf
from recsys_cg.model.memory import CrossBatchMemory, StreamingFrequency
from recsys_cg.model.negatives import BatchEvents, InBatch, Mixture, fixed_shares
from tests.model.test_negatives import COUNTS, SHARES, events

NOBODY = BatchEvents(tf.zeros([0], tf.int32), tf.zeros([0], tf.bool))
SEED = tf.constant([0, 0])


def memory(count: int, max_age: int, dim: int = 2) -> CrossBatchMemory:
    return CrossBatchMemory(fixed_shares(np.log(SHARES)), count=count, max_age=max_age, dim=dim)


def step(items: list[int], valid: list[bool] | None = None) -> tuple[BatchEvents, tf.Tensor]:
    """Events and vectors that name their item."""
    vectors = tf.stack([tf.constant(items, tf.float32), tf.ones(len(items))], axis=1)
    return BatchEvents(tf.constant(items), tf.constant(valid or [True] * len(items))), vectors


def held(queue: CrossBatchMemory) -> list[int]:
    draw = queue.sample(NOBODY, SEED)
    items, valid = draw.items.numpy(), draw.valid.numpy()
    np.testing.assert_array_equal(draw.vectors.numpy()[valid, 0], items[valid])
    assert float(draw.count) == valid.sum()
    return sorted(items[valid].tolist())


def test_memory_is_empty_first_and_then_forgets_the_oldest() -> None:
    queue = memory(count=4, max_age=2)
    assert held(queue) == []
    queue.remember(*step([1, 2]), SEED)
    assert held(queue) == [1, 2]
    queue.remember(*step([3, 4]), SEED)
    assert held(queue) == [1, 2, 3, 4]
    queue.remember(*step([5, 6]), SEED)
    assert held(queue) == [3, 4, 5, 6]


def test_no_vector_outlives_its_bound() -> None:
    queue = memory(count=12, max_age=3)
    for age in range(10):
        queue.remember(*step([age % 8] * 6), SEED)
        assert set(held(queue)) <= {(age - back) % 8 for back in range(3)}


def test_padding_is_not_remembered() -> None:
    queue = memory(count=4, max_age=1)
    queue.remember(*step([7, 1, 2, 3], [True, False, False, False]), SEED)
    assert held(queue) == [7]


def test_remembered_vectors_carry_no_gradient() -> None:
    queue = memory(count=2, max_age=1)
    batch, vectors = step([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        queue.remember(batch, vectors, SEED)
        value = tf.reduce_sum(queue.sample(NOBODY, SEED).vectors)
    assert tape.gradient(value, vectors) is None


def test_with_memory_the_corrected_denominator_is_unbiased() -> None:
    powers = np.exp(np.array([0.1, 2.0, -1.0, 1.0, 3.0, 0.0, -2.0, 2.5]))
    queue = memory(count=24, max_age=3)
    mixture = Mixture([InBatch(fixed_shares(np.log(SHARES)), 10), queue])
    rng = np.random.default_rng(5)
    estimates = []
    for number in range(300):
        batch = events(rng)
        draws = mixture.sample(batch, tf.constant([number, 1]))
        drawn = tf.concat([draw.items for draw in draws], axis=0)
        valid = tf.concat([draw.valid for draw in draws], axis=0).numpy()
        expected = np.exp(mixture.log_expected_count(drawn, draws).numpy())
        if number >= 3:  # 10 + 24 candidates from then on
            np.testing.assert_allclose(expected, 34 * SHARES[drawn.numpy()], rtol=1e-5)
        estimates.append((powers[drawn.numpy()] / expected)[valid].sum())
        queue.remember(batch, tf.zeros([64, 2]), tf.constant([number, 2]))
    error = np.std(estimates[::4], ddof=1) / np.sqrt(len(estimates[::4]))  # every fourth: independent of one another
    assert abs(np.mean(estimates[::4]) - powers.sum()) < 4.0 * error


def test_frequencies_equal_the_algorithm_one_event_at_a_time() -> None:
    rng = np.random.default_rng(2)
    rate, last, gap, clock = 0.05, np.zeros(8), np.full(8, 8.0), 0
    estimate = StreamingFrequency(8, rate=rate)
    for size in (1, 7, 30, 64, 0, 5):
        items = rng.choice(8, size=size, p=SHARES).astype(np.int32)
        valid = rng.random(size) < 0.8
        estimate.observe(BatchEvents(tf.constant(items), tf.constant(valid)))
        for item in items[valid]:
            clock += 1
            gap[item] = (1 - rate) * gap[item] + rate * (clock - last[item])
            last[item] = clock
    expected = -np.log(np.maximum(gap, 1.0))
    np.testing.assert_allclose(estimate.log_q(tf.range(8)).numpy(), expected, rtol=1e-5)


def test_frequencies_approach_the_true_shares_and_follow_a_change() -> None:
    rng = np.random.default_rng(3)
    estimate = StreamingFrequency(8, rate=0.01)
    observe = tf.function(lambda items: estimate.observe(BatchEvents(items, tf.ones_like(items, tf.bool))))
    for shares in (SHARES, SHARES[::-1]):
        for _ in range(60):
            observe(tf.constant(rng.choice(8, size=512, p=shares).astype(np.int32)))
        frequent = shares >= 0.06
        estimated = np.exp(estimate.log_q(tf.range(8)).numpy())
        np.testing.assert_allclose(estimated[frequent], shares[frequent], rtol=0.35)


def test_counts_and_shares_of_these_tests_agree() -> None:
    assert pytest.approx(COUNTS / COUNTS.sum()) == SHARES
