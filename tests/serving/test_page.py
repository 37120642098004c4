"""The page in a real browser; skipped by name where there is none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.server import Server
from tests.serving.world import World, publish_release

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
]  # fmt: skip

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: the page is not looked at")


@pytest.fixture(scope="module")
def server(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("page") / "store"
    publish_release(store, World(tower))
    with Server(store) as running:
        yield running


def dom(server: Server, fragment: str, profile: Path) -> str:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", f"{server.url}/#{fragment}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def test_a_history_is_answered_with_titles_reasons_and_the_release(server: Server, tmp_path: Path):
    page = dom(server, "item=a&item=c", tmp_path)
    assert 'data-done="5"' in page
    assert "Release 20260101T000000Z-00000001, 9 items, exact search, 4 stored histories" in page
    assert "Alpha Gamma" in page
    assert "Alpha (0.71), c (0.71)" in page
    assert "1.0000" in page
    assert "15 fewer than asked for" in page
    assert "It is not a probability" in page


def test_titles_are_text_never_markup(server: Server, tmp_path: Path):
    page = dom(server, "user=nobody", tmp_path)
    assert "no history of this user is stored" in page
    assert "Ünïcode &lt;b&gt;&amp;amp;" in page
