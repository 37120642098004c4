from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.evaluation.drift import compare_queries, measure_drift
from recsys_cg.evaluation.probes import Answers


def answers(
    lists: list[list[str]],
    *,
    distance: np.ndarray | None = None,
    norms: np.ndarray | None = None,
    similarity: float | None = 0.1,
    index_recall: list[float] | None = None,
    recall: list[float] | None = None,
) -> Answers:
    many = np.ones(len(lists))
    return Answers(
        item_ids=[pa.array(one, pa.string()) for one in lists],
        nearest_distance=many * 0.5 if distance is None else distance,
        query_norms=many if norms is None else norms,
        mean_similarity=similarity,
        index_recall=many if index_recall is None else np.array(index_recall),
        recall=many * np.nan if recall is None else np.array(recall),
    )


def test_the_same_release_does_not_drift() -> None:
    probe = answers([["a", "b"], ["c"]], recall=[1.0, np.nan], index_recall=[1.0, 0.5])
    drift = measure_drift(probe, probe, k=2)
    assert (drift["probes"], drift["churn@2"]) == (2, 0.0)
    for name in ("nearest_distance", "query_norm"):
        assert (drift[name]["ks"], drift[name]["p_value"]) == (0.0, 1.0)
    assert drift["query_norm"]["mean"] == 1.0
    assert drift["probe_recall@2"] == {"current": 1.0, "previous": 1.0}
    assert drift["probe_index_recall@2"] == {"current": 0.75, "previous": 0.75}


def test_churn_is_the_share_of_the_previous_list_that_is_gone() -> None:
    now, then = answers([["a", "b"], ["c"], []]), answers([["a", "z"], ["c"], ["q"]], similarity=0.2)
    drift = measure_drift(now, then, k=2)
    assert drift["churn@2"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert drift["mean_pairwise_similarity"] == {"current": 0.1, "previous": 0.2}
    assert measure_drift(answers([["b", "a"]]), answers([["a", "b"]]), k=2)["churn@2"] == 0.0  # order is no churn
    assert measure_drift(answers([["a"]]), answers([[]]), k=2)["churn@2"] is None


def test_a_first_release_has_figures_of_its_own_and_none_of_change() -> None:
    drift = measure_drift(answers([["a"], ["b"]], recall=[0.5, 1.0]), None, k=1)
    assert drift == {
        "probes": 2,
        "probe_recall@1": {"current": 0.75},
        "probe_index_recall@1": {"current": 1.0},
        "mean_pairwise_similarity": {"current": 0.1},
        "nearest_distance": {"mean": 0.5},
        "query_norm": {"mean": 1.0},
    }
    assert measure_drift(answers([]), None, k=1) == {"probes": 0}
    assert measure_drift(answers([]), answers([]), k=1) == {"probes": 0}
    assert "churn@1" not in measure_drift(answers([["a"]]), answers([]), k=1)  # not the same probes


def test_a_shifted_distribution_is_found_and_an_equal_one_is_not() -> None:
    rng = np.random.default_rng(0)
    first, second, shifted = rng.normal(0.3, 0.05, 300), rng.normal(0.3, 0.05, 300), rng.normal(0.35, 0.05, 300)
    lists = [["a"]] * 300

    def compare(a: np.ndarray, b: np.ndarray) -> dict:
        return measure_drift(answers(lists, distance=a), answers(lists, distance=b), k=1)["nearest_distance"]

    assert compare(first, second)["p_value"] > 0.05
    assert compare(first, shifted)["p_value"] < 1e-6
    assert compare(first, shifted)["ks"] > 0.25
    unknown = compare(np.full(300, np.nan), first)
    assert (unknown["ks"], unknown["p_value"], unknown["mean"]) == (None, None, None)
    assert unknown["previous_mean"] == pytest.approx(first.mean())


def test_the_statistic_is_the_largest_gap_between_two_distributions() -> None:
    now, then = answers([["a"]] * 4, norms=np.array([1.0, 2, 3, 4])), answers([["a"]] * 2, norms=np.array([2.5, 9]))
    # at 2 half of the first lie below and none of the second; at 4 all of the first and half of the second
    assert compare_queries(now, then, k=1)["query_norm"]["ks"] == pytest.approx(0.5)


def test_fresh_queries_are_set_against_the_probes_whatever_their_number() -> None:
    fresh = answers([["a"], ["b"], ["c"]], distance=np.array([0.2, 0.4, np.nan]), index_recall=[1.0, 0.7, np.nan])
    found = compare_queries(fresh, answers([["a"]] * 5), k=10)
    assert found["queries"] == 3
    assert found["index_recall@10"] == pytest.approx(0.85)
    assert found["nearest_distance"]["mean"] == pytest.approx(0.3)
    assert found["nearest_distance"]["probe_mean"] == 0.5
    assert found["nearest_distance"]["ks"] == 1.0
    empty = compare_queries(answers([], similarity=None), answers([["a"]]), k=10)
    assert (empty["queries"], empty["index_recall@10"], empty["query_norm"]["ks"]) == (0, None, None)
