"""The pages in headless Chromium: no console message, nothing wider than the screen, readable in light and dark."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from recsys_cg.release.report import render_history, render_html
from tests.release.sample import sample_examples, sample_history, sample_mined, sample_report, sample_training

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

PAGES = {
    "report": lambda: render_html(
        sample_report(),
        training=sample_training(),
        examples=sample_examples(),
        history=sample_history(),
        mined=sample_mined(),
    ),
    "history": lambda: render_history(sample_history()),
}
# The page in a frame as wide as a phone or a laptop; says how wide its content is and what colour it has.
FRAME = """<!doctype html><link rel="icon" href="data:,"><title></title>
<iframe id="f" style="width:{width}px;height:800px;border:0" srcdoc="{page}"></iframe>
<script>addEventListener("load", () => {{
  const page = document.getElementById("f").contentDocument;
  for (const part of page.querySelectorAll("details")) part.open = true;
  const style = getComputedStyle(page.body);
  const plots = [...page.querySelectorAll(".strip:not(.axis)")].map(e => e.getBoundingClientRect().width);
  document.title = [page.documentElement.scrollWidth, style.backgroundColor, Math.min(...plots, 9999)].join("|");
}});</script>"""


def open_page(text: str, tmp_path: Path, *flags: str) -> tuple[str, list[str]]:
    """Return (the page after loading, console lines)."""
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    command = [str(CHROMIUM), *FLAGS, *flags, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_watch_on_the_console_sees_an_error(tmp_path: Path) -> None:
    dom, console = open_page("<script>console.error('seen'); missing()</script>", tmp_path)
    assert "missing()" in dom
    assert len(console) == 2


def test_the_report_opens_without_a_console_message(tmp_path: Path) -> None:
    dom, console = open_page(PAGES["report"](), tmp_path)
    assert console == []
    assert "</html>" in dom


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("report", 390, False), ("report", 1280, True), ("history", 390, True)]
)
def test_a_page_fits_its_screen_in_light_and_dark(name: str, width: int, dark: bool, tmp_path: Path) -> None:
    frame = FRAME.format(width=width, page=html.escape(PAGES[name]()))
    dom, console = open_page(frame, tmp_path, f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    assert console == []
    found = re.search(r"<title>(.*?)</title>", dom)
    assert found is not None
    content, colour, plot = found[1].split("|")
    assert int(content) <= width
    assert colour == ("rgb(19, 21, 24)" if dark else "rgb(255, 255, 255)")
    assert float(plot) > 90
