from __future__ import annotations

import copy
from typing import Any

import pytest

from recsys_cg.config.release import GatesConfig
from recsys_cg.release.gates import UNFORCEABLE, conclude, failed_gates, judge

ALL = GatesConfig(min_coverage=0.3, max_churn=0.6)


def compare(against: str, group: str, difference: float, low: float, high: float) -> dict[str, Any]:
    about = {"system": "two_tower", "against": against, "group": group, "metric": "recall@100"}
    return {**about, "queries": 80, "difference": difference, "ci95": [low, high], "p_value": 0.01}


def good_report() -> dict[str, Any]:
    return {
        "protocol": {"k": [20, 100], "primary_k": 100, "candidates": 1682},
        "vectors": {"count": 1682, "dim": 64, "not_finite": 0, "max_norm_error": 1e-7},
        "freshness": {"stale_fraction": 0.0, "items_without_vector": 0},
        "geometry": {"effective_rank": 40.0, "mean_pairwise_similarity": 0.1},
        "index": {"recall_vs_exact@100": 0.99, "fill_rate": 1.0},
        "coverage": {"two_tower": {"catalogue_coverage@100": 0.8, "between_user_overlap@100": 0.2}},
        "systems": {
            "two_tower": {"overall": {"recall@100": {"mean": 0.5}}, "tail": {"queries": 9}},
            "popularity": {"overall": {"recall@100": {"mean": 0.3}}},
            "previous_release": {"overall": {"recall@100": {"mean": 0.5}}},
        },
        "comparisons": [
            compare("popularity", "overall", 0.2, 0.15, 0.25),
            compare("previous_release", "overall", 0.0, -0.01, 0.01),
            compare("previous_release", "tail", 0.01, -0.02, 0.03),
        ],
        "drift": {"churn@100": 0.4},
    }


def with_comparison(**changes: Any) -> dict[str, Any]:
    report = good_report()
    wanted = (changes.pop("against"), changes.pop("group"))
    for entry in report["comparisons"]:
        if (entry["against"], entry["group"]) == wanted:
            entry.update(changes)
    return report


def find(gates: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(gate for gate in gates if gate["name"] == name)


def test_a_good_report_passes_every_gate_with_a_reason() -> None:
    gates = judge(good_report(), ALL, {})
    assert [gate["name"] for gate in gates] == [
        "vectors_finite",
        "vectors_unit_norm",
        "stale_fraction",
        "items_without_vector",
        "effective_rank",
        "mean_similarity",
        "index_recall",
        "fill_rate",
        "coverage",
        "user_overlap",
        "beats_popularity",
        "recall_drop",
        "tail_recall_drop",
        "churn",
    ]
    assert failed_gates(gates) == []
    assert all(set(gate) == {"name", "value", "threshold", "passed", "why"} for gate in gates)
    assert all(gate["why"].endswith(".") for gate in gates)


def test_an_empty_report_fails_every_gate_and_says_what_is_missing() -> None:
    gates = judge({}, ALL, {})
    assert len(gates) == 14
    assert not any(gate["passed"] for gate in gates)
    assert all("cannot be judged" in gate["why"] for gate in gates)
    assert "coverage.two_tower.catalogue_coverage@100" in find(gates, "coverage")["why"]
    assert all(gate["value"] is None for gate in gates)


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        (("vectors", "not_finite"), 1, "vectors_finite"),
        (("vectors", "max_norm_error"), 0.001, "vectors_unit_norm"),
        (("freshness", "stale_fraction"), 1e-6, "stale_fraction"),
        (("freshness", "items_without_vector"), 1, "items_without_vector"),
        (("geometry", "effective_rank"), 1.99, "effective_rank"),
        (("geometry", "mean_pairwise_similarity"), 0.951, "mean_similarity"),
        (("index", "recall_vs_exact@100"), 0.949, "index_recall"),
        (("index", "fill_rate"), 0.98, "fill_rate"),
        (("coverage", "two_tower", "catalogue_coverage@100"), 0.29, "coverage"),
        (("coverage", "two_tower", "between_user_overlap@100"), 0.96, "user_overlap"),
        (("drift", "churn@100"), 0.61, "churn"),
    ],
)
@pytest.mark.parametrize("broken", [None, float("nan"), float("inf"), "0.5", True])
def test_a_figure_beyond_its_threshold_or_unusable_fails_its_gate_alone(
    path: tuple[str, ...], value: float, name: str, broken: Any
) -> None:
    for changed in (value, broken):
        report = good_report()
        place = report
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = changed
        failed = failed_gates(judge(report, ALL, {}))
        assert [gate["name"] for gate in failed] == [name]


def test_a_figure_at_its_threshold_passes() -> None:
    report = good_report()
    report["index"]["recall_vs_exact@100"] = 0.95
    report["geometry"]["effective_rank"] = 2.0
    assert failed_gates(judge(report, ALL, {})) == []


def test_a_measured_mapping_counts_by_its_mean() -> None:
    report = good_report()
    report["index"]["recall_vs_exact@100"] = {"mean": 0.9, "ci95": [0.89, 0.91]}
    gate = find(judge(report, ALL, {}), "index_recall")
    assert (gate["value"], gate["passed"]) == (0.9, False)


@pytest.mark.parametrize(
    ("difference", "low", "high", "passed", "says"),
    [
        (-0.05, -0.08, -0.02, False, "beyond chance and above the 0.02 allowed"),
        (-0.05, -0.11, 0.01, True, "cannot tell it from chance"),
        (-0.01, -0.015, -0.005, True, "beyond chance, within the 0.02 allowed"),
        (-0.02, -0.03, -0.01, True, "within the 0.02 allowed"),
        (-0.05, -0.10, 0.0, True, "cannot tell it from chance"),
        (0.03, 0.01, 0.05, True, "rose by 0.03"),
        (0.0, -0.01, 0.01, True, "moved by 0"),
    ],
)
@pytest.mark.parametrize(("group", "name"), [("overall", "recall_drop"), ("tail", "tail_recall_drop")])
def test_a_drop_is_refused_when_it_is_both_certain_and_large(
    group: str, name: str, difference: float, low: float, high: float, passed: bool, says: str
) -> None:
    report = with_comparison(against="previous_release", group=group, difference=difference, ci95=[low, high])
    gate = find(judge(report, ALL, {}), name)
    assert gate["passed"] is passed
    assert says in gate["why"]
    assert gate["value"] == -difference
    assert gate["threshold"] == 0.02


def test_without_a_previous_release_the_drop_gates_pass_and_say_why() -> None:
    report = good_report()
    del report["systems"]["previous_release"], report["drift"]
    report["comparisons"] = report["comparisons"][:1]
    gates = judge(report, ALL, None)
    for name in ("recall_drop", "tail_recall_drop", "churn"):
        assert find(gates, name)["passed"]
        assert find(gates, name)["why"] == "There is no previous release to compare with."


def test_a_previous_release_that_was_not_measured_fails_the_drop_gates() -> None:
    report = good_report()
    report["comparisons"] = report["comparisons"][:1]
    assert not find(judge(report, ALL, {}), "recall_drop")["passed"]
    report["systems"]["previous_release"] = {"skipped": "its encoder cannot be read"}
    gate = find(judge(report, ALL, None), "recall_drop")
    assert not gate["passed"]
    assert gate["why"] == "The previous release was not measured: its encoder cannot be read"


def test_a_tail_without_queries_has_nothing_to_compare() -> None:
    report = good_report()
    report["comparisons"][2] = {**report["comparisons"][2], "queries": 0, "difference": None, "ci95": None}
    assert "nothing to compare" in find(judge(report, ALL, {}), "tail_recall_drop")["why"]
    del report["comparisons"][2]
    report["systems"]["two_tower"]["tail"] = {"queries": 0}
    assert find(judge(report, ALL, {}), "tail_recall_drop")["passed"]


def test_comparisons_below_a_system_are_read_too() -> None:
    report = good_report()
    del report["comparisons"]
    report["systems"]["previous_release"]["paired"] = {
        "recall@100": {"difference": -0.1, "ci95": [-0.2, -0.05]},
        "tail": {"recall@100": {"difference": 0.1, "ci95": [0.0, 0.2]}},
    }
    gates = judge(report, ALL, {})
    assert not find(gates, "recall_drop")["passed"]
    assert find(gates, "tail_recall_drop")["passed"]


@pytest.mark.parametrize(
    ("ours", "low", "high", "passed"), [(0.31, 0.001, 0.02, True), (0.31, -0.01, 0.03, False), (0.3, 0.0, 0.0, False)]
)
def test_the_baseline_is_beaten_only_when_the_whole_interval_is_above_zero(
    ours: float, low: float, high: float, passed: bool
) -> None:
    report = with_comparison(against="popularity", group="overall", difference=ours - 0.3, ci95=[low, high])
    report["systems"]["two_tower"]["overall"]["recall@100"]["mean"] = ours
    assert find(judge(report, ALL, {}), "beats_popularity")["passed"] is passed


def test_the_baseline_is_beaten_by_means_where_no_interval_was_measured() -> None:
    report = good_report()
    del report["comparisons"][0]
    assert find(judge(report, ALL, {}), "beats_popularity")["passed"]
    report["systems"]["two_tower"]["overall"]["recall@100"]["mean"] = 0.3
    assert not find(judge(report, ALL, {}), "beats_popularity")["passed"]


def test_a_skipped_baseline_fails_with_the_reason_it_was_skipped_for() -> None:
    report = good_report()
    report["systems"]["popularity"] = {"skipped": "no training events"}
    gate = find(judge(report, ALL, {}), "beats_popularity")
    assert (gate["passed"], gate["why"]) == (False, "popularity was not measured: no training events")


def test_overlap_is_not_judged_where_lists_are_half_the_catalogue() -> None:
    report = good_report()
    report["protocol"]["candidates"] = 200
    report["coverage"]["two_tower"]["between_user_overlap@100"] = 1.0
    assert "not judged" in find(judge(report, ALL, {}), "user_overlap")["why"]
    report["protocol"]["candidates"] = 201
    assert not find(judge(report, ALL, {}), "user_overlap")["passed"]


def test_gates_set_to_none_are_not_judged() -> None:
    off = GatesConfig(**dict.fromkeys(GatesConfig.model_fields))
    assert [gate["name"] for gate in judge(good_report(), off, {})] == [
        "vectors_finite",
        "vectors_unit_norm",
        "stale_fraction",
        "items_without_vector",
    ]


def test_another_primary_k_is_followed() -> None:
    report = good_report()
    report["protocol"] = {"k": [10, 50], "primary_k": 50, "candidates": 1682}
    report["index"] = {"recall_vs_exact@10": 0.97, "fill_rate": 1.0}
    gates = judge(report, ALL, None)
    assert find(gates, "index_recall")["value"] == 0.97
    assert "recall@50" in find(gates, "beats_popularity")["why"]


def test_the_verdict_follows_the_gates_and_leaves_the_report_alone() -> None:
    report = good_report()
    before = copy.deepcopy(report)
    gates = judge(report, ALL, {})
    assert conclude(report, gates)["published"] is True
    assert conclude(report, gates)["gates"] == gates
    assert report == before
    assert conclude(report, [])["published"] is False


def test_a_reason_overrides_a_gate_and_is_recorded() -> None:
    report = good_report()
    report["index"]["fill_rate"] = 0.5
    gates = judge(report, ALL, {})
    assert conclude(report, gates)["published"] is False
    assert conclude(report, gates, force_reason="  ")["published"] is False
    forced = conclude(report, gates, force_reason="the catalogue shrank")
    assert forced["published"] is True
    assert forced["forced"] == {"reason": "the catalogue shrank", "gates": ["fill_rate"]}
    assert "forced" not in conclude(good_report(), judge(good_report(), ALL, {}), force_reason="no need")


@pytest.mark.parametrize("name", sorted(UNFORCEABLE))
def test_no_reason_overrides_a_collapse_or_an_unsearchable_release(name: str) -> None:
    gates = judge(good_report(), ALL, {})
    find(gates, name)["passed"] = False
    verdict = conclude(good_report(), gates, force_reason="I insist")
    assert verdict["published"] is False
    assert "forced" not in verdict
