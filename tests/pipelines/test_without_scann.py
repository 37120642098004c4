"""A machine that ScaNN has no wheel for: everything works on exact search, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from recsys_cg.artifacts import read_manifest
from tests.pipelines.conftest import Site

NO_SCANN = "import sys; sys.modules['scann'] = None; from recsys_cg.cli import main; main()"


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", NO_SCANN, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def test_the_run_publishes_an_exact_release_and_says_why(copy_site: Callable[[], Site]) -> None:
    site = copy_site()
    done = call("run", *site.options("index.target_recall=0.91"), "--json")
    assert "index: exact, exact search: ScaNN cannot be imported" in done.stderr
    index = read_manifest(site.current(), kind="release").info["index"]
    assert (index["kind"], index["recall_vs_exact"]["mean"]) == ("exact", 1.0)
    report = json.loads((site.current() / "report" / "report.json").read_text(encoding="utf-8"))
    assert report["published"] is True
    assert report["index"]["is_exact"] is True
    found = json.loads(call("lookup", "--store", str(site.store), "-k", "5", "--json").stdout.splitlines()[-1])
    assert len(found["candidates"]) == 5


def test_a_release_built_with_scann_is_searched_exactly_and_the_lookup_says_so(site: Site) -> None:
    assert read_manifest(site.current(), kind="release").info["index"]["kind"] == "scann"
    done = call("similar", "--store", str(site.store), first_item(site), "-k", "5", "--json")
    assert "index: searching exactly, many times slower: ScaNN cannot be imported" in done.stderr
    assert len(json.loads(done.stdout.splitlines()[-1])["candidates"]) == 5


def first_item(site: Site) -> str:
    import pyarrow.parquet as pq

    item: str = pq.read_table(site.current() / "items.parquet")["item_id"][0].as_py()
    return item
