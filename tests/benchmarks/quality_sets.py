"""The data sets of `bench_quality`: the shipped project files, the bench's protocol, and the datasets made of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cg.artifacts import digest_json
from recsys_cg.config import Config, load_config
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.samples import fetch_sample
from recsys_cg.workflow import dataset
from recsys_cg.workflow.project import Project, Stage, StageKey
from tests.benchmarks import quality_splits as splits

CONFIGS = Path(__file__).parents[2] / "pipelines" / "configs"
HIDDEN = 300
_HIDDEN_SEED = 300
_PROTOCOL = ("evaluation.k=[10, 100]", "evaluation.tuning_queries=5000", "serving.histories=false")


class SkippedError(Exception):
    """A set cannot be had here; the message says what to set."""


@dataclass(frozen=True)
class QualitySet:
    """A dataset and how it is measured.

    Attributes:
        name: of the set.
        config: the shipped project file with the bench's protocol over it.
        data: the dataset stage.
        protocol: what a reader should know about the split.
        hidden: item ids kept from training.
        overrides: settings of every training on this set (QUICK only).
    """

    name: str
    config: Config
    data: Stage
    protocol: Mapping[str, Any]
    hidden: tuple[str, ...] = ()
    overrides: tuple[str, ...] = field(default=())

    def configure(self, seed: int, *overrides: str) -> Config:
        """Return the project for one training; OVERRIDES of the environment (``section.key=value``) tries others."""
        trial = os.environ.get("OVERRIDES", "").split()
        sections = _load(self.name, {}, (f"project.seed={seed}", *self.overrides, *overrides, *trial))
        changes = {name: getattr(sections, name) for name in ("project", "model", "training", "index")}
        return self.config.model_copy(update=changes)


_FILES = {
    "movielens-100k": "movielens-100k.toml",
    "globo": "globo.toml",
    "online-retail": "online-retail.toml",
    "beauty": "amazon-beauty.toml",
}


def _load(name: str, paths: Mapping[str, Path], overrides: tuple[str, ...] = ()) -> Config:
    named = tuple(f"{key}={json.dumps(str(path.absolute()))}" for key, path in paths.items())
    return load_config(CONFIGS / _FILES.get(name, "movielens-1m.toml"), [*named, *_PROTOCOL, *overrides])


def _workdir(folder: Path, name: str) -> Path:
    return folder / "quality" / "work" / name


def _movielens(sample: str, folder: Path) -> dict[str, Path]:
    found = fetch_sample(sample, folder / "samples")
    return {"interactions.path": found / f"{sample}.inter", "items.path": found / f"{sample}.item"}


def _strict_time(name: str, sample: str, folder: Path, *overrides: str) -> QualitySet:
    config = _load(name, _movielens(sample, folder), ("evaluation.max_queries=1000000",))
    data = dataset.build(Project(config, _workdir(folder, name)))
    protocol = {"split": "strict time: the first 80% of the ratings train, the next 10% validate, the last 10% test"}
    return QualitySet(name, config, data, protocol, overrides=overrides)


def _leave_one_out(name: str, folder: Path, *, ties: str) -> QualitySet:
    paths = _movielens("ml-1m", folder)
    log, shift = splits.leave_one_out(splits.read_ratings(paths["interactions.path"]), ties)
    config = _rewritten(name, paths, folder, log, shift.validation_from_us, shift.test_from_us)

    def restore(directory: Path, info: dict[str, Any]) -> None:
        for split in ("validation", "test"):
            splits.rewrite_queries(directory, split, partial(splits.unshift, shift=shift))
        end = info["windows"]["train_from_us"] + shift.span_us - splits.DAY_US + 1
        info["windows"] |= dict.fromkeys(("validation_from_us", "test_from_us", "until_us"), end)

    rule = {"file": "in the order of the source file", "shuffled": "in a drawn order"}[ties]
    protocol = {"split": f"leave-one-out: a user's last rating tests, the one before validates; ties {rule}"}
    return QualitySet(name, config, _build(config, _workdir(folder, name), restore), protocol)


def _hidden(name: str, folder: Path) -> QualitySet:
    base = _strict_time("movielens-t", "ml-1m", folder)
    items, windows = Dataset.open(base.data.path).items, base.data.manifest.info["windows"]
    rated = items["item_id"].filter(pc.greater(items["train_count"], 0)).to_pylist()
    chosen = np.random.default_rng(_HIDDEN_SEED).choice(len(rated), HIDDEN, replace=False)
    hidden = sorted(rated[place] for place in chosen)
    paths, start = _movielens("ml-1m", folder), windows["validation_from_us"]
    log = splits.without_items(splits.read_ratings(paths["interactions.path"]), hidden, start)
    config = _rewritten(name, paths, folder, log, start, windows["test_from_us"])

    def leave_out(directory: Path, info: dict[str, Any]) -> None:
        known = pq.read_table(directory / "items.parquet", columns=["item_row", "item_id"])
        rows = known["item_row"].filter(pc.is_in(known["item_id"], value_set=pa.array(hidden)))
        drop = partial(splits.without_targets, rows=rows.to_numpy())
        info["queries"] |= {"validation": splits.rewrite_queries(directory, "validation", drop)}

    protocol = {
        "split": f"strict time as movielens-t, {HIDDEN} items drawn uniformly from those rated in training and taken "
        "out of training and of the validation targets; they stay candidates and history items"
    }
    return QualitySet(name, config, _build(config, _workdir(folder, name), leave_out), protocol, hidden=tuple(hidden))


def _rewritten(name: str, paths: Mapping[str, Path], folder: Path, log: pa.Table, *starts_us: int) -> Config:
    """Return the project that reads ``log`` instead of the source, validation and test windows as given."""
    path = _workdir(folder, name) / "ratings.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(log, path)
    source = ('interactions.format="parquet"', 'interactions.time_unit="us"')
    config = _load(name, {**paths, "interactions.path": path}, (*source, "evaluation.max_queries=1000000"))
    starts = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=start) for start in starts_us]
    windows = config.dataset.model_copy(update=dict(zip(("validation_from", "test_from"), starts, strict=True)))
    return config.model_copy(update={"dataset": windows})


def _build(config: Config, workdir: Path, finish: Callable[[Path, dict[str, Any]], None]) -> Stage:
    """Build the dataset as the product does, and let ``finish`` change it before it is sealed."""
    project = Project(config, workdir)
    plain = dataset.key_of(project)
    code = digest_json(Path(splits.__file__).read_text(encoding="utf-8"))
    key = StageKey("dataset", {**plain.inputs, "finished_by": finish.__name__, "code": code}, plain.config)

    def write(directory: Path) -> Mapping[str, Any]:
        from recsys_cg.beam.dataset import build_dataset

        info = build_dataset(config, directory)
        finish(directory, info)
        return info

    return project.build(key, write)


def _given(variable: str) -> Path:
    """Return the path that an environment variable holds."""
    given = os.environ.get(variable, "")
    if not given:
        raise SkippedError(f"{variable}=PATH says where the data are, and it is not set")
    if not Path(given).exists():
        raise SkippedError(f"{variable}={given}: no such file or folder")
    return Path(given)


def _beauty(name: str, folder: Path) -> QualitySet:
    given = _given("BEAUTY")
    files = [given / "Beauty.txt", given / "Beauty_item2attributes.json"]
    if missing := [file.name for file in files if not file.is_file()]:
        raise SkippedError(f"BEAUTY={given}: there is no {missing[0]}")
    log, last_us = splits.read_orders(files[0])
    attributes = json.loads(files[1].read_text(encoding="utf-8"))
    ids = pc.unique(log["item_id"]).to_pylist()
    rows = [{"item_id": one, "attributes": [f"a{value}" for value in attributes.get(one, ())]} for one in ids]
    catalogue = _workdir(folder, name) / "items.parquet"
    catalogue.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), catalogue)
    config = _rewritten(name, {"items.path": catalogue}, folder, log, last_us - splits.DAY_US, last_us)
    split = "leave-one-out: a user's last item tests, the one before validates; no times are known: all lie a day apart"
    protocol = {"split": split}
    return QualitySet(name, config, dataset.build(Project(config, _workdir(folder, name))), protocol)


def _outside(name: str, variable: str, folder: Path, *keys: str) -> QualitySet:
    given = _given(variable)
    limits = ("evaluation.max_queries=50000", "evaluation.tuning_queries=2000") if name == "globo" else ()
    config = _load(name, dict.fromkeys(keys, given), limits)
    data = dataset.build(Project(config, _workdir(folder, name)))
    split = {
        "globo": "trained up to 10-10, validated on 10-11 and 10-12, tested on 10-13 to 10-17 (days of the portal's "
        "zone); the next click from all clicks of the user strictly before it",
        "online-retail": "strict time: the first 80% of the purchases train, the next 10% validate, the last 10% test",
    }[name]
    return QualitySet(name, config, data, {"split": split})


_QUICK = ("training.max_minutes=0.3", "training.validation_queries=1000")

SETS: Mapping[str, Callable[[Path], QualitySet]] = {
    "movielens-100k": lambda folder: _strict_time("movielens-100k", "ml-100k", folder, *_QUICK),
    "movielens-t": lambda folder: _strict_time("movielens-t", "ml-1m", folder),
    "movielens-l": lambda folder: _leave_one_out("movielens-l", folder, ties="file"),
    "movielens-l-shuffled": lambda folder: _leave_one_out("movielens-l-shuffled", folder, ties="shuffled"),
    "hidden": lambda folder: _hidden("hidden", folder),
    "globo": lambda folder: _outside("globo", "GLOBO", folder, "interactions.path"),
    "online-retail": lambda folder: _outside(
        "online-retail", "ONLINE_RETAIL", folder, "interactions.path", "items.path"
    ),
    "beauty": lambda folder: _beauty("beauty", folder),
}
"""Name -> builder; a builder raises `SkippedError`, or `SourceError` where the network gives no sample."""
