from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from recsys_cg.errors import DataError
from recsys_cg.model.frameworks import tf
from recsys_cg.model.memory import CrossBatchMemory, Mined
from recsys_cg.model.negatives import BatchEvents, InBatch, Mixture, Popularity, Uniform, fixed_shares, log_shares

COUNTS = np.array([40, 20, 20, 8, 6, 3, 2, 1], dtype=np.int64)
SHARES = COUNTS / 100.0
ROOTS = np.sqrt(COUNTS) / np.sqrt(COUNTS).sum()
MINED = np.array([0, 5, 0, 1, 7, 0, 0, 3], dtype=np.int64)

Build = Callable[[int], Mixture]


def in_batch(count: int) -> Mixture:
    return Mixture([InBatch(fixed_shares(np.log(SHARES)), count)])


def uniform(count: int) -> Mixture:
    return Mixture([Uniform(8, count)])


def popularity(count: int) -> Mixture:
    return Mixture([Popularity(COUNTS, count)])


def popularity_root(count: int) -> Mixture:
    return Mixture([Popularity(COUNTS, count, alpha=0.5)])


def mixed(count: int) -> Mixture:
    return Mixture(
        [InBatch(fixed_shares(np.log(SHARES)), count), Popularity(COUNTS, count, alpha=0.5), Uniform(8, 2 * count)]
    )


def mined(count: int) -> Mixture:
    """What a mining counted, twice as often as uniform draws that reach what it did not find."""
    source = Mined(8, count=2 * count, warmup_epochs=1, band=(1, 4))
    source.assign(MINED)
    return Mixture([source, Uniform(8, count)])


def cross_batch(count: int) -> Mixture:
    """A memory, filled anew at every step by `draw_often`."""
    return Mixture(
        [CrossBatchMemory(fixed_shares(np.log(SHARES)), count=2 * count, max_age=1, dim=1), Uniform(8, count)]
    )


BUILDERS: list[Build] = [in_batch, uniform, popularity, popularity_root, mixed, mined, cross_batch]
# Expected count of each item when count = 10, written out from n * q.
EXPECTED = {
    in_batch: 10 * SHARES,
    uniform: np.full(8, 10 / 8),
    popularity: 10 * SHARES,
    popularity_root: 10 * ROOTS,
    mixed: 10 * SHARES + 10 * ROOTS + 20 / 8,
    mined: 20 * MINED / 16 + 10 / 8,
    cross_batch: 20 * SHARES + 10 / 8,
}


def events(rng: np.random.Generator, size: int = 64) -> BatchEvents:
    items = rng.choice(8, size=size, p=SHARES).astype(np.int32)
    return BatchEvents(tf.constant(items), tf.ones(size, tf.bool))


def draw_often(mixture: Mixture, times: int) -> np.ndarray:
    """Return [times, candidates] of drawn items, each time from fresh events."""
    rng = np.random.default_rng(5)

    memories = [sampler for sampler in mixture.samplers if isinstance(sampler, CrossBatchMemory)]

    @tf.function
    def draw(items: tf.Tensor, before: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        for memory in memories:
            memory.remember(BatchEvents(before, tf.ones_like(before, tf.bool)), tf.zeros([before.shape[0], 1]), seed)
        draws = mixture.sample(BatchEvents(items, tf.ones_like(items, tf.bool)), seed)
        return tf.concat([one.items for one in draws], axis=0)

    return np.stack(
        [draw(events(rng).items, events(rng).items, tf.constant([step, 7])).numpy() for step in range(times)]
    )


@pytest.mark.parametrize("build", BUILDERS)
def test_the_declared_expected_count_is_the_sum_over_sources_of_n_times_q(build: Build) -> None:
    mixture = build(10)
    for sampler in mixture.samplers:
        if isinstance(sampler, CrossBatchMemory):
            sampler.remember(events(np.random.default_rng(1)), tf.zeros([64, 1]), tf.constant([0, 0]))
    draws = mixture.sample(events(np.random.default_rng(0)), tf.constant([0, 0]))
    logs = mixture.log_expected_count(tf.range(8), draws).numpy()
    np.testing.assert_allclose(np.exp(logs), EXPECTED[build], rtol=1e-5)


@pytest.mark.parametrize("build", BUILDERS)
def test_items_are_drawn_as_often_as_declared(build: Build) -> None:
    drawn = draw_often(build(10), times=600)
    observed = np.bincount(drawn.reshape(-1), minlength=8)
    result = stats.chisquare(observed, 600 * EXPECTED[build])
    assert result.pvalue > 1e-3


@pytest.mark.parametrize("build", BUILDERS)
def test_the_corrected_denominator_is_unbiased(build: Build) -> None:
    powers = np.exp(np.array([0.1, 2.0, -1.0, 1.0, 3.0, 0.0, -2.0, 2.5]))
    drawn = draw_often(build(10), times=600)
    estimates = (powers[drawn] / EXPECTED[build][drawn]).sum(axis=1)
    error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - powers.sum()) < 4.0 * error
    assert error < 0.15 * powers.sum()


def test_a_share_of_one_in_a_billion_is_honoured() -> None:
    counts = np.array([999_999_999, 1], dtype=np.int64)
    assert log_shares(counts)[1] == pytest.approx(-9.0 * np.log(10.0), abs=1e-12)
    sampler = Popularity(counts, 512)
    draw = sampler.sample(events(np.random.default_rng(0)), tf.constant([0, 0]))
    logs = sampler.log_expected_count(tf.constant([0, 1]), draw).numpy()
    np.testing.assert_allclose(logs, [np.log(512.0), np.log(512.0) - 9.0 * np.log(10.0)], atol=1e-5)


def test_a_rare_item_is_drawn_at_its_share_even_next_to_a_giant() -> None:
    counts = np.array([10_000_000, 10], dtype=np.int64)
    sampler = Popularity(counts, 2_000_000)
    draw = sampler.sample(events(np.random.default_rng(0)), tf.constant([3, 4]))
    assert 0 < int((draw.items.numpy() == 1).sum()) < 12  # expected 2


def test_alpha_zero_is_uniform_and_reaches_items_without_events() -> None:
    np.testing.assert_allclose(np.exp(log_shares(np.array([0, 5, 5]), alpha=0.0)), [1 / 3, 1 / 3, 1 / 3])


def test_an_item_without_events_is_never_drawn_by_popularity() -> None:
    counts = np.array([3, 0, 1, 0], dtype=np.int64)
    draw = Popularity(counts, 4096).sample(events(np.random.default_rng(0)), tf.constant([1, 1]))
    assert set(draw.items.numpy().tolist()) == {0, 2}
    assert log_shares(counts)[1] == -np.inf


def test_shares_of_huge_counts_do_not_overflow() -> None:
    np.testing.assert_allclose(np.exp(log_shares(np.array([2**62, 2**62]), alpha=2.0)), [0.5, 0.5])


@pytest.mark.parametrize("counts", [np.array([], dtype=np.int64), np.array([0, 0]), np.array([1, -1])])
def test_counts_that_are_no_counts_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(DataError, match="training counts"):
        log_shares(counts)


def test_in_batch_never_draws_padding_and_counts_what_it_drew() -> None:
    batch = BatchEvents(tf.constant([5, 6, 0, 0]), tf.constant([True, True, False, False]))
    sampler = InBatch(fixed_shares(np.log(SHARES)), 3)
    draw = sampler.sample(batch, tf.constant([0, 0]))
    assert sorted(draw.items.numpy()[draw.valid.numpy()].tolist()) == [5, 6]
    assert float(draw.count) == 2.0
    np.testing.assert_allclose(np.exp(sampler.log_expected_count(tf.constant([5]), draw).numpy()), [0.06], rtol=1e-5)


def test_in_batch_draws_without_replacement() -> None:
    batch = BatchEvents(tf.range(8), tf.ones(8, tf.bool))
    draw = InBatch(fixed_shares(np.log(SHARES)), 8).sample(batch, tf.constant([0, 9]))
    assert sorted(draw.items.numpy().tolist()) == list(range(8))


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    batch = events(np.random.default_rng(1))
    first, again, other = (
        np.concatenate([draw.items.numpy() for draw in mixed(30).sample(batch, tf.constant([1, seed]))])
        for seed in (2, 2, 3)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_sources_of_one_kind_draw_apart() -> None:
    mixture = Mixture([Uniform(1000, 50), Uniform(1000, 50)])
    first, second = mixture.sample(events(np.random.default_rng(0)), tf.constant([0, 0]))
    assert (first.items.numpy() != second.items.numpy()).any()


def test_a_mixture_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sampler"):
        Mixture([])
