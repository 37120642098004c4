"""`make bench-refresh`: a release trained once and refreshed every day, measured on the day after each refresh.

    GLOBO=FOLDER python -m tests.benchmarks.bench_refresh   ten days of the news portal's clicks, one Parquet file a day
    DAYS=3 ...                                              fewer days
    QUICK=1 python -m tests.benchmarks.bench_refresh        three days of a small simulated portal, in a minute or two

The encoder is trained on the first five days and then kept. After every further day `recsys-cg refresh` builds a
release from the clicks so far, and its recall@100 is measured on the clicks of the next day, by what is asked for:
articles that the encoder learned, articles that came after its training and were clicked before the refresh, and
articles of the next day itself, which nobody could know and which are no candidates. There is no content: what a
refresh knows of a new article are its readers. Next day's clicks reach the refresh as queries to be measured on, and
those of its first hour tune the index; vectors, counts and popularity know nothing of them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.config import Config, load_config
from recsys_cg.evaluation.queries import EXCLUDE, QUERY
from recsys_cg.release.store import Store
from recsys_cg.schema import EncoderFiles, ReleaseFiles
from recsys_cg.serving.release import Release
from recsys_cg.workflow.project import Project
from recsys_cg.workflow.under_test import ReleaseUnderTest
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record
from tests.benchmarks.refresh_world import FIRST_DAY, write_portal

CONFIG = Path(__file__).parents[2] / "pipelines" / "configs" / "globo.toml"
ZONE = timezone(timedelta(hours=-3))
TRAINED_DAYS, K = 5, 100
_BATCH = 512
GROUPS = ("learned", "folded_in", "of_the_day")
_SETTINGS = (
    'evaluation.baselines=["popularity_recent"]',
    "evaluation.recent_hours=24",
    "evaluation.max_queries=5000",
    "evaluation.examples=0",
    "serving.histories=false",
    "gates.beat_baseline=off",
    "gates.max_recall_drop=off",
    "gates.max_tail_recall_drop=off",
    "store.keep=2",
)


@dataclass(frozen=True)
class Bench:
    """Where the clicks are and how the release is trained.

    Attributes:
        clicks: folder of one Parquet file a day, ``YYYY-MM-DD.parquet``.
        home: folder for everything that is built.
        days: refreshes.
        settings: overrides of the project file.
    """

    clicks: Path
    home: Path
    days: int
    settings: tuple[str, ...]

    def project(self, until: datetime) -> Project:
        """Return the project as it stands at ``until``, with the day after it to be measured on."""
        folder = self.home / "clicks"
        folder.mkdir(parents=True, exist_ok=True)
        last = (until + timedelta(days=1)).astimezone(UTC).date().isoformat()
        for path in sorted(self.clicks.glob("*.parquet")):
            if path.stem <= last and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
        windows = (
            f"dataset.validation_from={until.isoformat()}",
            f"dataset.test_from={(until + timedelta(hours=1)).isoformat()}",
            f"dataset.test_until={(until + timedelta(days=1)).isoformat()}",
        )
        return Project(self._config(folder, windows), self.home / "work")

    def _config(self, folder: Path, windows: tuple[str, ...]) -> Config:
        return load_config(
            CONFIG, [f"interactions.path={json.dumps(str(folder.absolute()))}", *_SETTINGS, *windows, *self.settings]
        )


def measure_groups(store: Store, project: Project) -> dict[str, dict[str, tuple[int, float | None]]]:
    """Return, for each of `GROUPS`, the number of targets on the next day and the share found in the first 100.

    Candidates are the articles that were clicked before the refresh; the dataset also holds those of the next day.
    ``vectors`` ranks by similarity alone, ``trends`` as the release serves, with what is clicked at the time counted.
    """
    from recsys_cg.data.dataset import Dataset

    name = store.current()
    assert name is not None
    release = Release.open(store.path_of(name))
    digest = release.manifest.info["dataset_digest"]
    paths = [path for path in (project.workdir / "dataset").iterdir() if (path / "manifest.json").exists()]
    (dataset,) = (one for one in map(Dataset.open, paths) if one.manifest.digest == digest)
    queries = dataset.queries("test")
    drawn = np.sort(np.random.default_rng(0).permutation(len(queries))[:5000])
    systems = {
        "vectors": ReleaseUnderTest(release, dataset.items, dataset.events).system("two_tower", 0),
        "trends": ReleaseUnderTest.of(release, dataset).system("two_tower", 0),
    }
    sample = queries.take(pa.array(drawn)).append_column(QUERY, pa.array(drawn.astype(np.int64)))
    sample = sample.append_column(EXCLUDE, sample["seen"]).combine_chunks()
    parts = [sample.slice(start, _BATCH).combine_chunks() for start in range(0, len(sample), _BATCH)]
    counts, ids = dataset.items["train_count"].to_numpy(), dataset.items["item_id"].to_pylist()
    learned = set(pq.read_table(release.path / ReleaseFiles.ENCODER / EncoderFiles.ITEM_IDS)["item_id"].to_pylist())
    measured = {}
    for ranked_by, system in systems.items():
        found = np.concatenate([system.recommend(part, K, counts > 0) for part in parts])
        hits: dict[str, list[bool]] = {group: [] for group in GROUPS}
        for row, targets in zip(found, sample["targets"].to_pylist(), strict=True):
            for target in targets:
                group = "learned" if ids[target] in learned else "folded_in" if counts[target] else "of_the_day"
                hits[group].append(bool((row == target).any()))
        measured[ranked_by] = {group: (len(one), float(np.mean(one)) if one else None) for group, one in hits.items()}
    return measured


def run(bench: Bench, first_day: datetime) -> list[dict[str, Any]]:
    """Train on the first days, then refresh day by day; return one row a day."""
    from recsys_cg.workflow.refresh import refresh
    from recsys_cg.workflow.run import run as walk

    trained_until = first_day + timedelta(days=TRAINED_DAYS)
    project = bench.project(trained_until)
    store = Store(project.store_path)
    if store.current() is None:
        walk(project)
    rows = []
    for day in range(1, bench.days + 1):
        until = trained_until + timedelta(days=day)
        project = bench.project(until)
        wall, cpu = time.perf_counter(), time.process_time()
        result = refresh(project)
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        info = Release.open(store.path_of(result["release"])).manifest.info
        groups = measure_groups(store, project)
        recent = store.report_of(result["release"])["systems"]["popularity_recent"]["overall"][f"recall@{K}"]["mean"]
        rows.append({"measured_on": until.date().isoformat(), **seconds, "items": info["items"]})
        rows[-1] |= {"kept": info["reused_vectors"], "folded_in": info["folded_in"], "groups": groups, "recent": recent}
        print(rows[-1], flush=True)
    return rows


def make_figures(rows: list[dict[str, Any]]) -> list[Figure]:
    """Return recall by group, seconds and vectors, over the days."""
    figures = []
    for group in GROUPS:
        for ranked_by, shown in (("vectors", ""), ("trends", "with_trends_")):
            values = [row["groups"][ranked_by][group][1] for row in rows]
            values = [value for value in values if value is not None]
            if values and group != "of_the_day":
                figures.append(measure_figure(f"next_day_recall@{K}_{shown}{group}", values, "share"))
        parts = [row["groups"]["vectors"] for row in rows]
        shares = [part[group][0] / sum(one[0] for one in part.values()) for part in parts]
        figures.append(measure_figure(f"share_of_next_day_{group}", shares, "share"))
    figures.append(
        measure_figure(f"next_day_recall@{K}_popularity_of_24_hours", [row["recent"] for row in rows], "share")
    )
    units = {"seconds": "s", "cpu_seconds": "s", "items": "vectors", "kept": "vectors", "folded_in": "vectors"}
    return figures + [measure_figure(f"refresh_{name}", [row[name] for row in rows], units[name]) for name in units]


def main(folder: Path = FOLDER) -> Path:
    """Run the benchmark and write ``folder/refresh.json``."""
    started = time.monotonic()
    quick = os.environ.get("QUICK") == "1"
    if not quick and "GLOBO" not in os.environ:
        raise SystemExit("say where the clicks are: GLOBO=FOLDER make bench-refresh; or QUICK=1 for a simulated portal")
    name = "refresh-quick" if quick else "refresh"
    home = folder / name
    shutil.rmtree(home, ignore_errors=True)
    if quick:
        clicks, first = write_portal(home / "portal", days=TRAINED_DAYS + 5), FIRST_DAY
        settings = ("training.epochs=6", "training.validation_queries=500", "dataset.shards=2", "model.dim=32")
        bench = Bench(clicks, home, 3, settings)
    else:
        clicks, first = Path(os.environ["GLOBO"]), datetime(2017, 10, 1, tzinfo=ZONE)
        settings = ("training.epochs=4", "training.max_minutes=6", *os.environ.get("OVERRIDES", "").split())
        bench = Bench(clicks, home, int(os.environ.get("DAYS", "10")), settings)
    rows = run(bench, first)
    return write_record(name, make_figures(rows), started, folder, days=rows)


if __name__ == "__main__":
    main()
