from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.benchmarks import bench_refresh
from tests.benchmarks.refresh_world import write_portal


def test_articles_of_the_portal_are_read_from_the_day_they_appear(tmp_path: Path) -> None:
    folder = write_portal(tmp_path, days=2)
    days = [pq.read_table(path)["article_id"].to_pylist() for path in sorted(folder.iterdir())]
    assert {name.split("-")[0] for name in days[0]} == {"a0"}
    assert {name.split("-")[0] for name in days[1]} == {"a0", "a1"}


def test_without_clicks_the_bench_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QUICK", raising=False)
    monkeypatch.delenv("GLOBO", raising=False)
    with pytest.raises(SystemExit, match="GLOBO=FOLDER"):
        bench_refresh.main(tmp_path)


@pytest.mark.slow
def test_a_refresh_finds_new_articles_by_their_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", "1")
    record = json.loads(bench_refresh.main(tmp_path).read_text(encoding="utf-8"))
    for day in record["days"]:
        recall = {group: share for group, (_, share) in day["groups"]["vectors"].items()}
        assert day["folded_in"] > 0
        assert recall["folded_in"] > 0.5 * recall["learned"]
