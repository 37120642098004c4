from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.config import EvaluationConfig
from recsys_cg.errors import ConfigError, DataError
from recsys_cg.evaluation import evaluate
from recsys_cg.evaluation.definitions import define
from recsys_cg.evaluation.metrics import METRICS, TargetRanks, choose_metrics, compute
from tests.evaluation.tables import ListSystem, make_items, make_queries, make_sequences

OUTSIDE = "tests.extension.outside.metric"
RANKS = TargetRanks(np.array([0, 3, -1]), np.array([0, 1, 3]), queries=4)  # query 2 has no target


def test_a_metric_from_outside_stands_behind_the_usual_ones() -> None:
    metrics = choose_metrics([f"{OUTSIDE}:first_page"])
    assert list(metrics) == [*METRICS, "first_page"]
    assert compute("first_page", metrics["first_page"], RANKS, 4).tolist()[:2] == [1.0, 0.0]


def test_its_first_line_is_the_definition_in_the_report() -> None:
    sentences = define([4], 4, choose_metrics([f"{OUTSIDE}:first_page"]))
    assert sentences["first_page@4"].startswith("1 where a target is among the first half")


def test_a_metric_that_is_no_fraction_is_refused() -> None:
    metrics = choose_metrics([f"{OUTSIDE}:percentages"])
    with pytest.raises(DataError, match=r"'percentages' must give a value in \[0, 1\]"):
        compute("percentages", metrics["percentages"], RANKS, 4)


def test_values_of_another_shape_are_refused() -> None:
    with pytest.raises(DataError, match=r"shape \(2,\), expected \(4,\)"):
        compute("own", lambda ranks, k: np.zeros(2), RANKS, 4)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tests.extension.nowhere:metric", "cannot be imported here: ModuleNotFoundError"),
        (f"{OUTSIDE}:nothing", "has no nothing"),
        (f"{OUTSIDE}:NOT_A_PART", "does not offer a call"),
        ("recsys_cg.evaluation.metrics:recall", "there is a metric 'recall' already"),
    ],
)
def test_what_is_no_metric_is_one_clear_error(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose_metrics([path])


def test_a_name_of_another_form_is_refused_with_the_form() -> None:
    with pytest.raises(ValueError, match=r"'package.module:Name'"):
        EvaluationConfig(metrics=["first_page"])


def test_it_is_measured_beside_the_others_with_an_interval() -> None:
    items, queries = make_items([3, 2, 1]), make_queries([{"targets": [2], "time": 1}, {"targets": [0], "user": "v"}])
    config = EvaluationConfig(k=[2], primary_k=2, bootstrap_samples=100, metrics=[f"{OUTSIDE}:first_page"])
    lists = ListSystem("mine", [[2, 1], [1, 0]])
    report = evaluate([lists], queries, items, make_sequences({"u": [0]}), config, 0)
    measured = report["systems"]["mine"]["overall"]
    assert measured["first_page@2"]["mean"] == 0.5  # found first, and found second
    assert set(measured["first_page@2"]) == set(measured["recall@2"])
