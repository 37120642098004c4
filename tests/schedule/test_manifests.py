"""Kubernetes manifest, systemd units and DAG file: they call commands that exist, and never try a refusal again."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from recsys_cg.errors import ConfigError, GateRefusedError
from tests.schedule.conftest import SCHEDULE

MANIFEST = SCHEDULE / "kubernetes" / "cronjobs.yaml"
UNITS = sorted((SCHEDULE / "systemd").glob("recsys-cg-*"))
NAMES = ("retrain", "refresh", "drift")
NEVER_AGAIN = sorted([ConfigError.exit_code, GateRefusedError.exit_code])


def cron_jobs() -> dict[str, dict[str, Any]]:
    documents = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
    assert [one["kind"] for one in documents] == ["PersistentVolumeClaim", "CronJob", "CronJob", "CronJob"]
    return {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "CronJob"}


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (found,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def unit(name: str) -> dict[str, dict[str, str]]:
    """Return section -> key -> value of a unit, whose keys stand once each."""
    sections: dict[str, dict[str, str]] = {}
    for line in (SCHEDULE / "systemd" / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            assert key not in current
            current[key] = value
    return sections


def test_each_cron_job_is_alone_and_bounded_and_a_refusal_is_final() -> None:
    jobs = cron_jobs()
    assert list(jobs) == [f"recsys-cg-{name}" for name in NAMES]
    for spec in jobs.values():
        job = spec["jobTemplate"]["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["timeZone"] == "Etc/UTC"
        assert job["activeDeadlineSeconds"] > 0
        (rule,) = job["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"]["operator"] == "In"
        assert rule["onExitCodes"]["values"] == NEVER_AGAIN
        assert rule["onExitCodes"]["containerName"] == container(spec)["name"]
        assert job["template"]["spec"]["restartPolicy"] == "Never"  # a pod failure policy needs it


def test_what_a_pod_mounts_is_declared() -> None:
    for spec in cron_jobs().values():
        volumes = {one["name"] for one in spec["jobTemplate"]["spec"]["template"]["spec"]["volumes"]}
        assert {one["name"] for one in container(spec)["volumeMounts"]} == volumes
        assert "/work" in [one["mountPath"] for one in container(spec)["volumeMounts"]]


def test_every_schedule_calls_commands_that_take_these_options() -> None:
    called = [container(spec)["command"] for spec in cron_jobs().values()]
    called += [unit(f"recsys-cg-{name}.service")["Service"]["ExecStart"].split() for name in NAMES]
    assert [command[1] for command in called] == ["run", "refresh", "drift"] * 2
    for command in called:
        assert command[0].endswith("recsys-cg")
        assert_takes(command[1], [word for word in command if word.startswith("--")])


def test_the_dags_call_commands_that_take_these_options() -> None:
    text = (SCHEDULE / "airflow" / "recsys_cg_dags.py").read_text(encoding="utf-8")
    names = re.findall(r'(?:call|judge)\("(\w+)"', text)
    assert names == ["publish", "dataset", "train", "index", "evaluate", "refresh", "drift"]
    for name in names:
        assert_takes(name, ["--config", "--workdir", "--json"])


def assert_takes(command: str, options: list[str]) -> None:
    import typer.main

    from recsys_cg.cli.main import app

    known = {name for one in typer.main.get_command(app).commands[command].params for name in one.opts}  # type: ignore[attr-defined]
    assert set(options) <= known


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_tries_again_except_after_a_refusal_and_a_wrong_configuration(name: str) -> None:
    service = unit(f"recsys-cg-{name}.service")["Service"]
    assert service["Type"] == "oneshot"
    assert service["Restart"] == "on-failure"
    assert sorted(map(int, service["RestartPreventExitStatus"].split())) == NEVER_AGAIN
    assert service["TimeoutStartSec"] != "infinity"
    timer = unit(f"recsys-cg-{name}.timer")
    assert timer["Timer"]["OnCalendar"].endswith("UTC")
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_units(recsys_cg: Path, tmp_path: Path) -> None:
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace("/opt/recsys-cg/bin/recsys-cg", str(recsys_cg))
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    units = sorted(str(path) for path in tmp_path.glob("recsys-cg-*.*"))
    assert len(units) == 2 * len(NAMES)
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_series_that_the_readme_names_is_written() -> None:
    from recsys_cg.evaluation import exposition

    text = (SCHEDULE / "README.md").read_text(encoding="utf-8")
    table = text.split("| series")[1].split("Alerts to start from")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    named |= set(re.findall(r"recsys_cg_drift_(\w+?)\b(?=[ {])", text))
    assert len(named) > 15
    assert named <= set(exposition._HELP)
