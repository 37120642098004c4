"""The DAGs in a real Airflow 3, in an environment of its own: ``make airflow-test`` makes it and runs these."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.schedule.conftest import SCHEDULE

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAGS = SCHEDULE / "airflow" / "recsys_cg_dags.py"

LOAD = """
import json
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder={folder!r})
print("BAG" + json.dumps({{
    "errors": bag.import_errors,
    "dags": {{name: {{"schedule": dag.schedule,
                      "tasks": {{task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}}}}
              for name, dag in bag.dags.items()}},
}}))
"""

RUN = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder={folder!r})
dag = bag.dags[{dag!r}]
for one in dag.tasks:
    one.retries = 0  # dag.test() would wait for the next try
run = dag.test()
states = {{one.task_id: str(one.state) for one in run.get_task_instances()}}
print("RUN" + json.dumps({{"state": str(run.state), "run_id": run.run_id, "tasks": states}}))
"""


@dataclass(frozen=True)
class Airflow:
    """An Airflow with an empty database, its DAG folder and what its workers see."""

    python: Path
    home: Path
    environment: dict[str, str]

    def call(self, script: str, marker: str, **environment: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(self.python), "-c", script],
            env={**self.environment, **environment},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=1500,
            check=False,
        )
        found = [line for line in done.stdout.splitlines() if line.startswith(marker)]
        assert found, done.stdout[-4000:] + done.stderr[-6000:]
        result: dict[str, Any] = json.loads(found[-1].removeprefix(marker))
        return result

    def run(self, dag: str, **environment: str) -> dict[str, Any]:
        return self.call(RUN.format(folder=str(self.home / "dags"), dag=dag), "RUN", **environment)

    @property
    def store(self) -> Path:
        return self.home / "work" / "store"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, project: Path, recsys_cg: Path) -> Airflow:
    python = Path(os.environ.get("AIRFLOW_PYTHON", "")).absolute()
    assert python.is_file(), "AIRFLOW_PYTHON names no interpreter: run `make airflow-test`"
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    (home / "dags" / DAGS.name).write_bytes(DAGS.read_bytes())
    environment = {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "false",
        "RECSYS_CG_COMMAND": str(recsys_cg),
        "RECSYS_CG_CONFIG": str(project),
        "RECSYS_CG_WORKDIR": str(home / "work"),
        **{name: value for name, value in os.environ.items() if name.startswith(("OPENBLAS_", "TF_"))},
    }
    migrate = [str(python.parent / "airflow"), "db", "migrate"]
    done = subprocess.run(migrate, env=environment, cwd=home, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return Airflow(python, home, environment)


def test_airflow_loads_every_dag_without_an_error(airflow: Airflow) -> None:
    bag = airflow.call(LOAD.format(folder=str(airflow.home / "dags")), "BAG")
    assert bag["errors"] == {}
    branch = {"gate": ["published", "refused", "report"], "published": [], "refused": [], "report": []}
    assert {name: dag["schedule"] for name, dag in bag["dags"].items()} == {
        "recsys_cg_retrain": "0 2 * * 0",
        "recsys_cg_refresh": "0 4 * * 1-6",
        "recsys_cg_drift": "17 * * * *",
    }
    judged = ["gate", "published", "refused", "report"]
    assert bag["dags"]["recsys_cg_retrain"]["tasks"] == {
        "dataset": ["train"],
        "train": ["index"],
        "index": ["evaluate"],
        "evaluate": ["publish"],
        "publish": judged,
        **branch,
    }
    assert bag["dags"]["recsys_cg_refresh"]["tasks"] == {"refresh": judged, **branch}
    assert list(bag["dags"]["recsys_cg_drift"]["tasks"]) == ["drift"]


def kept_report(airflow: Airflow, dag: str, run: dict[str, Any]) -> dict[str, Any]:
    """Return report.json of the run, after looking for the page and the summary beside it."""
    (kept,) = (path for path in (airflow.home / "work" / "reports" / dag).iterdir() if path.name in safe(run["run_id"]))
    assert (kept / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (kept / "report.md").stat().st_size > 0
    report: dict[str, Any] = json.loads((kept / "report.json").read_text(encoding="utf-8"))
    return report


def safe(run_id: str) -> str:
    return run_id.replace(":", "").replace("+", "-")


def test_a_run_publishes_and_a_refused_one_is_red_with_its_report_kept(
    airflow: Airflow, project: Path, tmp_path: Path
) -> None:
    first = airflow.run("recsys_cg_retrain")
    stages = dict.fromkeys(("dataset", "train", "index", "evaluate", "publish", "gate", "report"), "success")
    assert first["tasks"] == {**stages, "published": "success", "refused": "skipped"}
    assert first["state"] == "success"
    current = (airflow.store / "CURRENT").read_text(encoding="utf-8")
    report = kept_report(airflow, "recsys_cg_retrain", first)
    assert (report["release"], report["published"]) == (current.strip(), True)

    # The same data and model under a gate that it cannot pass: only the evaluation is made anew.
    strict = project.with_name("strict.toml")
    strict.write_text(project.read_text(encoding="utf-8").replace("[gates]", "[gates]\nmin_coverage = 1.0"), "utf-8")
    second = airflow.run("recsys_cg_retrain", RECSYS_CG_CONFIG=str(strict))
    assert second["tasks"] == {**stages, "published": "skipped", "refused": "failed"}
    assert second["state"] == "failed"
    assert (airflow.store / "CURRENT").read_text(encoding="utf-8") == current
    report = kept_report(airflow, "recsys_cg_retrain", second)
    assert report["published"] is False
    assert [gate["name"] for gate in report["gates"] if not gate["passed"]] == ["coverage"]


def test_a_refresh_of_unchanged_data_leaves_the_release(airflow: Airflow) -> None:
    current = (airflow.store / "CURRENT").read_text(encoding="utf-8")
    run = airflow.run("recsys_cg_refresh")
    assert run["tasks"] == {
        "refresh": "success", "gate": "success", "published": "success", "refused": "skipped", "report": "success"
    }  # fmt: skip
    assert (airflow.store / "CURRENT").read_text(encoding="utf-8") == current


def test_drift_is_written_for_prometheus(airflow: Airflow) -> None:
    assert airflow.run("recsys_cg_drift")["tasks"] == {"drift": "success"}
    text = (airflow.home / "work" / "metrics" / "recsys_cg.prom").read_text(encoding="utf-8")
    assert "recsys_cg_drift_" in text


def test_a_command_that_fails_is_no_refusal(airflow: Airflow, tmp_path: Path) -> None:
    run = airflow.run("recsys_cg_refresh", RECSYS_CG_CONFIG=str(tmp_path / "missing.toml"))
    assert run["state"] == "failed"
    assert run["tasks"] == {
        "refresh": "failed",
        **dict.fromkeys(("gate", "published", "refused", "report"), "upstream_failed"),
    }


@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_the_kubernetes_manifest_fits_the_schemas(airflow: Airflow, version: str) -> None:
    command = [str(airflow.python.with_name("kubernetes-validate")), "--strict", "--quiet", "-k", version]
    manifest = SCHEDULE / "kubernetes" / "cronjobs.yaml"
    assert subprocess.run([*command, str(manifest)], capture_output=True, check=False).returncode == 0
    broken = airflow.home / "broken.yaml"
    broken.write_text(manifest.read_text(encoding="utf-8").replace("concurrencyPolicy", "concurencyPolicy"), "utf-8")
    assert subprocess.run([*command, str(broken)], capture_output=True, check=False).returncode != 0
