from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.data import sequences
from recsys_cg.data.sequences import Timeline, evaluation_queries, ragged_range, training_sequences
from recsys_cg.schema import queries_schema, sequences_schema


def _timeline(events: list[tuple[str, int, int]]) -> Timeline:
    users = sorted({user for user, _, _ in events})
    ordered = sorted(events)
    return Timeline(
        pa.array(users, pa.string()),
        np.array([users.index(user) for user, _, _ in ordered], dtype=np.int32),
        np.array([time for _, time, _ in ordered], dtype=np.int64),
        np.array([item for _, _, item in ordered], dtype=np.int32),
        np.zeros(len(ordered), dtype=np.int8),
        np.ones(len(ordered), dtype=np.float32),
    )


def _queries(timeline: Timeline, start: int, end: int, targets: Literal["next", "window"], most: int = 50) -> Any:
    tables = list(evaluation_queries(timeline, start, end, targets=targets, max_history=most))
    assert all(table.schema == queries_schema for table in tables)
    return pa.concat_tables([queries_schema.empty_table(), *tables]).to_pylist()


LOG = [("a", 1, 10), ("a", 2, 11), ("a", 2, 12), ("a", 5, 10), ("a", 5, 13), ("b", 4, 20), ("b", 6, 21), ("c", 1, 30)]


def test_next_asks_one_query_an_event_and_leaves_ties_out_of_the_past() -> None:
    found = _queries(_timeline(LOG), 5, 7, "next")
    assert [(row["user_id"], row["time_us"], row["targets"], row["history"]) for row in found] == [
        ("a", 5, [10], [10, 11, 12]),
        ("a", 5, [13], [10, 11, 12]),
        ("b", 6, [21], [20]),
    ]
    assert found[0]["history_times_us"] == [1, 2, 2]
    assert found[0]["seen"] == [10, 11, 12]


def test_window_asks_one_query_a_user_at_its_first_event_with_all_later_items() -> None:
    log = [*LOG, ("a", 6, 14), ("a", 6, 13)]
    found = _queries(_timeline(log), 5, 7, "window")
    assert [(row["user_id"], row["time_us"], row["targets"]) for row in found] == [
        ("a", 5, [10, 13, 14]),
        ("b", 6, [21]),
    ]
    assert found[0]["history"] == [10, 11, 12]


def test_history_keeps_the_newest_and_counts_all_while_seen_is_distinct() -> None:
    timeline = _timeline([("a", time, time % 3) for time in range(10)] + [("a", 10, 7)])
    (row,) = _queries(timeline, 10, 11, "next", most=4)
    assert (row["history"], row["history_length"]) == ([0, 1, 2, 0], 10)
    assert row["history_times_us"] == [6, 7, 8, 9]
    assert sorted(row["seen"]) == [0, 1, 2]


def test_a_first_event_is_a_query_without_a_past() -> None:
    (row,) = _queries(_timeline([("a", 5, 1)]), 5, 6, "next")
    assert (row["history"], row["history_length"], row["seen"]) == ([], 0, [])


@pytest.mark.parametrize("targets", ["next", "window"])
def test_an_empty_window_or_log_gives_no_query(targets: Literal["next", "window"]) -> None:
    assert _queries(_timeline(LOG), 100, 200, targets) == []
    assert _queries(_timeline([]), 0, 10, targets) == []


@pytest.mark.parametrize("targets", ["next", "window"])
def test_queries_equal_a_plain_loop_whatever_the_chunks(
    targets: Literal["next", "window"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences, "_CHUNK_VALUES", 50)
    rng = np.random.default_rng(5)
    log = [(f"u{rng.integers(9)}", int(rng.integers(40)), int(rng.integers(12))) for _ in range(400)]
    timeline = _timeline(log)
    expected = []
    for user in sorted({name for name, _, _ in log}):
        own = sorted((time, item) for name, time, item in log if name == user)
        asked = [event for event in own if 25 <= event[0] < 35]
        for time, item in asked if targets == "next" else asked[:1]:
            past = [one for one in own if one[0] < time]
            wanted = [item] if targets == "next" else list(dict.fromkeys(one for _, one in asked))
            seen = list(dict.fromkeys(one for _, one in past))
            expected.append((user, time, wanted, [one for _, one in past][-7:], len(past), seen))
    found = [
        (row["user_id"], row["time_us"], row["targets"], row["history"], row["history_length"], row["seen"])
        for row in _queries(timeline, 25, 35, targets, most=7)
    ]
    assert found == expected


def test_sequences_hold_the_chosen_events_of_each_user_in_order() -> None:
    timeline = _timeline(LOG)
    table = training_sequences(timeline, timeline.time_us < 5)
    assert table.schema == sequences_schema
    assert dict(zip(table["user_id"].to_pylist(), table["item_rows"].to_pylist(), strict=True)) == {
        "a": [10, 11, 12],
        "b": [20],
        "c": [30],
    }
    assert training_sequences(timeline, timeline.time_us < 0).num_rows == 0


def test_exposures_of_targets_stand_beside_them() -> None:
    timeline = _timeline([("a", 1, 1), ("a", 5, 2), ("a", 6, 3)])
    exposures = pa.table({"propensity": [0.1, None, 0.3]})
    (table,) = evaluation_queries(timeline, 5, 9, targets="window", max_history=5, exposures=exposures)
    assert table["target_propensity"].to_pylist() == [[None, 0.3]]


def test_ragged_range_skips_empty_ranges() -> None:
    assert ragged_range(np.array([5, 9, 2]), np.array([2, 0, 3])).tolist() == [5, 6, 2, 3, 4]
