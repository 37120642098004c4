from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.data import shards
from recsys_cg.data.shards import Shard, build_shard

Event = tuple[str, str, int, str]


def _table(events: list[Event]) -> pa.Table:
    names = ["user_id", "item_id", "time_us", "event"]
    types = [pa.string(), pa.string(), pa.int64(), pa.string()]
    columns = zip(*events, strict=True) if events else [[], [], [], []]
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)], names=names)


def _rows(shard: Shard) -> list[Event]:
    return [(row["user_id"], row["item_id"], row["time_us"], row["event"]) for row in shard.to_table().to_pylist()]


def _build(
    events: list[Event], *, most: int = 100, dedupe: bool = True, weights: dict[str, float] | None = None
) -> tuple[list[Event], dict[str, int]]:
    shard, counts = build_shard([_table(events)], max_user_events=most, dedupe=dedupe, weights=weights or {})
    return _rows(shard), counts


def test_events_are_ordered_by_user_time_and_item_id() -> None:
    rows, counts = _build(
        [("b", "x", 2, ""), ("a", "y", 5, ""), ("b", "a", 2, ""), ("a", "10", 1, ""), ("a", "9", 1, "")]
    )
    assert rows == [("a", "10", 1, ""), ("a", "9", 1, ""), ("a", "y", 5, ""), ("b", "a", 2, ""), ("b", "x", 2, "")]
    assert counts == {}


def test_one_of_equal_user_item_time_is_kept_the_heaviest_then_the_first_by_name() -> None:
    events = [("a", "x", 1, "view"), ("a", "x", 1, "buy"), ("a", "x", 1, "cart"), ("a", "x", 2, "view")]
    assert _build(events, weights={"view": 1, "buy": 3, "cart": 3}) == (
        [("a", "x", 1, "buy"), ("a", "x", 2, "view")],
        {"duplicate": 2},
    )
    assert len(_build(events, dedupe=False)[0]) == 4


def test_of_a_hot_user_the_newest_are_kept_and_the_rest_is_counted() -> None:
    events = [("bot", f"i{i}", i, "") for i in range(10)] + [("a", "x", 0, "")]
    rows, counts = _build(events, most=3)
    assert rows == [("a", "x", 0, ""), ("bot", "i7", 7, ""), ("bot", "i8", 8, ""), ("bot", "i9", 9, "")]
    assert counts == {"max_user_events": 7}


def test_each_window_keeps_its_own_newest_so_later_events_push_nothing_out() -> None:
    early = [("bot", f"i{i}", i, "") for i in range(6)] + [("a", "x", 0, "")]
    late = [("bot", f"j{i}", 10 + i, "") for i in range(4)] + [("bot", "k", 20, "")]
    for events, dropped in ((early, 4), (early + late, 6)):
        shard, counts = build_shard([_table(events)], max_user_events=2, dedupe=True, weights={}, cuts=(10, 20))
        assert [row for row in _rows(shard) if row[2] < 10] == [
            ("a", "x", 0, ""),
            ("bot", "i4", 4, ""),
            ("bot", "i5", 5, ""),
        ]
        assert counts == {"max_user_events": dropped}
    assert [row[1] for row in _rows(shard)][3:] == ["j2", "j3", "k"]


def test_result_depends_neither_on_order_nor_on_blocks_nor_on_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    events = [
        (f"u{rng.integers(4)}", f"i{rng.integers(5)}", int(rng.integers(30)), str(rng.choice(["click", "buy"])))
        for _ in range(600)
    ]
    weights = {"click": 1.0, "buy": 2.0}
    cuts = (11, 20)
    whole = build_shard([_table(events)], max_user_events=40, dedupe=True, weights=weights, cuts=cuts)
    assert whole[1]["max_user_events"] > 50
    monkeypatch.setattr(shards, "_COMPACT_ROWS", 50)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(events))
        blocks = [_table([events[at] for at in part]) for part in np.array_split(order, 17)]
        again = build_shard(iter(blocks), max_user_events=40, dedupe=True, weights=weights, cuts=cuts)
        assert _rows(again[0]) == _rows(whole[0])
        assert again[1] == whole[1]


@pytest.mark.parametrize("spread", [1, 1_000_000, 10**12])
def test_packed_and_column_sorting_agree(spread: int) -> None:
    rng = np.random.default_rng(2)
    count = 3_000
    user = (
        rng.integers(0, 2**30, count).astype(np.int32) if spread > 10**6 else rng.integers(0, 9, count).astype(np.int32)
    )
    time = rng.integers(0, 50, count) * spread
    item = rng.integers(0, 2**28 if spread > 1 else 7, count).astype(np.int32)
    rank = rng.integers(0, 3, count).astype(np.int32)
    order = np.lexsort((rank, item, time, user))
    found = shards._sort_columns(user, time, item, rank)
    for column, expected in zip(found, (user, time, item, rank), strict=True):
        assert np.array_equal(column, expected[order])


def test_a_shard_survives_saving(tmp_path: Path) -> None:
    shard, _ = build_shard(
        [_table([("ü", "a,b\n", 3, "x"), ("007", "", 1, "y")])], max_user_events=5, dedupe=True, weights={}
    )
    shard.save(tmp_path / "s")
    assert _rows(Shard.open(tmp_path / "s")) == _rows(shard) == [("007", "", 1, "y"), ("ü", "a,b\n", 3, "x")]
    assert Shard.open_times(tmp_path / "s").tolist() == [1, 3]


def test_an_empty_shard_is_a_shard(tmp_path: Path) -> None:
    shard, counts = build_shard([], max_user_events=5, dedupe=True, weights={})
    shard.save(tmp_path / "s")
    assert _rows(Shard.open(tmp_path / "s")) == []
    assert counts == {}


def test_context_stays_with_its_event_and_decides_between_equal_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    events = [
        (f"u{rng.integers(3)}", f"i{rng.integers(3)}", int(rng.integers(9)), "ab"[rng.integers(2)]) for _ in range(300)
    ]
    context = [f"{event[0]}|{event[3]}|{rng.integers(3)}" for event in events]
    table = _table(events).append_column("context", pa.array(context))
    weights = {"a": 1.0, "b": 2.0}
    whole, _ = build_shard([table], max_user_events=1000, dedupe=True, weights=weights)
    first: dict[tuple[str, str, int], tuple[float, str]] = {}
    for (user, item, time, event), text in sorted(zip(events, context, strict=True), key=lambda one: one[1]):
        key = (user, item, time)
        first[key] = min(first.get(key, (-weights[event], text)), (-weights[event], text))
    rows = whole.to_table().to_pylist()
    assert len(rows) == len({(r["user_id"], r["item_id"], r["time_us"]) for r in rows})
    assert all(first[r["user_id"], r["item_id"], r["time_us"]][1] == r["context"] for r in rows)
    monkeypatch.setattr(shards, "_COMPACT_ROWS", 50)
    blocks = [table.take(rng.permutation(300)[:0])] + [table.slice(start, 30) for start in range(270, -1, -30)]
    again, _ = build_shard(blocks, max_user_events=1000, dedupe=True, weights=weights)
    assert again.to_table().to_pylist() == rows
    whole.save(tmp_path / "s")
    assert Shard.open(tmp_path / "s").to_table().to_pylist() == rows
