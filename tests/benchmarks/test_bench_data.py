from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import bench_data
from tests.benchmarks.record import measure_figure, write_record


def test_a_target_is_judged_by_the_ratio_of_each_round() -> None:
    figure = measure_figure("x", [1.0, 4.0, 3.0], "s", against="peer", peers=[1.0, 2.0, 2.0], target=("<=", 1.5))
    assert (figure.value, figure.spread, figure.against_value) == (3.0, (1.0, 4.0), 2.0)
    assert (figure.ratio, figure.target, figure.met) == (1.5, "<= 1.5", True)
    assert measure_figure("y", [0.9], "x", target=(">=", 1.0)).met is False
    assert measure_figure("z", [0.9], "x").met is None


def test_a_record_has_the_form_that_others_read(tmp_path: Path) -> None:
    path = write_record("demo", [measure_figure("x", [1.0], "s")], 0.0, tmp_path, note="n")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "demo.json"
    assert set(record) == {"bench", "commit", "machine", "seconds", "note", "figures"}
    assert record["figures"][0] == {
        "name": "x", "value": 1.0, "spread": [1.0, 1.0], "unit": "s", "against": None, "against_value": None,
        "ratio": None, "target": None, "met": None,
    }  # fmt: skip


@pytest.mark.slow
def test_the_quick_bench_finds_equal_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", "1")
    record = json.loads(bench_data.main(tmp_path).read_text(encoding="utf-8"))
    assert {name: sum(tables.values()) for name, tables in record["rows_that_differ"].items()} == {
        "beam vs pandas": 0, "beam vs polars": 0, "beam_2_workers vs pandas": 0, "beam_2_workers vs polars": 0,
    }  # fmt: skip
    assert {figure["name"] for figure in record["figures"]} >= {"beam_seconds_1m", "beam_growth_of_seconds_x10"}
