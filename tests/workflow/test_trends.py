"""The bonus of what trends is fitted to the vectors of a release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsys_cg.config import Config
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import DataError
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.trends import TREND_BONUSES
from recsys_cg.workflow.trends import fit_trends
from tests.model.conftest import make_catalogue
from tests.model.datasets import write_dataset

ITEMS = 80


def write_fashions(directory: Path, *, share: float, fractions: tuple[float, float] = (0.8, 0.9)) -> Dataset:
    """A log in which ``share`` of the choices fall on two items that change every hour, the rest on favourites."""
    rng = np.random.default_rng(4)
    rows = []
    for hour in range(80):
        fashion = rng.choice(ITEMS, 2, replace=False)
        for step in range(30):
            user = rng.integers(40)
            item = rng.choice(fashion) if rng.random() < share else (2 * user + rng.integers(2)) % ITEMS
            rows.append((f"user-{user}", f"item-{item}", (hour * 3600 + step * 100) * 1_000_000))
    events = pd.DataFrame(rows, columns=["user", "item", "time_us"]).assign(code=np.int8(0), weight=np.float32(1.0))
    return Dataset.open(
        write_dataset(directory / "dataset", events, make_catalogue(), max_history=12, fractions=fractions)
    )


def fit(dataset: Dataset, **index: float) -> dict[str, object] | None:
    """Vectors that know favourites: items of one user lie together, and a query is the mean of the last two items."""
    number = np.array([int(name.split("-")[1]) for name in dataset.items["item_id"].to_pylist()])
    directions = l2_normalise(np.random.default_rng(0).normal(size=(ITEMS // 2, 16)))
    vectors = directions[number // 2].astype(np.float32)

    def encode(queries: pa.Table) -> np.ndarray:
        lists = queries["history"].to_pylist()
        return l2_normalise(np.stack([vectors[one[-2:]].mean(axis=0) if one else vectors[0] for one in lists]))

    config = Config.model_validate(
        {
            "project": {"name": "fashion"},
            "interactions": {"path": "x"},
            "evaluation": {"filter_seen": False},
            "index": {"k": 5, **index},
        }
    )
    found = fit_trends(config, dataset, encode, lambda: ExactRetriever(vectors), vectors=vectors, repeats=None)
    return None if found is None else dict(found)


def test_the_bonus_that_finds_most_validation_targets_is_taken(tmp_path: Path) -> None:
    found = fit(write_fashions(tmp_path, share=0.7), trend_half_life_hours=1.0)
    assert found is not None
    recalls = {float(bonus): value for bonus, value in found["validation_recall"].items()}  # type: ignore[attr-defined]
    assert tuple(recalls) == TREND_BONUSES
    assert found["half_life_hours"] == 1.0
    assert recalls[found["bonus"]] == max(recalls.values()) > recalls[0.0] + 0.2  # type: ignore[index]


def test_where_nothing_comes_and_goes_nothing_is_added(tmp_path: Path) -> None:
    found = fit(write_fashions(tmp_path, share=0.0), trend_half_life_hours=1.0)
    assert found is not None
    recalls = {float(bonus): value for bonus, value in found["validation_recall"].items()}  # type: ignore[attr-defined]
    assert recalls[0.0] >= recalls[2.0] + 0.2
    assert found["bonus"] < 0.2  # type: ignore[operator]


def test_a_bonus_that_was_given_is_kept_and_without_hours_there_is_none(tmp_path: Path) -> None:
    dataset = write_fashions(tmp_path, share=0.5)
    given = fit(dataset, trend_half_life_hours=2.0, trend_bonus=0.25)
    assert given == {"half_life_hours": 2.0, "bonus": 0.25, "validation_recall": None}
    assert fit(dataset) is None


def test_without_validation_queries_a_bonus_must_be_given(tmp_path: Path) -> None:
    dataset = write_fashions(tmp_path, share=0.5, fractions=(0.8, 0.8))
    assert not len(dataset.queries("validation"))
    with pytest.raises(DataError, match="trend_bonus"):
        fit(dataset, trend_half_life_hours=1.0)
