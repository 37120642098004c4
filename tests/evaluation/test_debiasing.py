from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.evaluation.debiasing import effective_sample_size, popularity_propensity, weigh


def test_popularity_propensity_is_relative_to_the_bestseller() -> None:
    assert popularity_propensity(np.array([99, 24, 0]), 0.5).tolist() == [1.0, 0.5, 0.1]
    assert popularity_propensity(np.array([99, 24, 0]), 0.0).tolist() == [1.0, 1.0, 1.0]
    assert popularity_propensity(np.zeros(0, dtype=np.int64), 0.5).tolist() == []


def test_effective_sample_size_counts_equal_weights() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7.0)
    assert effective_sample_size(np.array([1.0, 0.0, 0.0])) == 1.0
    assert effective_sample_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
    assert effective_sample_size(np.zeros(0)) == 0.0


def test_weights_are_inverse_clipped_and_shared_by_the_targets_of_a_query() -> None:
    weights = weigh(np.array([1.0, 0.5, 0.001]), np.array([1, 2, 1]), clip=0.01, source="test")
    assert weights.values.tolist() == [1.0, 1.0, 100.0]
    assert weights.summary["clipped_share"] == pytest.approx(1 / 3)
    assert weights.summary["source"] == "test"


def test_a_small_effective_sample_warns_and_a_large_one_does_not() -> None:
    few = np.ones(2000)
    few[:3] = 1e-6
    assert "rests on few targets" in weigh(few, np.ones(2000, dtype=np.int64), clip=1e-9, source="").summary["warning"]
    assert "warning" not in weigh(np.ones(2000), np.ones(2000, dtype=np.int64), clip=0.01, source="").summary
    assert "warning" in weigh(np.ones(3), np.ones(3, dtype=np.int64), clip=0.01, source="").summary
    assert weigh(np.zeros(0), np.zeros(0, dtype=np.int64), clip=0.01, source="").summary["targets"] == 0


def test_weighing_by_the_true_propensity_recovers_recall_over_all_interest() -> None:
    # 400 rare and 400 popular targets are wanted; rare ones are observed with probability 0.1. A system finds all
    # popular and no rare ones: its recall over all interest is 0.5.
    rng = np.random.default_rng(0)
    observed = np.concatenate((np.ones(4000, dtype=bool), rng.random(4000) < 0.1))
    found = np.concatenate((np.ones(4000), np.zeros(4000)))[observed]
    propensity = np.where(np.arange(8000) < 4000, 1.0, 0.1)[observed]
    weights = weigh(propensity, np.ones(len(found), dtype=np.int64), clip=0.01, source="truth").values
    assert found.mean() > 0.9
    assert (found @ weights) / weights.sum() == pytest.approx(0.5, abs=0.03)
