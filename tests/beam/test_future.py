"""What lies in a later window changes nothing in an earlier one: the whole dataset, compared by equality."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .projects import build, read_dataset, write_project

VALIDATION_S, TEST_S, END_S = 600, 800, 1_000
PROJECT = """event = "event"
event_weights = { view = 1.0, buy = 2.0 }
[[interactions.context]]
name = "device"
kind = "categorical"
max_vocabulary = 3
[[interactions.context]]
name = "hour"
kind = "hour_of_day"
[items]
path = "items.csv"
available_from = "from"
[[items.features]]
name = "brand"
kind = "categorical"
max_vocabulary = 4
[[items.features]]
name = "price"
kind = "numeric"
[impressions]
path = "impressions.csv"
position = "position"
[dataset]
validation_from = 1970-01-01T00:10:00Z
test_from = 1970-01-01T00:13:20Z
max_user_events = 12
min_item_events = 9
min_user_events = 6
max_history = 5
"""
TRAINING_COLUMNS = ("item_id", "train_count", "train_weight", "first_seen_us", "last_seen_us", "bucket", "q", "f_brand")


def _log(rng: np.random.Generator, rows: int, start_s: int, end_s: int) -> list[str]:
    """Lines of a log with ties, repeats and two users who do far more than the others."""
    users = [f"u{min(int(n), 30)}" for n in rng.exponential(8.0, rows)]
    items = rng.integers(0, 25, rows)
    times = rng.integers(start_s, end_s, rows)
    kinds, devices = rng.choice(["view", "buy"], rows), rng.choice(["phone", "tablet", "desk", "tv", ""], rows)
    lines = [",".join(map(str, row)) for row in zip(users, items, times, kinds, devices, strict=True)]
    return lines + lines[: rows // 10]


def _shown(rng: np.random.Generator, rows: int, start_s: int, end_s: int) -> list[str]:
    columns = rng.integers(0, 9, rows), rng.integers(0, 25, rows), rng.integers(start_s, end_s, rows)
    return [f"u{user},{item},{time},{int(rng.integers(4))}" for user, item, time in zip(*columns, strict=True)]


def _build(folder: Path, log: list[str], shown: list[str]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True)
    items = [f"{n},{rng.integers(0, 900)},b{rng.integers(6)},{n * 1.5}" for n in range(40)]
    (folder / "items.csv").write_text("\n".join(["item_id,from,brand,price", *items]) + "\n")
    (folder / "impressions.csv").write_text("\n".join(["user_id,item_id,timestamp,position", *shown]) + "\n")
    events = "\n".join(["user_id,item_id,timestamp,event,device", *log]) + "\n"
    info = build(write_project(folder, PROJECT, events=events), folder / "d")
    fitted = [(folder / "d" / name).read_text() for name in ("features.json", "context.json")]
    return info, read_dataset(folder / "d"), fitted


def _before(rows: list[dict[str, Any]], end_s: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["time_us"] < end_s * 1_000_000]


@pytest.mark.parametrize("seed", range(3))
def test_later_events_change_nothing_that_is_learned_from(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log, shown = _log(rng, 700, 1, VALIDATION_S), _shown(rng, 300, 1, VALIDATION_S)
    middle, middle_shown = _log(rng, 200, VALIDATION_S, TEST_S), _shown(rng, 100, VALIDATION_S, TEST_S)
    late = [*_log(rng, 400, TEST_S, END_S), "newcomer,brand new,900,buy,watch", "newcomer,3,901,buy,watch"]
    late_shown = _shown(rng, 200, TEST_S, END_S)
    alone = _build(tmp_path / "alone", log, shown)
    more = _build(tmp_path / "more", [*middle, *log], [*middle_shown, *shown])
    whole = _build(tmp_path / "whole", [*late, *middle, *log], [*late_shown, *middle_shown, *shown])
    assert alone[0]["rows"]["filtered"].keys() == {"duplicate", "max_user_events", "min_item_events", "min_user_events"}
    for later in (more, whole):
        assert later[0]["train_events"] == alone[0]["train_events"] > 100
        assert later[1]["sequences"] == alone[1]["sequences"]
        assert later[2] == alone[2]
        for before, after in zip(alone[1]["items"], later[1]["items"], strict=False):
            if before["train_count"]:
                assert {name: after[name] for name in TRAINING_COLUMNS} == {n: before[n] for n in TRAINING_COLUMNS}
        assert _before(later[1]["impressions"], VALIDATION_S) == alone[1]["impressions"]
    assert [row["item_id"] for row in whole[1]["items"] if not row["in_catalogue"]] == ["brand new"]
    asked = [_without_rows(tables[1]["queries/validation"], tables[1]["items"]) for tables in (more, whole)]
    assert asked[0] == asked[1]
    assert len(asked[0]) > 50


def _without_rows(queries: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    """Name items by their identifiers: the rows of items without training events move when new ones appear."""
    ids = [item["item_id"] for item in items]
    named = [
        {**row, **{name: [ids[at] for at in row[name]] for name in ("targets", "history", "seen")}} for row in queries
    ]
    return sorted(json.dumps(row, sort_keys=True) for row in named)


def test_a_query_knows_only_what_came_strictly_before_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    log = _log(rng, 900, 1, END_S)
    _, tables, _ = _build(tmp_path / "a", log, _shown(rng, 50, 1, END_S))
    for split in ("validation", "test"):
        rows = tables[f"queries/{split}"]
        assert len(rows) > 50
        for row in rows:
            assert all(time < row["time_us"] for time in row["history_times_us"])
            earlier = [line.split(",") for line in log if int(line.split(",")[2]) * 1_000_000 < row["time_us"]]
            past = {item for user, item, *_ in earlier if user == row["user_id"]}
            assert {tables["items"][at]["item_id"] for at in row["seen"]} <= past
