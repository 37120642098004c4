from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cg.config import FeatureConfig, ItemsConfig
from recsys_cg.data.blocks import Block, empty_rejects
from recsys_cg.data.catalogue import catalogue_columns, clean_catalogue_block, empty_catalogue, merge_catalogue
from recsys_cg.data.items import assemble_items, count_events, frequent_items, merge_item_counts
from recsys_cg.data.shards import Shard, build_shard
from recsys_cg.schema import items_schema


def _shard(events: list[tuple[str, str, int, str]]) -> Shard:
    names = ["user_id", "item_id", "time_us", "event"]
    table = pa.table([pa.array(list(column)) for column in zip(*events, strict=True)], names=names)
    return build_shard([table], max_user_events=100, dedupe=True, weights={})[0]


EVENTS = [
    ("a", "x", 1, "buy"),
    ("a", "y", 2, "view"),
    ("b", "x", 3, "view"),
    ("b", "x", 4, "view"),
    ("b", "z", 9, "view"),
]


def _counts(validation_from: int = 5) -> pa.Table:
    shard = _shard(EVENTS)
    return merge_item_counts([count_events(shard, shard.time_us < validation_from)])


def _catalogue(rows: list[dict[str, Any]], config: ItemsConfig) -> pa.Table:
    table = pa.table({name: [row.get(name) for row in rows] for name in catalogue_columns(config)})
    block = Block(table, "c.csv", np.arange(1, len(rows) + 1), empty_rejects())
    return merge_catalogue([clean_catalogue_block(block, config).items])[0]


def test_counts_do_not_depend_on_how_users_are_spread() -> None:
    whole = _counts()
    parts = []
    for user in ("a", "b"):
        shard = _shard([event for event in EVENTS if event[0] == user])
        parts.append(count_events(shard, shard.time_us < 5))
    assert (
        merge_item_counts(parts)
        .filter(pa.compute.greater(merge_item_counts(parts)["count"], 0))
        .equals(whole.filter(pa.compute.greater(whole["count"], 0)))
    )
    assert frequent_items(whole, 2).to_pylist() == ["x"]


def test_the_item_table_knows_training_time_only_and_keeps_cold_items_of_both_sides() -> None:
    config = ItemsConfig(path="c.csv", item="id", title="name")
    catalogue = _catalogue([{"id": "cold", "name": "Never met"}, {"id": "x", "name": "Ex"}], config)
    table, features = assemble_items(_counts(), catalogue, [], weights={"buy": 3.0, "view": 0.5}, validation_from_us=5)
    assert table.schema == items_schema
    assert features.features == ()
    rows = {row["item_id"]: row for row in table.to_pylist()}
    assert table["item_id"].to_pylist() == ["x", "y", "cold", "z"]
    assert table["item_row"].to_pylist() == [0, 1, 2, 3]
    assert [rows[name]["train_count"] for name in ("x", "y", "z", "cold")] == [3, 1, 0, 0]
    assert rows["x"]["train_weight"] == 3.0 + 0.5 + 0.5
    assert (rows["x"]["first_seen_us"], rows["x"]["last_seen_us"]) == (1, 4)
    assert rows["z"]["first_seen_us"] is None
    assert [rows[name]["bucket"] for name in ("x", "y", "z", "cold")] == ["head", "torso", "cold", "cold"]
    assert [rows[name]["in_catalogue"] for name in ("x", "y", "cold")] == [True, False, True]
    assert sum(table["q"].to_pylist()) == 1.0
    assert rows["x"]["title"] == "Ex"


def test_features_are_fitted_on_items_known_in_training_time() -> None:
    feature = FeatureConfig(name="kind", kind="categorical", min_items=1)
    config = ItemsConfig(path="c", item="id", available_from="since", time_unit="us", features=[feature])
    rows = [
        {"id": "x", "kind": "trained", "since": None},
        {"id": "z", "kind": "late", "since": None},
        {"id": "early", "kind": "announced", "since": 4},
        {"id": "later", "kind": "future", "since": 5},
    ]
    _, features = assemble_items(_counts(), _catalogue(rows, config), [feature], weights={}, validation_from_us=5)
    assert features.features[0].vocabulary == ("announced", "trained")


def test_without_catalogue_the_items_are_those_of_the_events() -> None:
    table, _ = assemble_items(_counts(), empty_catalogue(), [], weights={}, validation_from_us=5)
    assert table["item_id"].to_pylist() == ["x", "y", "z"]
    assert table["in_catalogue"].to_pylist() == [False, False, False]


def test_broken_catalogue_rows_are_refused_and_repeats_counted() -> None:
    features = [FeatureConfig(name="v", kind="dense", dim=2)]
    config = ItemsConfig(path="c", item="id", title="name", available_from="since", features=features)
    table = pa.table(
        {
            "id": ["a", None, "b", "c", "a"],
            "name": ["first", "x", "x", "x", "second"],
            "since": ["1", "1", "soon", None, None],
            "v": [[1.0, 2.0], None, None, [1.0], None],
        }
    )
    block = Block(table, "c.csv", np.arange(1, 6), empty_rejects())
    cleaned = clean_catalogue_block(block, config)
    assert [(row["row"], row["reason"]) for row in cleaned.rejects.to_pylist()] == [
        (2, "missing_item"),
        (3, "unreadable_time"),
        (4, "bad_vector"),
    ]
    merged, repeats = merge_catalogue([cleaned.items])
    assert merged["@title"].to_pylist() == ["first"]
    assert repeats == 1


def test_files_that_type_a_column_differently_come_together_as_text() -> None:
    config = ItemsConfig(path="c", item="id", features=[FeatureConfig(name="k", kind="categorical")])
    blocks = [
        Block(pa.table({"id": ["a"], "k": [["x", "y"]]}), "1", np.array([1]), empty_rejects()),
        Block(pa.table({"id": ["b"], "k": ["z"]}), "2", np.array([1]), empty_rejects()),
    ]
    merged, _ = merge_catalogue([clean_catalogue_block(block, config).items for block in blocks])
    assert merged["k"].to_pylist() == [["x", "y"], ["z"]]
