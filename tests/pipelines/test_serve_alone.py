"""`pip install '.[serve]'`, and nothing else, serves a release that was built elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.pipelines.conftest import Site

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the serving extra, at the versions of the lock file."""
    folder = tmp_path_factory.mktemp("bare")
    pins = re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    (folder / "pins.txt").write_text("\n".join(pins), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(folder / "pins.txt")]
    subprocess.run([*install, f"{ROOT}[serve]"], check=True, timeout=600)
    return folder / "venv" / "bin"


def test_it_brings_neither_tensorflow_nor_beam(bare: Path) -> None:
    listed = subprocess.run([bare / "python", "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    installed = {line.split()[0].lower() for line in listed.splitlines()[2:]}
    assert "recsys-cg" in installed
    assert not installed & {"tensorflow", "tf-keras", "tensorflow-recommenders", "apache-beam", "implicit"}


def test_a_release_moved_there_is_looked_up_and_served(bare: Path, site: Site, tmp_path: Path) -> None:
    asked = ["--store", str(shutil.copytree(site.store, tmp_path / "elsewhere"))]
    done = subprocess.run(
        [bare / "recsys-cg", "lookup", *asked, "-k", "5", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])["candidates"]) == 5
    process = subprocess.Popen(
        [bare / "recsys-cg", "serve", *asked, "--port", "0"], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert process.stderr is not None
        url = next(found.group() for line in process.stderr if (found := re.search(r"http://127.0.0.1:\d+", line)))
        with urllib.request.urlopen(f"{url}/v1/release", timeout=30) as answer:
            assert json.load(answer)["release"] == site.current().name
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_training_says_what_is_missing(bare: Path, site: Site, tmp_path: Path) -> None:
    done = subprocess.run(
        [bare / "recsys-cg", "train", "--config", str(site.config), "--workdir", str(tmp_path / "work")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
