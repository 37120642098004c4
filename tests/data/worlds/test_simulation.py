from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from recsys_cg.config import load_config
from recsys_cg.data.worlds import WorldConfig, simulate_world
from recsys_cg.errors import ConfigError, DataError

SMALL = WorldConfig(
    seed=5, events=6000, users=300, items=200, categories=5, tags=20, epochs=12, part_rows=3000, row_group_rows=1000
)


def _read(world: Path, name: str) -> pa.Table:
    return pa.concat_tables(pq.read_table(part) for part in sorted((world / name).iterdir()))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("worlds") / "small"
    simulate_world(directory, SMALL)
    return directory


def test_world_json_counts_what_was_written(small: Path) -> None:
    description = json.loads((small / "world.json").read_text(encoding="utf-8"))
    events, impressions = _read(small, "events"), _read(small, "impressions")
    counts = description["counts"]
    assert counts["events"] == events.num_rows == pc.sum(impressions["clicked"]).as_py()
    assert counts["impressions"] == counts["shown"] == impressions.num_rows == 5 * counts["slates"]
    assert abs(counts["events"] - 6000) < 300
    assert WorldConfig.model_validate(description["config"]) == SMALL


def test_rows_are_cut_into_parts_and_row_groups(small: Path) -> None:
    files = [pq.ParquetFile(part) for part in sorted((small / "events").iterdir())]
    rows = [[file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] for file in files]
    assert rows[0] == [1000, 1000, 1000]
    assert all(group == 1000 for part in rows for group in part[:-1])


def test_events_are_not_sorted_by_time_user_or_item(small: Path) -> None:
    events = _read(small, "events")
    times = events["timestamp"].to_numpy()
    assert 0.3 < np.mean(np.diff(times) > 0) < 0.7
    assert events["user_id"].to_pylist() != sorted(events["user_id"].to_pylist())


def test_equal_parameters_give_equal_rows_however_they_are_cut(small: Path, tmp_path: Path) -> None:
    simulate_world(tmp_path / "again", SMALL.model_copy(update={"part_rows": 777, "row_group_rows": 50}))
    for name in ("events", "impressions"):
        assert _read(tmp_path / "again", name).equals(_read(small, name))
    assert pq.read_table(tmp_path / "again" / "items.parquet").equals(pq.read_table(small / "items.parquet"))


def test_another_seed_is_another_world(small: Path, tmp_path: Path) -> None:
    simulate_world(tmp_path / "other", SMALL.model_copy(update={"seed": 6}))
    assert not _read(tmp_path / "other", "events").equals(_read(small, "events"))


def test_logging_fewer_impressions_leaves_the_events_alone(small: Path, tmp_path: Path) -> None:
    simulate_world(tmp_path / "half", SMALL.model_copy(update={"impressions": 0.5}))
    simulate_world(tmp_path / "none", SMALL.model_copy(update={"impressions": 0.0}))
    assert _read(tmp_path / "half", "events").equals(_read(small, "events"))
    assert _read(tmp_path / "none", "events").equals(_read(small, "events"))
    share = _read(tmp_path / "half", "impressions").num_rows / _read(small, "impressions").num_rows
    assert 0.45 < share < 0.55
    assert _read(tmp_path / "none", "impressions").num_rows == 0


def test_nothing_is_shown_or_clicked_outside_its_availability(small: Path) -> None:
    items = pq.read_table(small / "items.parquet", columns=["item_id", "available_from", "available_until"])
    assert 0 < items["available_from"].null_count < 200
    for name in ("events", "impressions"):
        joined = _read(small, name).join(items, "item_id").to_pandas()
        assert len(joined) == _read(small, name).num_rows
        assert (joined["timestamp"] >= joined["available_from"].fillna(0)).all()
        assert (joined["timestamp"] < joined["available_until"].fillna(np.inf)).all()
    assert joined["available_from"].notna().any()


def test_a_click_follows_its_impression_within_half_a_minute(small: Path) -> None:
    shown = _read(small, "impressions").filter(_read(small, "impressions")["clicked"])
    events = _read(small, "events")
    delay = events["timestamp"].to_numpy() - shown["timestamp"].to_numpy()
    assert events["user_id"].to_pylist() == shown["user_id"].to_pylist()
    assert events["item_id"].to_pylist() == shown["item_id"].to_pylist()
    assert delay.min() >= 1
    assert delay.max() <= 30_000


def test_purchases_are_the_declared_share_of_clicks(small: Path) -> None:
    kinds = _read(small, "events")["event"].to_pylist()
    assert set(kinds) == {"click", "purchase"}
    assert abs(kinds.count("purchase") / len(kinds) - 0.05) < 5 * np.sqrt(0.05 * 0.95 / len(kinds))


def test_the_project_file_of_a_world_is_accepted_and_points_into_it(tmp_path: Path) -> None:
    simulate_world(tmp_path / "w", SMALL.model_copy(update={"events": 50, "dense_dim": 3}))
    config = load_config(tmp_path / "w" / "project.toml")
    assert config.items is not None
    assert config.impressions is not None
    assert Path(config.interactions.path) == tmp_path / "w" / "events"
    columns = pq.read_schema(tmp_path / "w" / "items.parquet").names
    assert {feature.source_column for feature in config.items.features} <= set(columns)
    assert pq.read_table(tmp_path / "w" / "items.parquet")["dense"].type == pa.list_(pa.float32(), 3)


def test_ids_and_titles_may_hold_any_character(tmp_path: Path) -> None:
    prefixes = {"user_prefix": 'ü,"\t日', "item_prefix": "0", "events": 500}
    simulate_world(tmp_path / "w", SMALL.model_copy(update=prefixes))
    events = _read(tmp_path / "w", "events")
    titles = pq.read_table(tmp_path / "w" / "items.parquet")["title"].to_pylist()
    assert all(user.startswith('ü,"\t日0') for user in events["user_id"].to_pylist())
    assert all(len(item) == 5 and item[0] == "0" for item in events["item_id"].to_pylist())
    assert any(not title.isascii() for title in titles)
    assert all(len(title.split(" ")) == 3 for title in titles)


@pytest.mark.parametrize(
    "extreme",
    [
        {"users": 1, "items": 1, "categories": 1, "tags": 1, "epochs": 1, "positions": 1, "events": 1},
        {"random_share": 1.0, "permanent_share": 0.0, "new_user_share": 1.0},
        {"random_share": 0.0, "zipf_exponent": 3.0, "incumbent_taste": 50.0},
        {"examination_exponent": 0.0, "relevance_bias": 1000.0, "content_strength": 1.0},
        {"mean_lifetime_epochs": 0.5, "content_strength": 0.0, "missing_price": 1.0, "dense_dim": 2},
    ],
)
def test_extreme_parameters_give_a_whole_world(tmp_path: Path, extreme: dict[str, float]) -> None:
    description = simulate_world(tmp_path / "w", WorldConfig(**{**SMALL.model_dump(), "events": 300, **extreme}))
    shown = _read(tmp_path / "w", "impressions")
    assert shown.num_rows == description["counts"]["shown"] > 0
    assert shown["propensity"].to_numpy().min() > 0
    assert shown["propensity"].to_numpy().max() <= 1 + 1e-12
    assert pq.read_table(tmp_path / "w" / "items.parquet").num_rows == description["config"]["items"]


def test_a_world_without_clicks_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"raise relevance_bias, which is -1000\.0"):
        simulate_world(tmp_path / "w", SMALL.model_copy(update={"relevance_bias": -1000.0}))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_something_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match="not an empty directory"):
        simulate_world(tmp_path / "w", SMALL)
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["mine.txt"]


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be written"):
        simulate_world(tmp_path / "file" / "w", SMALL)


def test_more_categories_than_items_are_refused() -> None:
    with pytest.raises(ValueError, match="a category would be empty"):
        WorldConfig(items=3, categories=4)
