"""Every command in the README runs, in the order in which a reader meets it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
RUN_ELSEWHERE = ("make ", "pip install ")
"""Setting up, the demo, the suites and the benches: CI, `make test-slow` and tests/pipelines/test_serve_alone.py."""

RUN_HERE = ("recsys-cg ", "curl ")

QUICK = {"epochs": "3", "beat_baseline": '"off"', "min_index_recall": "0.5"}
"""What a reader with so little data would set, too."""


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[str]:
    blocks = blocks_of("console")
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def test_every_make_target_named_in_the_readme_exists() -> None:
    named = {match for line in commands() for match in re.findall(r"^make ([a-z-]+)", line)}
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name for name in named if f"  {name} " not in listed} == set()


def test_every_command_is_run_by_some_test() -> None:
    assert [line for line in commands() if not line.startswith((*RUN_ELSEWHERE, *RUN_HERE))] == []


def test_every_file_that_the_readme_links_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_every_extra_that_the_readme_installs_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {name for extras in re.findall(r"pip install '\.\[([a-z,]+)\]'", text) for name in extras.split(",")}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert named
    assert named <= set(declared)


@pytest.fixture(scope="module")
def shop(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it: events.csv and catalogue.csv."""
    folder = tmp_path_factory.mktemp("shop")
    csv.write_csv(pq.read_table(world / "events"), folder / "events.csv")
    csv.write_csv(pq.read_table(world / "items.parquet"), folder / "catalogue.csv")
    return folder


@pytest.mark.timeout(600)
def test_the_commands_for_own_files_run_in_order(shop: Path) -> None:
    mine = [line for line in commands() if line.startswith("recsys-cg ")]
    assert any(line.startswith("recsys-cg run") for line in mine)
    for line in mine:
        arguments = shlex.split(with_items(line, shop))[1:]
        if arguments[0] == "serve":
            serve(shop, arguments)
            continue
        done = subprocess.run(command(arguments), cwd=shop, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr[-3000:]}"
        if arguments[0] == "init":
            project = shop / "shop.toml"
            text = project.read_text(encoding="utf-8")
            for key, value in QUICK.items():
                text, changed = re.subn(rf"^# {key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
                assert changed == 1, key
            project.write_text(text, encoding="utf-8")


def with_items(text: str, shop: Path) -> str:
    """Put two items of the dataset, where there is one, in the place of ITEM_ID and OTHER_ID."""
    if not (shop / "work" / "dataset").exists():
        return text
    known = pq.read_table(next((shop / "work" / "dataset").glob("*/items.parquet")))["item_id"]
    return text.replace("ITEM_ID", known[0].as_py()).replace("OTHER_ID", known[1].as_py())


def run_snippet(snippet: str, shop: Path) -> str:
    done = subprocess.run([sys.executable, "-c", snippet], cwd=shop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{snippet}\n{done.stderr[-3000:]}"
    return done.stdout


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-c", "from recsys_cg.cli import main; main()", *arguments]


def serve(shop: Path, arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command([*arguments, "--port", "0"]), cwd=shop, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    url = next(found.group() for line in process.stderr if (found := re.search(r"http://127.0.0.1:\d+", line)))
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                assert answer.status == 200
                break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    with urllib.request.urlopen(f"{url}/v1/release", timeout=5) as answer:
        assert json.load(answer)["release"]
    for line in (line for line in commands() if line.startswith("curl ")):
        asked = shlex.split(with_items(line, shop).replace("http://127.0.0.1:8080", url))
        answered = subprocess.run([asked[0], "--fail", *asked[1:]], capture_output=True, text=True, check=True).stdout
        assert json.loads(answered)["candidates"], line
    for snippet in blocks_of("python"):
        assert run_snippet(with_items(snippet, shop).replace("http://127.0.0.1:8080", url), shop), snippet
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode in (0, -signal.SIGTERM)  # uvicorn drains, then lets the signal through
