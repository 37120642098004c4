"""The main job under Airflow 3: a weekly retraining, a daily refresh, an hourly look at drift.

Copy this file into the DAG folder. It needs Airflow and its standard provider only: every task calls the
``recsys-cg`` command, which lives in an environment of its own. Environment variables of the workers say where:

- ``RECSYS_CG_COMMAND``: the command; default ``recsys-cg``.
- ``RECSYS_CG_CONFIG``: the project file; default ``/etc/recsys-cg/project.toml``.
- ``RECSYS_CG_WORKDIR``: the work directory, seen by every worker; default ``/var/lib/recsys-cg``.
- ``RECSYS_CG_REPORTS``: where reports are kept by DAG and run; default ``reports`` in the work directory.
- ``RECSYS_CG_METRICS``: the drift figures for Prometheus; default ``metrics/recsys_cg.prom`` in the work directory.

The gate is a branch on the exit code of ``publish`` or ``refresh``. At 0 ``published`` raises the asset
``recsys_cg_release``. At 3 ``refused`` fails without a retry, so that the run is red and somebody looks; CURRENT is
as it was. Either way ``report`` keeps the report and raises the asset ``recsys_cg_report``. Any other exit code is a
failure of the task, which is tried again: a killed training resumes, and a stage that is done is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, Metadata, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

REFUSED = 3
RELEASE = Asset("recsys_cg_release")
REPORT = Asset("recsys_cg_report")
WORKDIR = "${RECSYS_CG_WORKDIR:-/var/lib/recsys-cg}"
COMMAND = "${RECSYS_CG_COMMAND:-recsys-cg}"
PROJECT = f'--config "${{RECSYS_CG_CONFIG:-/etc/recsys-cg/project.toml}}" --workdir "{WORKDIR}"'
SETTINGS: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    "catchup": False,
    "max_active_runs": 1,
    "tags": ["recsys-cg"],
    "default_args": {"retries": 2, "retry_delay": timedelta(minutes=10)},
}


def call(name: str, *, options: str = "") -> BashOperator:
    """Return the task that runs one command of ``recsys-cg``."""
    return BashOperator(task_id=name, bash_command=f"{COMMAND} {name} {PROJECT} {options}".rstrip())


def judge(name: str) -> BashOperator:
    """Return the task that runs a command with a gate and hands on the JSON that it ends with, refused or not."""
    return BashOperator(
        task_id=name,
        bash_command=f"{COMMAND} {name} {PROJECT} --json || [ $? -eq {REFUSED} ]",
        output_processor=json.loads,
    )


def is_refused(result: dict[str, Any]) -> bool:
    """Say whether a command's JSON tells of a refusal."""
    return bool(result.get("error", {}).get("exit_code") == REFUSED)


@task.branch
def gate(result: dict[str, Any]) -> list[str]:
    """Choose the branch; the report is kept on both."""
    return ["refused" if is_refused(result) else "published", "report"]


@task(outlets=[RELEASE])
def published(result: dict[str, Any]) -> Iterator[Metadata]:
    """Tell other DAGs that CURRENT moved."""
    yield Metadata(RELEASE, {"release": result["release"], "store": result["store"]})


@task
def refused(result: dict[str, Any]) -> None:
    """Fail with the reasons: the store serves what it served before."""
    raise AirflowFailException(result["error"]["message"])


@task(outlets=[REPORT])
def report(result: dict[str, Any]) -> Iterator[Metadata]:
    """Keep the page, the summary and report.json under the DAG's name and the run's."""
    told = result["error"] if is_refused(result) else result
    context = get_current_context()
    run_id = str(context["run_id"]).replace(":", "").replace("+", "-")
    default = Path(os.environ.get("RECSYS_CG_WORKDIR", "/var/lib/recsys-cg")) / "reports"
    kept = Path(os.environ.get("RECSYS_CG_REPORTS", default)) / context["dag"].dag_id / run_id
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("report.html", "report.md", "report.json"):
        shutil.copyfile(Path(told["report"]).with_name(name), kept / name)
    print(f"report: {kept / 'report.html'}")
    yield Metadata(REPORT, {"release": told["release"], "refused": is_refused(result), "path": str(kept)})


def branch(result: Any) -> None:
    """Set the branch and its ends behind the task that judged."""
    gate(result) >> [published(result), refused(result), report(result)]


with DAG(
    "recsys_cg_retrain", schedule="0 2 * * 0", doc_md="Dataset, training, index, report, gates, publish.", **SETTINGS
):
    publish = judge("publish")
    call("dataset") >> call("train") >> call("index") >> call("evaluate") >> publish
    branch(publish.output)

with DAG(
    "recsys_cg_refresh", schedule="0 4 * * 1-6", doc_md="The catalogue as it is now; nothing is trained.", **SETTINGS
):
    branch(judge("refresh").output)

with DAG("recsys_cg_drift", schedule="17 * * * *", doc_md="What is served, against its predecessor.", **SETTINGS):
    metrics = f'"${{RECSYS_CG_METRICS:-{WORKDIR}/metrics/recsys_cg.prom}}"'
    call("drift", options=f"--format prometheus --output {metrics}")
