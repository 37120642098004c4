"""The sampled gradient against the full softmax's: the proof that the correction is right."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.config import ModelConfig
from recsys_cg.model.candidates import Candidates
from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import Exclusions, candidate_offset, owned_candidates, positive_offset
from recsys_cg.model.memory import CrossBatchMemory, Mined
from recsys_cg.model.negatives import BatchEvents, Impressions, InBatch, Mixture, Popularity, Uniform, fixed_shares
from recsys_cg.model.own_candidates import OwnCandidates
from recsys_cg.model.task import CorrectedRetrieval

ITEMS, DIM, POSITIVE = 40, 4, 3
SKIPPED = [4, 33, 38]  # nearest to the query below
COUNTS = np.maximum((1000 / np.arange(1, ITEMS + 1) ** 1.2).astype(np.int64), 1)
SHARES = COUNTS / COUNTS.sum()
RNG = np.random.default_rng(11)
TABLE = RNG.normal(size=(ITEMS, DIM))
TABLE /= np.linalg.norm(TABLE, axis=1, keepdims=True)
QUERY = TABLE[POSITIVE] + 0.8 * RNG.normal(size=DIM)
QUERY /= np.linalg.norm(QUERY)
TEMPERATURE = 0.25


def softmax_gradient(weights: np.ndarray) -> np.ndarray:
    """Gradient by the query of -s+ + log sum_i w_i exp(s_i), s = query . item / T."""
    powers = weights * np.exp(TABLE @ QUERY / TEMPERATURE)
    return (powers / powers.sum()) @ TABLE / TEMPERATURE - TABLE[POSITIVE] / TEMPERATURE


FULL = softmax_gradient(np.ones(ITEMS))


def shown(size: int, seed: int) -> BatchEvents:
    items = np.random.default_rng(seed).choice(ITEMS, size=size, p=SHARES).astype(np.int32)
    return BatchEvents(tf.constant(items), tf.ones(size, tf.bool), tf.constant([SKIPPED] * size, tf.int32))


def remembered(size: int) -> CrossBatchMemory:
    """A memory full of events of an earlier step; the vectors do not matter here."""
    queue = CrossBatchMemory(fixed_shares(np.log(SHARES)), count=size, max_age=1, dim=1)
    queue.remember(shown(size, 10_000 + size), tf.zeros([size, 1]), tf.constant([0, 0]))
    return queue


def mined(size: int) -> Mined:
    """What a mining found: the positive's neighbours, most items never."""
    source = Mined(ITEMS, count=size, warmup_epochs=1, band=(1, 9))
    source.assign(np.where(np.arange(ITEMS) < 9, np.arange(ITEMS) + 1, 0))
    return source


def samplers(name: str, size: int) -> Mixture:
    return {
        "in_batch": lambda: Mixture([InBatch(fixed_shares(np.log(SHARES)), size)]),
        "uniform": lambda: Mixture([Uniform(ITEMS, size)]),
        "popularity": lambda: Mixture([Popularity(COUNTS, size)]),
        "popularity^0.5": lambda: Mixture([Popularity(COUNTS, size, 0.5)]),
        "mixture": lambda: Mixture([InBatch(fixed_shares(np.log(SHARES)), size // 2), Uniform(ITEMS, size // 2)]),
        "mined": lambda: Mixture([mined(size // 2), Popularity(COUNTS, size // 2, 0.5)]),
        "cross_batch": lambda: Mixture([remembered(size // 2), Uniform(ITEMS, size // 2)]),
        "impressions": lambda: Mixture([Popularity(COUNTS, size)]),
    }[name]()


def sampled_gradient(name: str, size: int, seed: int, *, weight: float = 1.0, **options: object) -> np.ndarray:
    """Gradient by the query of the task's loss with one draw of ``size`` candidates."""
    config = ModelConfig(
        dim=DIM, temperature=TEMPERATURE, learn_temperature=False, **{"correction": "refined", **options}
    )
    task = CorrectedRetrieval(config, chunk=65536)
    mixture = samplers(name, size)
    draws = mixture.sample(shown(size, seed), tf.constant([seed, 1]))
    drawn = tf.concat([draw.items for draw in draws], axis=0)
    positive = tf.constant([POSITIVE])
    table = tf.constant(TABLE, tf.float32)
    own = certain = None
    if name == "impressions":
        source = Impressions(len(SKIPPED))
        draw = source.sample(shown(1, seed), tf.constant([seed, 2]))
        expected = source.log_expected_count(draw.items, draw)
        own, certain = OwnCandidates(tf.gather(table, draw.items), draw.valid, expected, weight), draw.items
    candidates = Candidates(
        vectors=tf.gather(table, drawn),
        valid=tf.concat([draw.valid for draw in draws], axis=0),
        log_expected=mixture.log_expected_count(drawn, draws),
        log_expected_positive=mixture.log_expected_count(positive, draws),
        exclusions=Exclusions(positive, drawn, certain=certain),
        own=own,
    )
    query = tf.constant(QUERY[None], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(query)
        loss = task(query, tf.gather(table, positive), candidates, tf.ones(1))
    return tape.gradient(loss, query).numpy()[0]


def errors(name: str, size: int, target: np.ndarray, **options: object) -> float:
    """Root of the mean squared distance to ``target`` over draws."""
    gradients = [sampled_gradient(name, size, seed, **options) for seed in range(12)]
    return float(np.sqrt(np.mean([np.square(gradient - target).sum() for gradient in gradients])))


def bias(name: str, target: np.ndarray, **options: object) -> float:
    """Distance of the mean gradient of large draws to ``target``, as a share of the full gradient's length."""
    gradients = [sampled_gradient(name, 32768, seed, **options) for seed in range(12)]
    return float(np.linalg.norm(np.mean(gradients, axis=0) - target) / np.linalg.norm(FULL))


SAMPLERS = ["in_batch", "uniform", "popularity", "popularity^0.5", "mixture", "mined", "cross_batch", "impressions"]


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_sampled_gradient_converges_to_the_full_softmax(name: str) -> None:
    few, many, most = (errors(name, size, FULL) for size in (128, 2048, 32768))
    # The error of a mean over n draws falls as 1 / sqrt(n): by 4 from one size to the next.
    assert few > 2.0 * many > 4.0 * most
    assert most < 0.05 * np.linalg.norm(FULL)


def test_weighted_skips_converge_to_the_softmax_that_counts_them_so_often() -> None:
    target = softmax_gradient(np.where(np.isin(np.arange(ITEMS), SKIPPED), 4.0, 1.0))
    gradients = [sampled_gradient("impressions", 32768, seed, weight=4.0) for seed in range(6)]
    off = [np.linalg.norm(np.mean(gradients, axis=0) - point) / np.linalg.norm(FULL) for point in (target, FULL)]
    assert off[0] < 0.02
    assert off[1] > 0.1


def test_with_the_mined_source_uncorrected_it_converges_elsewhere() -> None:
    assert bias("mined", FULL, correction="none") > 0.1


@pytest.mark.parametrize("name", ["in_batch", "popularity"])
def test_without_correction_it_converges_elsewhere(name: str) -> None:
    # As the sample of n grows, exp(s) of the positive is lost beside n times the popularity-weighted negatives.
    weights = np.where(np.arange(ITEMS) == POSITIVE, 0.0, SHARES)
    assert bias(name, softmax_gradient(weights), correction="none") < 0.02
    assert bias(name, FULL, correction="none") > 0.1
    assert bias(name, FULL) < 0.02


def test_strength_zero_is_no_correction() -> None:
    off = sampled_gradient("popularity", 512, 0, correction="none")
    np.testing.assert_array_equal(sampled_gradient("popularity", 512, 0, correction_strength=0.0), off)


def test_standard_converges_to_the_softmax_without_the_positive_in_its_denominator() -> None:
    weights = np.where(np.arange(ITEMS) == POSITIVE, 0.0, 1.0)
    assert bias("popularity", softmax_gradient(weights), correction="standard") < 0.02
    assert bias("popularity", FULL, correction="standard") > 0.1


def test_refined_is_the_gradient_of_the_paper() -> None:
    """arXiv 2507.09331: (1 - p) * gradient of (-s+ + log sum over negatives), p from the same sample."""
    rest = np.delete(np.arange(ITEMS), POSITIVE)
    logits = TABLE @ QUERY / TEMPERATURE
    negatives = np.exp(logits[rest]).sum()
    share = np.exp(logits[POSITIVE]) / (np.exp(logits[POSITIVE]) + negatives)
    paper = (1.0 - share) * ((np.exp(logits[rest]) / negatives) @ TABLE[rest] - TABLE[POSITIVE]) / TEMPERATURE
    np.testing.assert_allclose(FULL, paper, atol=1e-12)


def test_offsets_are_minus_strength_times_log_expected_count() -> None:
    logs = tf.constant([0.0, -20.7, 3.0])
    valid = tf.constant([True, True, False])
    offset = candidate_offset(logs, valid, correction="refined", strength=0.5).numpy()
    np.testing.assert_allclose(offset, [0.0, 10.35, -1e9])
    np.testing.assert_allclose(positive_offset(logs, correction="standard", strength=0.5), [0.0, 10.35, -1.5])
    np.testing.assert_array_equal(positive_offset(logs, correction="refined", strength=0.5), np.zeros(3))


def test_owned_candidates_finds_every_copy_and_nothing_else() -> None:
    owned = owned_candidates(
        tf.constant([0, 0, 1, 1]), tf.constant([7, 2, 9, 100]), tf.constant([7, 3, 7, 9, 2]), owners=3
    )
    np.testing.assert_array_equal(
        owned.numpy(),
        [[True, False, True, False, True], [False, False, False, True, False], [False] * 5],
    )


def test_owned_candidates_of_nobody_is_all_false() -> None:
    empty = tf.constant([], tf.int32)
    assert not owned_candidates(empty, empty, tf.constant([1, 2]), owners=2).numpy().any()
