"""The command line: help, exit codes, and what is imported when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_cg import cli
from recsys_cg.errors import (
    ArtifactCorruptError,
    ConfigError,
    GateRefusedError,
    RecsysError,
    RepresentationCollapseError,
    UnknownKeyError,
    WorkdirBusyError,
)

COMMANDS = [
    "run",
    "dataset",
    "train",
    "index",
    "evaluate",
    "publish",
    "refresh",
    "releases",
    "rollback",
    "report",
    "history",
    "diff",
    "pin",
    "lookup",
    "similar",
    "complementary",
    "serve",
    "init",
    "sample",
    "world",
    "doctor",
]


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    assert [name for name in COMMANDS if f" {name} " not in shown] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(command, "--help") == 0
    shown = capsys.readouterr().out
    assert f"recsys-cg {command}" in shown.split("Example", 1)[1]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['recsys-cg', '--help']\n"
        "from recsys_cg.cli import main\n"
        "try:\n  main()\nexcept SystemExit: pass\n"
        "heavy = {'tensorflow', 'apache_beam', 'scann', 'numpy', 'pandas', 'pyarrow', 'pydantic', 'fastapi', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import sys, recsys_cg; print(sorted({'tensorflow', 'apache_beam', 'scann', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == "recsys-cg 0.1.0\n"


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["run", "--bogus"], ["lookup", "--k", "0"], ["lookup", "--k", "x"], ["similar"]]
)
def test_bad_usage_is_exit_code_2_and_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("recsys-cg: ")
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command", ["run", "dataset", "train", "index", "evaluate", "publish", "refresh", "releases", "lookup"]
)
def test_a_missing_project_file_is_exit_code_2_and_nothing_is_written(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(command, "--config", str(tmp_path / "no.toml"), "--workdir", str(tmp_path / "w")) == 2
    assert "no.toml: no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[interactions]\npath = "e.csv"\n[model]\ndims = 8\n', encoding="utf-8")
    assert call("run", "-c", str(path), "-w", str(tmp_path / "w")) == 2
    assert capsys.readouterr().err == f"recsys-cg: {path}: model.dims: unknown key; did you mean 'dim'?\n"
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("command", ["train", "index", "evaluate", "publish"])
def test_a_stage_whose_input_is_not_built_says_which_command_builds_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.csv").write_text("user_id,item_id,timestamp\nu,i,1\n", encoding="utf-8")
    path = tmp_path / "p.toml"
    path.write_text('[interactions]\npath = "e.csv"\n', encoding="utf-8")
    assert call(command, "-c", str(path), "-w", str(tmp_path / "w")) == 1
    assert "run `recsys-cg dataset` first" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["releases"], ["rollback"], ["report"], ["lookup"], ["similar", "x"], ["complementary", "x"]]
)
def test_a_reading_command_without_a_store_says_what_to_give(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(*command) == 2
    assert "give --store DIR" in capsys.readouterr().err


def test_history_and_user_together_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lookup", "--store", str(tmp_path), "--history", "a", "--user", "u") == 2
    assert "not both" in capsys.readouterr().err


def test_an_empty_store_has_no_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("releases", "--store", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"releases": []}
    assert call("rollback", "--store", str(tmp_path)) == 1
    assert call("report", "--store", str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RecsysError("x"), 1),
        (ArtifactCorruptError("x"), 1),
        (WorkdirBusyError("x"), 1),
        (RepresentationCollapseError("x"), 1),
        (ConfigError("x"), 2),
        (UnknownKeyError("x"), 2),
        (GateRefusedError("x"), 3),
        (KeyboardInterrupt(), 130),
        (PermissionError(13, "Permission denied", "/a/b"), 1),
        (MemoryError(), 1),
        (ZeroDivisionError("division by zero"), 1),
    ],
)
def test_every_error_becomes_its_exit_code_and_no_traceback(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("recsys_cg.workflow.doctor.examine", fail)
    assert call("doctor") == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("recsys-cg: ")
    assert "Traceback" not in captured.err


def test_a_damaged_release_is_listed_with_its_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = tmp_path / "releases" / "20260101T000000Z-0a1b2c3d"
    release.mkdir(parents=True)
    (release / "manifest.json").write_text("", encoding="utf-8")
    assert call("releases", "--store", str(tmp_path)) == 0
    assert "cannot be used: " in capsys.readouterr().out


def test_text_that_the_output_cannot_encode_is_escaped_and_json_stays_json() -> None:
    script = (
        "from recsys_cg.cli.output import accept_any_text, one_line, print_result; accept_any_text();"
        "[print_result({'id': 'ü👩\\udcff'}, as_json=flag, text=one_line('ü\\n\\x1b[31m')) for flag in (False, True)]"
    )
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, check=True)
    text, found = done.stdout.decode("ascii").splitlines()
    assert text == r"\xfc\n\x1b[31m"
    assert json.loads(found) == {"id": "ü👩\udcff"}


def test_half_a_surrogate_pair_can_be_printed_as_utf8() -> None:
    script = (
        "from recsys_cg.cli.output import accept_any_text, print_result; accept_any_text();"
        "print_result({'id': 'ü\\udcff'}, as_json=True, text='')"
    )
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout) == {"id": "ü\udcff"}


def test_with_json_a_failure_is_an_object_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("report", "--store", str(tmp_path), "--json") == 1
    seen = capsys.readouterr()
    error = json.loads(seen.out)["error"]
    assert error == {"type": "StoreError", "message": f"{tmp_path}: nothing is published yet", "exit_code": 1}
    assert seen.err == f"recsys-cg: {error['message']}\n"
