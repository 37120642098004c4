"""Stage directories are whole or invisible, and a changed byte is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from recsys_cg import artifacts
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactFormatError,
    ArtifactMissingError,
    ConfigError,
    WorkdirBusyError,
)


def make(directory: Path, **files: str) -> artifacts.Manifest:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return artifacts.seal(directory, kind="dataset", key="k1", info={"rows": 3}, seed=7)


def test_a_sealed_directory_verifies_and_tells_what_was_recorded(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1", y="22")
    manifest = artifacts.verify(tmp_path / "a", kind="dataset")
    assert manifest.info == {"rows": 3}
    assert manifest.seed == 7
    # SHA-256 of "1", from the standard's own tools
    assert manifest.files["x"] == {
        "bytes": 1,
        "sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
    }
    assert manifest.files["y"]["bytes"] == 2


def test_one_changed_byte_is_refused_naming_the_file(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1", y="22")
    (tmp_path / "a" / "y").write_text("23", encoding="utf-8")
    with pytest.raises(ArtifactCorruptError, match="y was changed"):
        artifacts.verify(tmp_path / "a")


def test_another_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1")
    (tmp_path / "a" / "x").write_text("123", encoding="utf-8")
    with pytest.raises(ArtifactCorruptError, match=r"3 bytes, its manifest says 1"):
        artifacts.verify(tmp_path / "a")


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1", y="2")
    (tmp_path / "a" / "x").unlink()
    with pytest.raises(ArtifactMissingError, match="lacks x"):
        artifacts.verify(tmp_path / "a")


def test_a_directory_without_manifest_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="no manifest"):
        artifacts.verify(tmp_path)
    with pytest.raises(ArtifactMissingError):
        artifacts.verify(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "one"}', '{"format": 1}', '{"format": 1, "bogus": 2}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / artifacts.MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactCorruptError):
        artifacts.read_manifest(tmp_path)


@pytest.mark.parametrize("change", [{"info": {"metric": "dot"}}, {"created": "1999-01-01T00:00:00Z"}, {"seed": 1}])
def test_a_changed_manifest_is_refused_as_a_changed_file_is(tmp_path: Path, change: dict) -> None:
    make(tmp_path / "a", x="1")
    path = tmp_path / "a" / artifacts.MANIFEST
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(raw | change), encoding="utf-8")
    with pytest.raises(ArtifactCorruptError, match=r"manifest\.json was changed after it was written"):
        artifacts.read_manifest(tmp_path / "a")
    path.write_text(json.dumps(raw, separators=(",", ":"), sort_keys=True), encoding="utf-8")
    artifacts.verify(tmp_path / "a")  # other white space is no change


def test_a_manifest_of_a_version_that_did_not_seal_it_is_read(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1")
    path = tmp_path / "a" / artifacts.MANIFEST
    raw = json.loads(path.read_text(encoding="utf-8"))
    del raw["sealed"]
    path.write_text(json.dumps(raw), encoding="utf-8")
    assert artifacts.verify(tmp_path / "a").sealed == ""


def test_any_info_survives_being_sealed(tmp_path: Path) -> None:
    info = {"path": tmp_path, "ünï": [0.1, 1e300, None, True], "deep": {"1": {"x": -0.0}}}
    artifacts.seal(tmp_path, kind="k", key="0", info=info)
    assert artifacts.read_manifest(tmp_path).info["path"] == str(tmp_path)


def test_a_newer_format_is_refused_and_says_upgrade(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1")
    path = tmp_path / "a" / artifacts.MANIFEST
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**raw, "format": artifacts.FORMAT + 1}), encoding="utf-8")
    with pytest.raises(ArtifactFormatError, match="upgrade"):
        artifacts.read_manifest(tmp_path / "a")


def test_another_kind_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", x="1")
    with pytest.raises(ArtifactError, match="holds a dataset, not a release"):
        artifacts.verify(tmp_path / "a", kind="release")


def test_the_digest_depends_on_contents_and_not_on_place_or_time(tmp_path: Path) -> None:
    one = make(tmp_path / "a", x="1", y="2")
    two = make(tmp_path / "deeper" / "b", x="1", y="2")
    other = make(tmp_path / "c", x="1", y="3")
    assert one.digest == two.digest != other.digest


def test_a_writer_that_raises_leaves_nothing(tmp_path: Path) -> None:
    final = tmp_path / "stages" / "one"
    with pytest.raises(ZeroDivisionError), artifacts.write_atomically(final) as temporary:
        (temporary / "x").write_text(str(1 // 0), encoding="utf-8")
    assert list((tmp_path / "stages").iterdir()) == []


def test_a_killed_writer_leaves_no_artifact_and_its_leftovers_are_removed(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from recsys_cg import artifacts
        with artifacts.write_stage(Path(sys.argv[1]), kind="dataset", key="k", inputs={}, config={}) as (where, info):
            (where / "x").write_text("half")
            print("writing", flush=True)
            time.sleep(60)
        """
    )
    final = tmp_path / "dataset" / "one"
    process = subprocess.Popen([sys.executable, "-c", script, str(final)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not final.exists()
    (leftover,) = (tmp_path / "dataset").iterdir()
    assert artifacts.remove_leftovers(tmp_path / "dataset") == [leftover]
    assert list((tmp_path / "dataset").iterdir()) == []


def test_text_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "CURRENT"
    artifacts.write_text_atomically(path, "one")
    artifacts.write_text_atomically(path, "zwei ü")
    assert path.read_text(encoding="utf-8") == "zwei ü"
    assert [entry.name for entry in path.parent.iterdir()] == ["CURRENT"]


def test_a_second_holder_of_a_workdir_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from recsys_cg.artifacts import lock_workdir\n"
        "with lock_workdir(Path(sys.argv[1])):\n  print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(WorkdirBusyError, match=f"process {process.pid}"), artifacts.lock_workdir(tmp_path):
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    with artifacts.lock_workdir(tmp_path):  # the kernel freed it
        assert str(os.getpid()) in (tmp_path / ".lock").read_text(encoding="utf-8")


def test_canonical_json_ignores_key_order_and_tells_values_apart() -> None:
    assert artifacts.digest_json({"a": 1, "b": [2]}) == artifacts.digest_json({"b": [2], "a": 1})
    assert artifacts.digest_json({"a": 1}) != artifacts.digest_json({"a": 1.5})
    assert artifacts.digest_json("ü") != artifacts.digest_json("u")


def test_sealing_records_the_seconds_it_was_given_and_a_utc_time(tmp_path: Path) -> None:
    with artifacts.write_stage(tmp_path / "a", kind="x", key="k", inputs={"d": "1"}, config={"c": 2}) as (where, info):
        (where / "f").write_text("1", encoding="utf-8")
        info["n"] = 5
    manifest = artifacts.read_manifest(tmp_path / "a", kind="x")
    assert (manifest.inputs, manifest.config, manifest.info) == ({"d": "1"}, {"c": 2}, {"n": 5})
    assert time.strptime(manifest.created, "%Y-%m-%dT%H:%M:%SZ")
    assert manifest.software["python"].startswith("3.")


@pytest.mark.parametrize("change", [{"files": []}, {"files": {"a.txt": 3}}, {"files": {"a.txt": {}}}, {"info": None}])
def test_a_manifest_with_fields_of_another_shape_is_damaged(tmp_path: Path, change: dict[str, object]) -> None:
    artifacts.seal(tmp_path, kind="dataset", key="k")
    path = tmp_path / artifacts.MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | change | {"sealed": ""}))
    with pytest.raises(ArtifactCorruptError, match=r"manifest\.json is damaged"):
        artifacts.verify(tmp_path)


def test_a_text_that_cannot_be_put_in_place_leaves_nothing_and_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(OSError, match=r"/page'$"):
        artifacts.write_text_atomically(tmp_path / "page", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_a_file_in_place_of_the_work_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for workdir in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=r"--workdir .*a file is in the way"), artifacts.lock_workdir(workdir):
            pass


def test_a_file_in_place_of_a_stage_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "stage").write_text("")
    with artifacts.write_atomically(tmp_path / "stage") as directory:
        (directory / "x").write_text("1")
    assert (tmp_path / "stage" / "x").read_text() == "1"
