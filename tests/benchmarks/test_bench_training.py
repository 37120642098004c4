from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import bench_training
from tests.benchmarks.training_child import _reached


def test_the_time_to_a_goal_is_that_of_the_first_epoch_that_reached_it() -> None:
    reached = _reached([10.0, 20.0, 30.0], [0.1, 0.4, 0.3], 0.3)
    assert (reached["seconds_to_goal"], reached["best"], reached["seconds"]) == (20.0, 0.4, 30.0)
    assert _reached([10.0], [0.1], 0.3)["seconds_to_goal"] is None


def test_a_peer_that_never_reached_the_goal_is_said_to_have_given_up() -> None:
    ours = {"seconds_to_goal": 20.0, "best": 0.4, "seconds": 30.0, "examples_per_s": 5.0}
    stock = {"seconds_to_goal": None, "best": 0.1, "seconds": 60.0}
    figures = {figure.name: figure for figure in bench_training.reach_figures({"ours": ours, "stock": stock}, 0.3)}
    figure = figures["seconds_to_validation_recall_of_ease"]
    assert (figure.value, figure.against_value) == (20.0, 60.0)
    assert figure.against == "stock TFRS, which gave up without reaching it"


@pytest.mark.slow
def test_the_quick_bench_counts_the_same_examples_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("REACH", "0")
    record = json.loads(bench_training.main(tmp_path).read_text(encoding="utf-8"))
    assert [figure["name"] for figure in record["figures"]] == ["examples_per_second", "peak_rss"]
