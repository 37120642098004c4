"""The drift command on a store with two releases, as a scheduler calls it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

from recsys_cg.evaluation.probes import probes_schema
from tests.pipelines.conftest import Site, call


def test_a_first_release_reports_its_probes_and_says_that_it_has_no_predecessor(site: Site) -> None:
    report = json.loads((site.current() / "report" / "report.json").read_text(encoding="utf-8"))
    drift = report["drift"]
    assert "against" not in drift
    assert drift["probes"] > 50
    assert 0 < drift["probe_recall@20"]["current"] < 1
    assert drift["probe_index_recall@20"]["current"] > 0.8
    probes = pq.read_table(site.current() / "report" / "probes.parquet")
    assert probes.schema.equals(probes_schema)
    found = json.loads(call("drift", "--store", str(site.store), "--json").stdout)
    assert found["against"] is None
    assert found["frozen"]["probe_recall@20"] == drift["probe_recall@20"]


def test_a_second_release_is_measured_against_the_first_and_against_fresh_requests(
    copy_site: Callable[[], Site], tmp_path: Path
) -> None:
    site = copy_site()
    first = site.current()
    call("run", *site.options("project.seed=43", "training.epochs=1", "gates.max_recall_drop=off",
                              "gates.max_tail_recall_drop=off"))  # fmt: skip
    report = json.loads((site.current() / "report" / "report.json").read_text(encoding="utf-8"))
    ids = pq.read_table(first / "items.parquet")["item_id"].to_pylist()
    requests = [{"history": [ids[n], {"item": ids[n + 1], "time": "2020-01-01T00:00:00Z"}], "k": 5} for n in range(40)]
    requests += [{"history": ["nobody knows this"]}, {"user_id": "u"}]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(map(json.dumps, requests)) + "\n\n", encoding="utf-8")
    options = ["drift", "--store", str(site.store), "--queries", str(file)]

    found = json.loads(call(*options, "--json").stdout)
    assert (found["release"], found["against"]) == (site.current().name, first.name)
    assert found["frozen"] == {key: value for key, value in report["drift"].items() if key != "against"}
    assert 0 < found["frozen"]["churn@20"] < 1
    fresh = found["fresh"]
    assert fresh["requests"] == 42
    assert fresh["queries"] == 40
    assert fresh["without_known_history"] == 2 / 42
    assert fresh["unknown_item_share"] == 1 / 81
    assert 0 <= fresh["nearest_distance"]["p_value"] <= 1
    assert found["staleness"]["stale_fraction"] == 0.0
    assert 0 <= found["staleness"]["served_hours"] <= found["staleness"]["release_age_hours"] < 1

    output = tmp_path / "metrics" / "recsys_cg.prom"
    call(*options, "--format", "prometheus", "--output", str(output))
    families = {one.name: one for one in text_string_to_metric_families(output.read_text(encoding="utf-8"))}
    (churn,) = families["recsys_cg_drift_churn_ratio"].samples
    assert churn.value == found["frozen"]["churn@20"]
    assert list(output.parent.iterdir()) == [output]


def test_a_request_that_is_none_is_named_by_line_and_an_empty_store_has_no_drift(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    for text, words in (
        ("{}\n[1]\n", "line 2: a request is a JSON object"),
        ("{nothing\n", "line 1: no JSON"),
        ('{"history": [{"id": "x"}]}\n', "line 1: a history entry has"),
        ('{"history": ["x"], "at": "yesterday"}', "line 1: time 'yesterday'"),
    ):
        file.write_text(text, encoding="utf-8")
        done = call("drift", "--store", str(site.store), "--queries", str(file), check=False)
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    done = call("drift", "--store", str(site.store), "--queries", str(tmp_path / "none"), check=False)
    assert (done.returncode, "cannot be read" in done.stderr) == (1, True)
    done = call("drift", "--store", str(tmp_path / "nowhere"), check=False)
    assert (done.returncode, "nothing is published yet" in done.stderr) == (1, True)
    assert "no release no-such" in call("drift", "--store", str(site.store), "--against", "no-such", check=False).stderr


def test_a_file_without_requests_has_figures_of_nothing(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text("\n", encoding="utf-8")
    fresh = json.loads(call("drift", "--store", str(site.store), "--queries", str(file), "--json").stdout)["fresh"]
    assert (fresh["requests"], fresh["queries"], fresh["without_known_history"]) == (0, 0, None)
    assert fresh["nearest_distance"]["ks"] is None
