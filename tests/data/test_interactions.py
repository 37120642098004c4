from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import InteractionsConfig
from recsys_cg.data.blocks import Block, empty_rejects
from recsys_cg.data.interactions import clean_block, interaction_columns, shard_of, split_by_shard
from recsys_cg.errors import SourceError
from recsys_cg.schema import events_schema


def _config(**more: Any) -> InteractionsConfig:
    return InteractionsConfig(path="x.csv", **{"user": "u", "item": "i", "time": "t", **more})


def _block(columns: dict[str, list[Any]]) -> Block:
    table = pa.table(columns)
    return Block(table, "x.csv", np.arange(1, table.num_rows + 1), empty_rejects())


def _reasons(rejects: pa.Table) -> list[tuple[int, str]]:
    return [(row["row"], row["reason"]) for row in rejects.to_pylist()]


def test_each_fault_has_its_reason_row_and_record() -> None:
    block = _block(
        {
            "u": ["a", None, "", "b", "c", "d", "e", "f"],
            "i": ["1", "1", "1", None, "1", "1", "1", "1"],
            "t": ["1", "1", "1", "1", None, "noon", "-5", "99999999999"],
        }
    )
    cleaned = clean_block(block, _config())
    assert cleaned.events.to_pylist() == [
        {"user_id": "a", "item_id": "1", "time_us": 1_000_000, "event": "", "weight": 1}
    ]
    assert cleaned.events.schema == events_schema
    assert _reasons(cleaned.rejects) == [
        (2, "missing_user"),
        (3, "missing_user"),
        (4, "missing_item"),
        (5, "missing_time"),
        (6, "unreadable_time"),
        (7, "absurd_time"),
        (8, "absurd_time"),
    ]
    assert json.loads(cleaned.rejects["record"][4].as_py()) == {"u": "d", "i": "1", "t": "noon"}
    assert cleaned.rows == 8 == cleaned.events.num_rows + cleaned.rejects.num_rows + sum(cleaned.filtered.values())


def test_a_filtered_row_is_not_judged_further_and_types_without_weight_are_left_out() -> None:
    block = _block(
        {
            "u": ["a", None, "b", "c", None],
            "i": [1, 2, 3, 4, 5],
            "t": [1, 1, 1, 1, 1],
            "e": ["buy", "buy", "view", None, "view"],
            "q": ["1", "0", "2", "3", "x"],
        }
    )
    config = _config(event="e", event_weights={"buy": 2.5}, filters=["q > 0"])
    cleaned = clean_block(block, config)
    assert cleaned.events.to_pylist() == [
        {"user_id": "a", "item_id": "1", "time_us": 1_000_000, "event": "buy", "weight": 2.5}
    ]
    assert cleaned.filtered == {"filter": 1, "unlisted_event": 1}
    assert _reasons(cleaned.rejects) == [(4, "missing_event"), (5, "unreadable_filter_value")]


def test_unknown_items_are_refused_when_there_is_a_catalogue_to_know_them() -> None:
    block = _block({"u": ["a", "b"], "i": ["1", "2"], "t": [1, 1]})
    assert _reasons(clean_block(block, _config(), catalogue=pa.array(["2"])).rejects) == [(1, "unknown_item")]


def test_events_from_the_end_of_the_test_window_on_are_left_out() -> None:
    block = _block({"u": ["a", "b"], "i": ["1", "2"], "t": [1, 2]})
    cleaned = clean_block(block, _config(), until_us=2_000_000)
    assert (cleaned.events.num_rows, cleaned.filtered) == (1, {"after_test_until": 1})


def test_an_empty_block_is_clean() -> None:
    block = Block(
        pa.table({name: pa.array([], pa.string()) for name in "uit"}), "x", np.zeros(0, np.int64), empty_rejects()
    )
    assert clean_block(block, _config()).rows == 0


def test_columns_are_read_once() -> None:
    config = _config(event="e", filters=["q > 0", "e == 'x'", "i != '0'"])
    assert interaction_columns(config) == ["u", "i", "t", "e", "q"]


@pytest.mark.parametrize("shards", [1, 3, 50_000])
def test_a_users_rows_share_a_shard_in_their_order_and_none_is_lost(shards: int) -> None:
    users = [f"u{i % 7}" for i in range(50)]
    parts = split_by_shard(pa.table({"user_id": users, "n": list(range(50))}), shards)
    assert sorted(n for _, part in parts for n in part["n"].to_pylist()) == list(range(50))
    for shard, part in parts:
        assert set(shard_of(part["user_id"].combine_chunks(), shards).tolist()) == {shard}
        assert part["n"].to_pylist() == sorted(part["n"].to_pylist())


def test_a_column_that_cannot_be_text_is_an_error_that_names_the_file() -> None:
    table = pa.table({"user_id": [["a"]], "item_id": ["b"], "timestamp": [1]})
    block = Block(table, "folder/x.parquet", np.array([1]), empty_rejects())
    with pytest.raises(SourceError, match=r"folder/x\.parquet: column 'user_id' holds list"):
        clean_block(block, InteractionsConfig(path="folder"))
