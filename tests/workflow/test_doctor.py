"""The doctor says what would fail and the one-line mend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recsys_cg.artifacts import lock_workdir
from recsys_cg.workflow.doctor import Check, examine, examine_store, examine_workdir

GOOD = {
    "tensorflow": "2.20.0",
    "tf-keras": "2.20.1",
    "tensorflow-recommenders": "0.7.7",
    "scipy": "1.17.1",
    "scann": "1.4.2",
    "apache-beam": "2.77.0",
    "ai-edge-litert": "2.3.0",
    "fastapi": "0.165.0",
    "jinja2": "3.1.6",
    "implicit": "0.7.3",
}


def versions(**changes: str | None) -> Callable[[str], str | None]:
    table: dict[str, str | None] = {**GOOD, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return table.get


def look(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_the_pinned_versions_are_fine() -> None:
    checks = examine(version_of=versions(), cpu_flags=frozenset({"avx"}), system="Linux")
    assert [check for check in checks if check.state != "ok"] == []


def test_another_tensorflow_beside_scann_fails_with_the_mend() -> None:
    checks = examine(version_of=versions(tensorflow="2.21.0", tf_keras="2.21.0"), system="Linux")
    check = look(checks, "tensorflow")
    assert check.state == "fails"
    assert check.mend == "pip install 'tensorflow~=2.20.0'"


def test_another_tensorflow_without_scann_is_fine() -> None:
    checks = examine(version_of=versions(tensorflow="2.21.0", tf_keras="2.21.0", scann=None), system="Linux")
    assert look(checks, "tensorflow").state == "ok"


@pytest.mark.parametrize("legacy", [None, "2.19.0"])
def test_missing_or_other_tf_keras_fails(legacy: str | None) -> None:
    check = look(examine(version_of=versions(tf_keras=legacy), system="Linux"), "keras 2")
    assert (check.state, check.mend) == ("fails", "pip install 'tf-keras~=2.20.0'")


def test_keras_3_put_in_force_by_the_environment_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    check = look(examine(version_of=versions(), system="Linux"), "keras 2")
    assert (check.state, check.mend) == ("fails", "unset TF_USE_LEGACY_KERAS")


def test_a_processor_without_avx_fails() -> None:
    check = look(examine(version_of=versions(), cpu_flags=frozenset({"sse2"}), system="Linux"), "processor")
    assert check.state == "fails"
    assert "AVX" in check.detail


def test_no_scann_wheel_for_the_platform_is_not_a_failure() -> None:
    check = look(examine(version_of=versions(scann=None), system="Darwin"), "scann")
    assert check.state == "absent"
    assert "exact search" in check.detail


def test_nothing_installed_is_absent_with_the_extra_that_brings_it() -> None:
    checks = examine(version_of=lambda name: None, system="Linux")
    assert {check.mend for check in checks if check.state == "absent"} == {
        f"pip install 'recsys-cg[{extra}]'" for extra in ("train", "index", "beam", "serve", "report")
    }


def test_a_store_that_is_not_there_is_not_called_whole(tmp_path: Path) -> None:
    (check,) = examine_store(str(tmp_path / "store"))
    assert (check.state, check.detail) == ("fails", f"{tmp_path / 'store'}: no such directory")


def test_what_a_killed_run_left_of_a_stage_is_named_and_removed_on_demand(tmp_path: Path) -> None:
    (missing,) = examine_workdir(tmp_path / "none")
    assert (missing.state, missing.detail) == ("fails", f"{tmp_path / 'none'}: no such directory")
    whole, half = tmp_path / "dataset" / "0a", tmp_path / "encoder" / ".partial-0b-99"
    whole.mkdir(parents=True)
    assert examine_workdir(tmp_path) == [Check("workdir", "ok", str(tmp_path))]
    half.mkdir(parents=True)
    (half / "x").touch()
    (named,) = examine_workdir(tmp_path)
    assert (named.state, named.detail) == ("absent", f"{half}: left half written by a run that was killed")
    assert named.mend == f"recsys-cg doctor --workdir {tmp_path} --mend"
    assert half.exists()
    (mended,) = examine_workdir(tmp_path, mend=True)
    assert (mended.state, mended.mend) == ("ok", "")
    assert whole.exists()
    assert not half.exists()


def test_a_stage_that_is_being_written_is_no_leftover(tmp_path: Path) -> None:
    half = tmp_path / "dataset" / ".partial-0a-1"
    half.mkdir(parents=True)
    with lock_workdir(tmp_path):
        (check,) = examine_workdir(tmp_path, mend=True)
    assert check.state == "ok"
    assert "being written" in check.detail
    assert half.exists()
