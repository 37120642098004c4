"""Small releases and reports to publish."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.geometry import l2_normalise
from recsys_cg.release.contents import release_items_schema
from recsys_cg.release.store import Store

ENCODER_FILES = {"encoder.json": '{"schema": 1, "dim": 4}', "query/query.tflite": "tower", "training.json": "{}"}


def write_release(
    directory: Path,
    name: str,
    *,
    items: int = 6,
    seed: int = 0,
    encoder: str = "a",
    vectors: np.ndarray | None = None,
    item_encoder: str | None = None,
) -> Path:
    """Write a sealed release of a few items; ``encoder`` decides the encoder's bytes and so its digest."""
    for file, text in ENCODER_FILES.items():
        path = directory / "encoder" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + encoder)
    digest = seal(directory / "encoder", kind="encoder", key=encoder).digest
    if vectors is None:
        vectors = l2_normalise(np.random.default_rng(seed).normal(size=(items, 4)))
    np.save(directory / "vectors.npy", vectors.astype(np.float32))
    pq.write_table(item_table(len(vectors), item_encoder or digest), directory / "items.parquet")
    (directory / "index").mkdir()
    (directory / "index" / "index.json").write_text('{"kind": "exact"}')
    info = {
        "release": name,
        "encoder_digest": digest,
        "dataset_digest": "d" * 64,
        "items": len(vectors),
        "dim": 4,
        "history_vectors": "vectors.npy",
        "index": {"kind": "exact"},
    }
    seal(directory, kind="release", key=name, info=info)
    return directory


def item_table(count: int, encoder_digest: str) -> pa.Table:
    columns: dict[str, Any] = {
        "item_row": range(count),
        "item_id": [f"i{row}" for row in range(count)],
        "title": [f"Item {row}" for row in range(count)],
        "bucket": ["head"] * count,
        "train_count": [count - row for row in range(count)],
        "last_seen_us": [None] * count,
        "q": [1.0 / max(count, 1)] * count,
        "available_from_us": [None] * count,
        "available_until_us": [None] * count,
        "content_digest": [f"c{row}" for row in range(count)],
        "encoder_digest": [encoder_digest] * count,
    }
    return pa.table({name: list(columns[name]) for name in release_items_schema.names}, schema=release_items_schema)


def small_report(name: str, *, recall: float = 0.4, **changes: Any) -> dict[str, Any]:
    report = {
        "schema": 1,
        "release": name,
        "protocol": {"k": [20, 100], "primary_k": 100, "candidates": 1000},
        "systems": {
            "two_tower": {
                "overall": {"queries": 50, "recall@100": {"mean": recall, "ci95": [recall - 0.1, recall + 0.1]}},
                "tail": {"queries": 9, "recall@100": {"mean": 0.2, "ci95": [0.1, 0.3]}},
            }
        },
        "coverage": {"two_tower": {"catalogue_coverage@100": 0.75}},
        "index": {"recall_vs_exact@100": 0.99},
        "gates": [{"name": "index_recall", "value": 0.99, "threshold": 0.95, "passed": True, "why": "fine"}],
        "published": True,
    }
    return {**report, **changes}


def write_report(directory: Path, report: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.json").write_text(json.dumps(report))
    (directory / "report.html").write_text("<!doctype html><title>r</title>")
    (directory / "report.md").write_text("# r")
    return directory


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", lock_timeout_s=5.0)


Publish = Callable[..., str]


@pytest.fixture
def publish(store: Store, tmp_path: Path) -> Publish:
    """Write and publish a release of the given name on top of what is current."""

    def run(name: str, *, expected: Any = ..., report: dict[str, Any] | None = None, **options: Any) -> str:
        work = tmp_path / "work" / name
        work.mkdir(parents=True)
        release = write_release(work / "release", name, **options)
        written = write_report(work / "report", report or small_report(name))
        return store.publish(release, written, expected_current=store.current() if expected is ... else expected)

    return run
