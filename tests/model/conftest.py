"""A small world with two tastes, a dataset of it, and one encoder trained on it, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recsys_cg.config import FeatureConfig, ModelConfig, TrainingConfig
from tests.model.datasets import write_dataset

FEATURES = [
    FeatureConfig(name="genre", kind="categorical", separator="|", hash_buckets=2),
    FeatureConfig(name="words", kind="text", column="title", hash_buckets=4),
    FeatureConfig(name="price", kind="numeric"),
    FeatureConfig(name="look", kind="dense", dim=3),
]
MODEL: dict[str, Any] = {
    "dim": 16,
    "blocks": 1,
    "negatives": [{"kind": "in_batch", "count": 64}, {"kind": "popularity", "count": 32, "alpha": 0.5}],
}
TRAINING: dict[str, Any] = {
    "epochs": 4,
    "batch_sequences": 8,
    "row_length": 24,
    "learning_rate": 0.02,
    "warmup_steps": 5,
    "validation_k": 10,
}
SEED = 7


def make_events(users: int = 150, items: int = 80, *, seed: int = 0) -> pd.DataFrame:
    """Users like even or odd items and meet them in bursts, two events a second now and then; item 79 is never met."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        liked = np.arange(user % 2, items - 2, 2)
        popularity = 1.0 / (1.0 + np.arange(len(liked)))
        chosen = rng.choice(liked, size=rng.integers(5, 30), p=popularity / popularity.sum())
        times = rng.integers(0, 1_000_000) + np.cumsum(rng.integers(0, 3, len(chosen)) * 3600)
        rows += [(f"user-{user}", f"item-{item}", int(t) * 1_000_000) for item, t in zip(chosen, times, strict=True)]
    frame = pd.DataFrame(rows, columns=["user", "item", "time_us"]).drop_duplicates()
    codes = rng.integers(0, 2, len(frame)).astype(np.int8)
    frame = frame.assign(code=codes, weight=np.where(codes == 1, 2.0, 1.0).astype(np.float32))
    frame.attrs["names"] = ["click", "purchase"]
    return frame


def make_catalogue(items: int = 80, *, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "item_id": [f"item-{item}" for item in range(items)],
            "title": [f"Thing {item} {'even' if item % 2 == 0 else 'odd'}" for item in range(items)],
            "genre": ["even|all" if item % 2 == 0 else "odd" for item in range(items)],
            "price": [None if item % 7 == 0 else float(item) for item in range(items)],
            "look": [rng.normal(size=3).astype(np.float32).tolist() for _ in range(items)],
        }
    )


@dataclass(frozen=True)
class Trained:
    dataset: Path
    directory: Path
    info: dict[str, Any]


def train(dataset: Path, home: Path, *, model: dict[str, Any] | None = None, training: dict[str, Any] | None = None,
          seed: int = SEED, filter_seen: bool = True) -> Trained:  # fmt: skip
    from recsys_cg.model.training import train_encoder

    directory = home / "encoder"
    directory.mkdir(parents=True)
    info = train_encoder(
        dataset,
        directory,
        model=ModelConfig(**{**MODEL, **(model or {})}),
        training=TrainingConfig(**{**TRAINING, **(training or {})}),
        seed=seed,
        checkpoints=home / "checkpoints",
        filter_seen=filter_seen,
    )
    return Trained(dataset, directory, info)


Train = Callable[..., Trained]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(
        tmp_path_factory.mktemp("data") / "dataset", make_events(), make_catalogue(), FEATURES, max_history=12
    )


@pytest.fixture(scope="session")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(dataset, tmp_path_factory.mktemp("trained"))
