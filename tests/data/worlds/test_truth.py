from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cg.data.worlds import Truth, WorldConfig, simulate_world
from recsys_cg.errors import DataError

CONFIG = WorldConfig(
    events=200, users=20, items=60, categories=3, tags=9, epochs=10, permanent_share=0.2, mean_lifetime_epochs=2.0
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("truth") / "w"
    simulate_world(directory, CONFIG)
    return directory


def test_relevance_is_the_documented_function_of_the_stored_factors(world: Path) -> None:
    user = pq.read_table(world / "truth" / "users.parquet").to_pylist()[7]
    item = pq.read_table(world / "truth" / "items.parquet").to_pylist()[31]
    inner = sum(a * b for a, b in zip(user["factors"], item["factors"], strict=True))
    expected = 1 / (1 + math.exp(-(-2.0 + 1.5 * inner + item["quality"])))
    truth = Truth.open(world)
    assert truth.relevance(["u0007"], ["i0031"]).tolist() == [[pytest.approx(expected, rel=1e-9)]]
    assert truth.relevance_of_pairs(["u0007"], ["i0031"]).tolist() == [pytest.approx(expected, rel=1e-9)]


def test_pairs_are_the_diagonal_of_the_matrix(world: Path) -> None:
    truth = Truth.open(world)
    users, items = ["u0003", "u0001", "u0003"], ["i0000", "i0059", "i0000"]
    matrix = truth.relevance(users, items)
    assert matrix.shape == (3, 3)
    np.testing.assert_allclose(truth.relevance_of_pairs(users, items), np.diag(matrix), rtol=1e-12)
    assert truth.relevance([], items).shape == (0, 3)


def test_best_items_are_those_of_highest_relevance_that_are_there(world: Path) -> None:
    truth = Truth.open(world)
    everything = truth.item_ids.to_pylist()
    scores = truth.relevance(["u0002"], everything)[0]
    by_hand = [name for _, name in sorted(zip(-scores, everything, strict=True))]
    assert truth.best_items("u0002", 5) == by_hand[:5]
    assert truth.best_items("u0002", 1000) == by_hand
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=4, hours=5)
    items = pq.read_table(world / "items.parquet").to_pandas()
    milliseconds = at.timestamp() * 1000
    is_there = (items["available_from"].fillna(0) <= milliseconds) & (
        milliseconds < items["available_until"].fillna(np.inf)
    )
    there = set(items["item_id"][is_there])
    assert 3 <= len(there) < 60
    assert truth.best_items("u0002", 1000, at=at) == [name for name in by_hand if name in there]


def test_strangers_are_named(world: Path) -> None:
    truth = Truth.open(world)
    with pytest.raises(DataError, match="user 'nobody' is not of this world"):
        truth.relevance(["u0001", "nobody"], ["i0001"])
    with pytest.raises(DataError, match="item 'u0001' is not of this world"):
        truth.relevance(["u0001"], ["u0001"])
    with pytest.raises(DataError, match="as many users as items"):
        truth.relevance_of_pairs(["u0001"], [])


def test_a_folder_without_a_world_is_one_error(tmp_path: Path, world: Path) -> None:
    with pytest.raises(DataError, match="no whole world"):
        Truth.open(tmp_path)
    (tmp_path / "world.json").write_text((world / "world.json").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "users.parquet").write_bytes(b"PAR1 not a parquet file")
    with pytest.raises(DataError, match="no whole world"):
        Truth.open(tmp_path)
