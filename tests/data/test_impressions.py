from __future__ import annotations

import numpy as np
import pyarrow as pa

from recsys_cg.config import ImpressionsConfig
from recsys_cg.data.blocks import Block, empty_rejects
from recsys_cg.data.impressions import clean_impression_block, exposures_of, impressions_schema, merge_impressions
from recsys_cg.data.sequences import Timeline

CONFIG = ImpressionsConfig(
    path="i", user="u", item="i", time="t", position="p", policy="w", propensity="c", random="r", time_unit="us"
)


def _clean(rows: list[tuple[object, ...]]) -> tuple[pa.Table, list[tuple[int, str]]]:
    names = ["u", "i", "t", "p", "w", "c", "r"]
    table = pa.table(
        [pa.array([None if v is None else str(v) for v in column], pa.string()) for column in zip(*rows, strict=True)],
        names,
    )
    cleaned = clean_impression_block(Block(table, "i", np.arange(1, len(rows) + 1), empty_rejects()), CONFIG)
    assert cleaned.rows == cleaned.impressions.num_rows + cleaned.rejects.num_rows
    return cleaned.impressions, [(row["row"], row["reason"]) for row in cleaned.rejects.to_pylist()]


def test_what_is_there_and_wrong_is_refused_and_what_is_missing_is_null() -> None:
    kept, refused = _clean(
        [
            ("a", "x", 1, 0, "base", 0.5, "true"),
            ("a", "x", 1, None, None, None, None),
            (None, "x", 1, 0, "", 0.5, 1),
            ("a", None, 1, 0, "", 0.5, 1),
            ("a", "x", "noon", 0, "", 0.5, 1),
            ("a", "x", -1, 0, "", 0.5, 1),
            ("a", "x", 1, 1.5, "", 0.5, 1),
            ("a", "x", 1, 0, "", 0, 1),
            ("a", "x", 1, 0, "", 1.01, 1),
            ("a", "x", 1, 0, "", 1, "maybe"),
        ]
    )
    assert kept.to_pylist() == [
        {
            "user_id": "a",
            "item_id": "x",
            "time_us": 1,
            "position": 0,
            "policy": "base",
            "propensity": 0.5,
            "random": True,
        },
        {
            "user_id": "a",
            "item_id": "x",
            "time_us": 1,
            "position": None,
            "policy": None,
            "propensity": None,
            "random": None,
        },
    ]
    assert refused == [
        (3, "missing_user"),
        (4, "missing_item"),
        (5, "unreadable_time"),
        (6, "absurd_time"),
        (7, "bad_position"),
        (8, "bad_propensity"),
        (9, "bad_propensity"),
        (10, "bad_random"),
    ]


def test_merging_is_independent_of_order_and_counts_what_it_leaves_out() -> None:
    rows: list[tuple[object, ...]] = [("bot", "x", time, time, "", 0.5, "0") for time in range(1, 6)]
    rows += [("a", "y", 1, 0, "", 0.5, 1), ("a", "gone", 1, 0, "", 0.5, 1)]
    kept, _ = _clean(rows)
    ids = pa.array(["y", "x"])
    table, left_out = merge_impressions([kept], ids, 2)
    assert table.schema == impressions_schema
    assert left_out == {"unknown_item": 1, "max_user_events": 3}
    assert [(row["user_id"], row["item_row"], row["time_us"]) for row in table.to_pylist()] == [
        ("a", 0, 1),
        ("bot", 1, 4),
        ("bot", 1, 5),
    ]
    pieces = [kept.slice(at, 1) for at in reversed(range(kept.num_rows))]
    assert merge_impressions(pieces, ids, 2)[0].equals(table)
    assert merge_impressions([], ids, 2)[0].num_rows == 0
    by_window, left_out = merge_impressions(pieces, ids, 2, (5,))
    assert by_window["time_us"].to_pylist() == [1, 3, 4, 5]
    assert left_out == {"unknown_item": 1, "max_user_events": 2}


def _timeline(events: list[tuple[str, int, int]]) -> Timeline:
    users = sorted({user for user, _, _ in events})
    return Timeline(
        pa.array(users, pa.string()),
        np.array([users.index(user) for user, _, _ in events], dtype=np.int32),
        np.array([time for _, time, _ in events], dtype=np.int64),
        np.array([row for _, _, row in events], dtype=np.int32),
        np.zeros(len(events), dtype=np.int8),
        np.ones(len(events), dtype=np.float32),
    )


def test_an_event_gets_the_latest_impression_of_its_user_and_item_up_to_its_time() -> None:
    kept, _ = _clean(
        [
            ("a", "x", 5, 1, "", 0.1, 0),
            ("a", "x", 8, 2, "", 0.2, 1),
            ("a", "x", 11, 3, "", 0.3, 0),
            ("b", "x", 1, 4, "", 0.4, 0),
            ("nobody", "x", 1, 5, "", 0.5, 0),
        ]
    )
    impressions, _ = merge_impressions([kept], pa.array(["x", "y"]), 100)
    timeline = _timeline([("a", 4, 0), ("a", 5, 0), ("a", 10, 0), ("a", 10, 1), ("b", 99, 0), ("c", 99, 0)])
    exposures = exposures_of(timeline, impressions)
    assert exposures["position"].to_pylist() == [None, 1, 2, None, 4, None]
    assert exposures["propensity"].to_pylist() == [None, 0.1, 0.2, None, 0.4, None]
    assert exposures["random"].to_pylist() == [None, False, True, None, False, None]


def test_no_impressions_and_no_events() -> None:
    none = impressions_schema.empty_table()
    assert exposures_of(_timeline([("a", 1, 0)]), none)["position"].to_pylist() == [None]
    assert exposures_of(_timeline([]), none).num_rows == 0
