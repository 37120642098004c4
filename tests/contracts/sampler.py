"""What every source of negatives promises, as tests: inherit `SamplerContract` and say how one is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recsys_cg.model.frameworks import tf
from recsys_cg.model.negatives import BatchEvents, Sampler

COUNTS = np.array([40, 20, 20, 8, 6, 3, 2, 1], dtype=np.int64)
DRAWS = 4000


class SamplerContract:
    """Tests that hold for every sampler over the eight items of `COUNTS`."""

    @staticmethod
    def make() -> Sampler:
        """Return the sampler under test, which draws a few candidates a step."""
        raise NotImplementedError

    @staticmethod
    def batch(seed: int) -> BatchEvents:
        """Return 64 events, items by their share."""
        items = np.random.default_rng(seed).choice(len(COUNTS), 64, p=COUNTS / COUNTS.sum()).astype(np.int32)
        return BatchEvents(tf.constant(items), tf.ones([64], tf.bool))

    def test_a_draw_has_the_declared_shapes_and_types(self) -> None:
        draw = self.make().sample(self.batch(0), tf.constant([1, 2]))
        assert draw.items.dtype == tf.int32
        assert draw.valid.dtype == tf.bool
        assert draw.items.shape == draw.valid.shape
        assert draw.items.shape[0] is not None  # known when the graph is built
        assert ((draw.items.numpy() >= 0) & (draw.items.numpy() < len(COUNTS))).all()

    def test_the_same_seed_draws_the_same(self) -> None:
        first, again, other = (self.make().sample(self.batch(0), tf.constant([5, n])).items.numpy() for n in (7, 7, 8))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_each_item_turns_up_as_often_as_it_says(self) -> None:
        """The mean number of times over many draws, within five standard errors of the expected count."""
        sampler = self.make()
        everything = tf.range(len(COUNTS))

        @tf.function
        def step(items: Any, seed: Any) -> Any:
            draw = sampler.sample(BatchEvents(items, tf.ones(tf.shape(items), tf.bool)), seed)
            kept = tf.boolean_mask(draw.items, draw.valid)
            return tf.math.bincount(kept, minlength=len(COUNTS)), tf.exp(sampler.log_expected_count(everything, draw))

        counted, expected = [], []
        for number in range(DRAWS):
            found, said = step(self.batch(number).items, tf.constant([number, 3]))
            counted.append(found.numpy())
            expected.append(said.numpy())
        mean, error = np.mean(counted, axis=0), np.std(counted, axis=0) / np.sqrt(DRAWS)
        assert mean == pytest.approx(np.mean(expected, axis=0), abs=5 * error.max() + 1e-9)
