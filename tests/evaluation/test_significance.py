from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.evaluation import significance
from recsys_cg.evaluation.significance import interval, paired_test, ratios, resample_sums, sum_by_user


def test_sums_by_user_leave_out_what_is_not_a_number() -> None:
    sums, counts = sum_by_user(np.array([1.0, np.nan, 0.5, 0.25]), np.array([1, 1, 0, 1]), 3)
    assert sums.tolist() == [0.5, 1.25, 0.0]
    assert counts.tolist() == [1.0, 2.0, 0.0]


def test_draws_are_seeded_paired_and_independent_of_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((9, 2))
    first = resample_sums(values, samples=50, seed=3)
    assert np.array_equal(first, resample_sums(values, samples=50, seed=3))
    assert not np.array_equal(first, resample_sums(values, samples=50, seed=4))
    monkeypatch.setattr(significance, "_CELLS", 10)
    np.testing.assert_allclose(resample_sums(values, samples=50, seed=3), first, rtol=1e-12)


def test_users_are_drawn_whole() -> None:
    # Two users, one with a sum of 0 and one with 10: every draw is a multiple of 10.
    drawn = resample_sums(np.array([[0.0, 1.0], [10.0, 1.0]]), samples=400, seed=0)
    assert set(drawn[:, 0]) == {0.0, 10.0, 20.0}
    assert (drawn[:, 1] == 2.0).all()
    assert abs(drawn[:, 0].mean() - 10.0) < 1.0


def test_the_interval_widens_when_queries_belong_to_fewer_users() -> None:
    rng = np.random.default_rng(5)
    hits = np.repeat(rng.integers(0, 2, 40), 25).astype(float)  # all queries of a user agree
    together, apart = np.repeat(np.arange(40), 25), np.arange(1000)

    def width(users: np.ndarray, count: int) -> float:
        tops, bottoms = sum_by_user(hits, users, count)
        sums = resample_sums(np.stack((tops, bottoms), axis=1), samples=500, seed=1)
        low, high = interval(ratios(sums[:, 0], sums[:, 1]))
        return high - low

    # 25 times fewer independent units: sqrt(25) = 5 times as wide, within sampling error.
    assert 4.0 < width(together, 40) / width(apart, 1000) < 6.0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for trial in range(200):
        rates = rng.beta(2, 2, 60)
        hits = rng.random((60, 5)) < rates[:, None]
        sums = np.stack((hits.sum(axis=1), np.full(60, 5)), axis=1).astype(float)
        drawn = resample_sums(sums, samples=200, seed=trial)
        low, high = interval(ratios(drawn[:, 0], drawn[:, 1]))
        covered += low <= 0.5 <= high
    assert 0.89 <= covered / 200 <= 0.99


def test_a_ratio_without_denominator_is_unknown_and_an_empty_interval_says_nothing() -> None:
    assert np.isnan(ratios(np.array([1.0]), np.array([0.0]))).all()
    assert interval(np.array([np.nan, np.nan])) == (0.0, 1.0)


def test_the_paired_test_finds_a_real_difference_and_no_other() -> None:
    rng = np.random.default_rng(2)
    users = np.repeat(np.arange(100), 4)
    common = rng.random(400)
    better = paired_test(common + 0.02, common, users, samples=500, seed=0)
    assert better["difference"] == pytest.approx(0.02, abs=1e-12)
    assert better["ci95"][0] > 0
    assert better["p_value"] == pytest.approx(1 / 501)
    same = paired_test(common, common, users, samples=500, seed=0)
    assert same["difference"] == 0.0
    assert same["ci95"] == [0.0, 0.0]
    assert same["p_value"] == 1.0
    noisy = paired_test(common + rng.normal(0, 0.2, 400), common, users, samples=500, seed=0)
    assert noisy["p_value"] > 0.05
    assert noisy["ci95"][0] < 0 < noisy["ci95"][1]


def test_the_paired_test_leaves_out_queries_that_do_not_count() -> None:
    a, b = np.array([1.0, np.nan, 0.0]), np.array([0.0, 1.0, np.nan])
    alone = paired_test(a, b, np.array([0, 1, 2]), samples=100, seed=0)
    assert (alone["queries"], alone["users"], alone["difference"]) == (1, 1, 1.0)
    assert (alone["ci95"], alone["p_value"]) == ([-1.0, 1.0], 1.0)
    assert paired_test(a[1:], b[1:], np.array([0, 1]), samples=100, seed=0) == {"queries": 0}
