from __future__ import annotations

import math

import numpy as np
import pytest

from recsys_cg.evaluation.exposure import Exposure, entropy, exposure_curve, gini, mean_overlap, self_information


def test_gini_and_entropy_of_known_distributions() -> None:
    assert gini(np.array([5, 5, 5, 5])) == pytest.approx(0.0, abs=1e-15)
    assert gini(np.array([0, 0, 0, 9])) == pytest.approx(0.75, abs=1e-15)
    assert gini(np.array([1, 3])) == pytest.approx(0.25, abs=1e-15)
    assert entropy(np.array([5, 5, 5, 5])) == pytest.approx(1.0, abs=1e-15)
    assert entropy(np.array([0, 0, 0, 9])) == 0.0
    assert entropy(np.array([1, 1, 0, 0])) == pytest.approx(math.log(2) / math.log(4), abs=1e-15)
    assert entropy(np.array([7])) == 1.0


def test_nothing_shown_has_no_concentration() -> None:
    assert math.isnan(gini(np.array([0, 0])))
    assert math.isnan(entropy(np.array([], dtype=np.int64)))
    assert exposure_curve(np.array([0, 0])) == {"items": [], "exposure": []}


def test_the_exposure_curve_rises_from_nothing_to_everything() -> None:
    curve = exposure_curve(np.array([1, 0, 3, 0]), points=5)
    assert curve == {"items": [0.0, 0.25, 0.5, 0.75, 1.0], "exposure": [0.0, 0.75, 1.0, 1.0, 1.0]}


def test_overlap_is_counted_by_item_within_k_and_padding_is_no_item() -> None:
    lists = np.array([[1, 2, 3, 4], [4, 9, 1, 2], [-1, -1, -1, -1], [1, 5, -1, -1]], dtype=np.int32)
    one_pair = np.array([[0, 1]])
    assert mean_overlap(lists, one_pair, 4) == 0.75
    assert mean_overlap(lists, one_pair, 2) == 0.0
    assert mean_overlap(lists, np.array([[0, 3]]), 4) == 0.25
    assert mean_overlap(lists, np.array([[2, 2], [0, 0]]), 4) == 0.5
    assert math.isnan(mean_overlap(lists, np.zeros((0, 2), dtype=np.int64), 4))


def test_self_information_is_one_for_the_unseen_and_least_for_the_bestseller() -> None:
    values = self_information(np.array([97, 0, 0]))
    assert values.tolist() == [pytest.approx(math.log(100 / 98) / math.log(100)), 1.0, 1.0]
    assert self_information(np.zeros(0, dtype=np.int64)).tolist() == []


def test_coverage_of_two_batches_has_the_values_worked_out_by_hand() -> None:
    exposure = Exposure(5, [1, 2], sampled=np.array([0, 2]))
    for first, rows in ((0, [[0, 1], [0, 2]]), (2, [[1, -1]])):
        lists = np.array(rows, dtype=np.int32)
        exposure.add({1: lists, 2: lists}, first)
    measured = exposure.measure(
        candidates=np.array([True, True, True, True, False]),
        buckets=np.array([0, 1, 2, 3, 3], dtype=np.int8),
        train_counts=np.array([5, 3, 2, 0, 0]),
        pairs=np.array([[0, 1]]),
        primary_k=2,
    )
    assert measured["queries"] == 3
    assert measured["catalogue_coverage@1"] == 0.5
    assert measured["catalogue_coverage@2"] == 0.75
    assert measured["fill_rate@1"] == 1.0
    assert measured["fill_rate@2"] == pytest.approx(5 / 6)
    assert [measured[f"{b}_share@2"] for b in ("head", "torso", "tail", "cold")] == [0.4, 0.4, 0.2, 0.0]
    assert measured["never_retrieved"] == 1
    assert measured["gini@2"] == pytest.approx(gini(np.array([2, 2, 1, 0])))
    assert measured["between_user_overlap@1"] == 0.0
    assert measured["between_user_overlap@2"] == 0.5
    information = np.log(15 / np.array([6, 4, 3])) / np.log(15)
    assert measured["novelty@2"] == pytest.approx((information @ [2, 2, 1]) / 5)


def test_without_queries_there_are_no_figures() -> None:
    measured = Exposure(3, [5], sampled=np.zeros(0, dtype=np.int64)).measure(
        candidates=np.ones(3, dtype=np.bool_),
        buckets=np.zeros(3, dtype=np.int8),
        train_counts=np.ones(3, dtype=np.int64),
        pairs=np.zeros((0, 2), dtype=np.int64),
        primary_k=5,
    )
    assert measured == {"queries": 0}
