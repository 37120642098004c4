"""A release of the size that `bench_serve` asks for: synthetic items, a query tower of the default architecture.

    python -m tests.benchmarks.serve_world FOLDER ITEMS         write FOLDER/release and FOLDER/histories.npz
    python -m tests.benchmarks.serve_world --tower FOLDER       export the tower (the step that loads TensorFlow)

The tower's weights are untrained. So that its queries lie where items lie, as those of a trained one do, its output
is the mean of the history with a share of what the transformer says; the work is that of the transformer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.index_data import make_embeddings

DIM, LENGTH, K = 64, 50, 100
EVENTS = ["buy", "view"]
NOW_S = 1_790_000_000
USERS, HISTORIES, TUNING = 2_000, 2_048, 1_024
NAMES = ("20260101T000000Z-00000001", "20260102T000000Z-00000002")
_SHARE_OF_TOWER = 0.3
_SAMPLE = 20_000


def item_id(row: int) -> str:
    """Return the id of the item in ``row``."""
    return f"item-{row:07d}"


def make_histories(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return int32 [count, LENGTH] distinct rows: half of them near one point of the embedding space, half anywhere."""
    rng = np.random.default_rng(seed)
    sample = rng.choice(len(vectors), min(_SAMPLE, len(vectors)), replace=False)
    points = make_embeddings(count, DIM, seed)
    histories = np.empty((count, LENGTH), np.int32)
    for start in range(0, count, 256):
        block = points[start : start + 256]
        near = sample[np.argpartition(-(block @ vectors[sample].T), LENGTH, axis=1)[:, :LENGTH]]
        for place, rows in enumerate(near, start):
            far = rng.choice(sample, LENGTH, replace=False)
            merged = np.concatenate([rows[: LENGTH // 2], np.setdiff1d(far, rows)])[:LENGTH]
            histories[place] = rng.permutation(merged)
    return histories


def make_times(count: int, seed: int) -> np.ndarray:
    """Return int64 [count, LENGTH], rising seconds before NOW_S."""
    gaps = np.random.default_rng(seed).exponential(3600.0, (count, LENGTH)).astype(np.int64) + 1
    times: np.ndarray = NOW_S - np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1]
    return times


def export_tower(folder: Path) -> None:
    """Write encoder/ below ``folder``."""
    from recsys_cg.config import ModelConfig
    from recsys_cg.model.export import export_query_tower, write_contract
    from recsys_cg.model.frameworks import tf
    from recsys_cg.model.query_tower import QueryTower

    tf.keras.utils.set_random_seed(1)

    class Mixed(QueryTower):
        def encode_last(self, history: Any, gap_s: Any, event: Any, length: Any, context: Any = None) -> Any:
            encoded = super().encode_last(history, gap_s, event, length, context)
            mean = tf.math.l2_normalize(tf.reduce_sum(history, axis=1), axis=1)
            return tf.math.l2_normalize(mean + _SHARE_OF_TOWER * encoded, axis=1)

    tower = Mixed(ModelConfig(dim=DIM), events=len(EVENTS), max_length=LENGTH)
    tower(tf.zeros((1, LENGTH, DIM)), tf.zeros((1, LENGTH)), tf.zeros((1, LENGTH), tf.int32))
    encoder = folder / "encoder"
    (encoder / "query").mkdir(parents=True)
    export_query_tower(tower, encoder, dim=DIM, max_history=LENGTH)
    write_contract(
        encoder,
        {
            "dim": DIM, "history_dim": DIM, "max_history": LENGTH, "events": EVENTS, "normalisation": "l2",
            "query_encoder": "transformer", "temperature": 0.07,
        },
    )  # fmt: skip


def write_world(folder: Path, items: int) -> None:
    """Write ``folder/release`` and ``folder/histories.npz``; a folder that holds them already is kept."""
    from recsys_cg.config import IndexConfig
    from recsys_cg.index.build import build_index
    from recsys_cg.serving.encoder import QueryEncoder
    from recsys_cg.serving.inputs import history_inputs

    if (folder / "histories.npz").is_file():
        return
    release = folder / "release"
    shutil.rmtree(release, ignore_errors=True)  # of a run that was stopped
    release.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.benchmarks.serve_world", "--tower", str(release)]
    subprocess.run(command, check=True, capture_output=True)
    vectors = make_embeddings(items, DIM, 1)
    np.save(release / "vectors.npy", vectors)
    rows, times = make_histories(vectors, HISTORIES + TUNING, 3), make_times(HISTORIES + TUNING, 4)
    encoder = QueryEncoder.open(release / "encoder")
    tensors = history_inputs(
        rows[:TUNING].ravel(), times[:TUNING].ravel() * 1_000_000, np.zeros(TUNING * LENGTH, np.int32),
        np.full(TUNING, LENGTH), np.full(TUNING, NOW_S * 1_000_000), vectors=vectors, max_history=LENGTH,
    )  # fmt: skip
    config = IndexConfig(tuning_queries=TUNING)
    info = build_index(vectors, release / "index", config=config, queries=encoder.encode(**tensors))
    _write_tables(release, items, rows[:USERS], times[:USERS])
    _seal(release, items, info)
    np.savez(folder / "histories.npz", rows=rows[TUNING:], times=times[TUNING:])


def _write_tables(release: Path, items: int, rows: np.ndarray, times: np.ndarray) -> None:
    from recsys_cg.schema import sequences_schema
    from recsys_cg.serving.histories import write_histories

    counts = (1e6 / (1.0 + np.arange(items))).astype(np.int64)
    bucket = np.where(
        np.arange(items) < items // 100, "head", np.where(np.arange(items) < items // 10, "torso", "tail")
    )
    table = {
        "item_row": pa.array(np.arange(items, dtype=np.int32)),
        "item_id": pa.array([item_id(row) for row in range(items)]),
        "title": pa.array([f"The title of item number {row}" for row in range(items)]),
        "bucket": pa.array(bucket),
        "train_count": pa.array(counts),
        "last_seen_us": pa.array(np.full(items, NOW_S * 1_000_000 - 1)),
        "q": pa.array(counts / counts.sum()),
        "available_from_us": pa.nulls(items, pa.int64()),
        "available_until_us": pa.nulls(items, pa.int64()),
        "content_digest": pa.array(["c"] * items),
        "encoder_digest": pa.array(["e" * 64] * items),
    }
    pq.write_table(pa.table(table), release / "items.parquet")
    sequences = [
        [f"user-{user}" for user in range(len(rows))], rows.tolist(), (times * 1_000_000).tolist(),
        [[0] * LENGTH] * len(rows), [[1.0] * LENGTH] * len(rows),
    ]  # fmt: skip
    write_histories(release / "histories.lmdb", [pa.table(sequences, schema=sequences_schema)], max_history=LENGTH)


def _seal(release: Path, items: int, index: dict[str, Any], name: str = NAMES[0]) -> None:
    from recsys_cg.artifacts import seal

    info = {
        "release": name, "encoder_digest": "e" * 64, "dataset_digest": "d" * 64, "index": index,
        "history_vectors": "vectors.npy", "items": items, "dim": DIM, "events": EVENTS, "max_history": LENGTH,
        "metric": "l2_normalised_dot", "windows": {}, "project": "bench",
    }  # fmt: skip
    seal(release, kind="release", key="0" * 64, info=info)


def publish_twice(world: Path, store: Path) -> None:
    """Make ``store`` with two releases of the same files under two names, the first of them published."""
    index = json.loads((world / "release" / "manifest.json").read_text(encoding="utf-8"))["info"]["index"]
    items = int(np.load(world / "release" / "vectors.npy", mmap_mode="r").shape[0])
    for name in NAMES:
        final = store / "releases" / name
        for file in (world / "release").rglob("*"):
            target = final / file.relative_to(world / "release")
            if file.is_file() and file.name != "manifest.json":
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(file)
        _seal(final, items, index, name)
    point_at(store, NAMES[0])


def point_at(store: Path, name: str) -> None:
    """Move CURRENT of ``store`` to ``name``."""
    temporary = store / "CURRENT.next"
    temporary.write_text(name + "\n", encoding="utf-8")
    temporary.replace(store / "CURRENT")


if __name__ == "__main__":
    if sys.argv[1] == "--tower":
        export_tower(Path(sys.argv[2]))
    else:
        write_world(Path(sys.argv[1]), int(sys.argv[2]))
