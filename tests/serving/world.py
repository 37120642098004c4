"""Releases small enough to answer by hand, written as the contract says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.artifacts import Manifest, seal
from recsys_cg.config import IndexConfig
from recsys_cg.data.content import Feature, FeatureSet
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.build import build_index
from recsys_cg.schema import sequences_schema
from recsys_cg.serving.histories import write_histories

MAX_HISTORY, DIM = 4, 4
EVENTS = ["buy", "view"]
ENCODER_DIGEST = "e" * 64
Y2020_S, Y2025_S, Y2030_S = 1_577_836_800, 1_735_689_600, 1_893_456_000
US = 1_000_000


@dataclass
class Item:
    item_id: str
    direction: Sequence[float]
    title: str | None = "a title"
    train_count: int = 0
    last_seen_s: int | None = None
    bucket: str = "cold"
    from_s: int | None = None
    until_s: int | None = None


ITEMS = (
    Item("a", (1, 0, 0, 0), "Alpha", 9, Y2020_S, "head"),
    Item("b", (0, 1, 0, 0), "Beta", 7, Y2020_S, "head"),
    Item("c", (0, 0, 1, 0), None, 7, Y2020_S + 1, "torso"),
    Item("ä/🎬", (0, 0, 0, 1), "Ünïcode <b>&amp;", 5, Y2020_S, "torso"),
    Item("ab", (1, 1, 0, 0), "Alpha Beta", 2, Y2020_S, "tail"),
    Item("ac", (1, 0, 1, 0), "Alpha Gamma", 2, Y2020_S, "tail"),
    Item("cold", (0, 1, 1, 0), "Never met"),
    Item("soon", (1, 0, 0, 1), "Opens in 2030", 3, Y2020_S, "tail", from_s=Y2030_S),
    Item("gone", (1, 0, 0, 2), "Closed in 2020", 8, Y2020_S, "head", until_s=Y2020_S),
)
SEQUENCES: tuple[tuple[str, list[int], list[int], list[int]], ...] = (
    ("ann", [1, 0, 0], [1000, 2000, 3000], [1, 0, 0]),
    ("böb", [0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1]),
    ("u" * 900, [2], [5], [0]),
    ("", [3], [7], [0]),
)
FEATURES = FeatureSet(
    (
        Feature("genre", "categorical", "genre", 2, "|", ("alpha", "beta"), hash_buckets=1),
        Feature("price", "numeric", "price", centre=10.0, scale=5.0),
    )
)


@dataclass
class World:
    """What goes into a release; change a field to break it."""

    tower: Path
    items: Sequence[Item] = ITEMS
    name: str = "20260101T000000Z-00000001"
    sequences: Sequence[tuple[str, list[int], list[int], list[int]]] | None = SEQUENCES
    info: dict[str, Any] = field(default_factory=dict)
    contract: dict[str, Any] = field(default_factory=dict)
    encoder_digests: Sequence[str] | None = None
    vectors: np.ndarray | None = None
    features: FeatureSet | None = FEATURES


def sequence_table(sequences: Sequence[tuple[str, list[int], list[int], list[int]]]) -> pa.Table:
    users, rows, times, events = ([one[place] for one in sequences] for place in range(4))
    weights = [[1.0] * len(one) for one in rows]
    return pa.table([users, rows, times, events, weights], schema=sequences_schema)


def write_release(directory: Path, world: World) -> Manifest:
    """Write and seal the release directory of ``world``."""
    encoder = directory / "encoder" / "query"
    encoder.mkdir(parents=True)
    shutil.copyfile(world.tower, encoder / "query.tflite")
    if world.features is not None:
        (directory / "encoder" / "item").mkdir()
        shutil.copyfile(world.tower.with_name("content.tflite"), directory / "encoder" / "item" / "content.tflite")
        (directory / "encoder" / "item" / "features.json").write_text(world.features.to_json())
    dim = len(world.items[0].direction) if world.items else DIM
    contract = {
        "schema": 1, "dim": dim, "history_dim": dim, "max_history": MAX_HISTORY, "events": EVENTS,
        "normalisation": "l2", "query_encoder": "sum", "temperature": 0.07,
    }  # fmt: skip
    (directory / "encoder" / "encoder.json").write_text(json.dumps(contract | world.contract))
    vectors = l2_normalise(np.array([item.direction for item in world.items], np.float32).reshape(-1, dim))
    build_index(
        vectors, directory / "index", config=IndexConfig(kind="exact"), queries=vectors[:2], buckets=None, seed=0
    )
    np.save(directory / "vectors.npy", vectors if world.vectors is None else world.vectors)
    pq.write_table(_items_table(world), directory / "items.parquet")
    if world.sequences is not None:
        write_histories(directory / "histories.lmdb", [sequence_table(world.sequences)], max_history=MAX_HISTORY)
    info = {
        "release": world.name, "encoder_digest": ENCODER_DIGEST, "dataset_digest": "d" * 64, "index": {"kind": "exact"},
        "history_vectors": "vectors.npy", "items": len(world.items), "dim": dim, "events": EVENTS,
        "max_history": MAX_HISTORY, "metric": "l2_normalised_dot", "windows": {}, "project": "test",
    }  # fmt: skip
    return seal(directory, kind="release", key="0" * 64, info=info | world.info)


def _items_table(world: World) -> pa.Table:
    items = world.items

    def micro(seconds: int | None) -> int | None:
        return None if seconds is None else seconds * US

    total = sum(item.train_count for item in items) or 1
    columns = {
        "item_row": pa.array(range(len(items)), pa.int32()),
        "item_id": pa.array([item.item_id for item in items], pa.string()),
        "title": pa.array([item.title for item in items], pa.string()),
        "bucket": pa.array([item.bucket for item in items], pa.string()),
        "train_count": pa.array([item.train_count for item in items], pa.int64()),
        "last_seen_us": pa.array([micro(item.last_seen_s) for item in items], pa.int64()),
        "q": pa.array([item.train_count / total for item in items], pa.float64()),
        "available_from_us": pa.array([micro(item.from_s) for item in items], pa.int64()),
        "available_until_us": pa.array([micro(item.until_s) for item in items], pa.int64()),
        "content_digest": pa.array(["c"] * len(items), pa.string()),
        "encoder_digest": pa.array(world.encoder_digests or [ENCODER_DIGEST] * len(items), pa.string()),
    }
    return pa.table(columns)


def publish_release(store: Path, world: World) -> Path:
    """Put a release into ``store`` and point CURRENT at it, as the store lays them out."""
    final = store / "releases" / world.name
    write_release(final, world)
    point_at(store, world.name)
    return final


def point_at(store: Path, name: str) -> None:
    temporary = store / "CURRENT.next"
    temporary.write_text(name + "\n")
    temporary.replace(store / "CURRENT")
