"""Impressions as negatives on a simulated world, from its log to the true relevance of what is retrieved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg import artifacts
from recsys_cg.config import ModelConfig, TrainingConfig, load_config
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.worlds import Truth, WorldConfig, simulate_world
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.model.training import train_encoder
from recsys_cg.schema import EncoderFiles
from recsys_cg.serving.encoder import QueryEncoder
from recsys_cg.serving.queries import encode_queries

pytestmark = pytest.mark.slow

MODEL: dict[str, Any] = {"dim": 32, "query_encoder": "mean"}
TRAINING: dict[str, Any] = {"epochs": 5, "row_length": 50, "patience": 5}
SHARED = [{"kind": "in_batch", "count": 256}, {"kind": "popularity", "count": 256}]
CHOICES = {
    "without": SHARED,
    "with": [*SHARED, {"kind": "impressions", "per_query": 4}],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    from recsys_cg.beam.dataset import build_dataset

    folder = tmp_path_factory.mktemp("simulated")
    parameters = WorldConfig(events=25_000, users=1000, items=500, epochs=20, incumbent_taste=1.5, seed=5)
    simulate_world(folder / "world", parameters)
    (folder / "dataset").mkdir()
    info = build_dataset(load_config(folder / "world" / "project.toml"), folder / "dataset")
    artifacts.seal(folder / "dataset", kind="dataset", key="world", info=info)
    return folder / "dataset", Truth.open(folder / "world")


def true_relevance(encoder: Path, dataset: Dataset, truth: Truth, k: int) -> float:
    """Mean P(click | looked at) of the first k items that were not met yet, over 1000 test queries."""
    vectors, history = ItemEncoder.open(encoder).encode(dataset.items["item_id"], dataset.items)
    queries = dataset.queries("test")
    chosen = np.sort(np.random.default_rng(0).choice(len(queries), 1000, replace=False))
    queries = queries.take(pa.array(chosen)).combine_chunks()
    scores = encode_queries(QueryEncoder.open(encoder), history, queries) @ vectors.T
    for row, seen in enumerate(queries["seen"].to_pylist()):
        scores[row, seen] = -np.inf
    top = np.argsort(-scores, axis=1)[:, :k]
    users = np.repeat(np.array(queries["user_id"].to_pylist()), k)
    items = np.array(dataset.items["item_id"].to_pylist())[top.ravel()]
    return float(truth.relevance_of_pairs(users.tolist(), items.tolist()).mean())


def test_what_was_shown_and_skipped_teaches_without_harm(world: tuple[Path, Truth], tmp_path: Path) -> None:
    directory, truth = world
    figures = {}
    for name, negatives in CHOICES.items():
        (tmp_path / name / "encoder").mkdir(parents=True)
        info = train_encoder(
            directory,
            tmp_path / name / "encoder",
            model=ModelConfig(**MODEL, negatives=negatives),
            training=TrainingConfig(**TRAINING),
            seed=1,
            checkpoints=tmp_path / name / "checkpoints",
        )
        record = json.loads((tmp_path / name / "encoder" / EncoderFiles.TRAINING).read_text())
        relevance = true_relevance(tmp_path / name / "encoder", Dataset.open(directory), truth, 20)
        figures[name] = (info["validation_recall"], relevance, record.get("events_with_skips"), record["epochs"][-1])
        rate = figures[name][3]["examples_per_s"]
        print(f"\n{name:14s} validation recall@100 {figures[name][0]:.4f}, true relevance@20 {relevance:.4f}, "
              f"events with skips {figures[name][2]}, {rate:,.0f} examples/s")  # fmt: skip
    assert figures["without"][2] is None
    assert figures["with"][2] > 0.8
    assert figures["with"][1] > 0.97 * figures["without"][1]
