from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from recsys_cg.model.audit import Audit, Later, audit_mined, share_interval
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.mining import Search
from recsys_cg.schema import EncoderFiles, queries_schema, sequences_schema
from tests.model.conftest import MODEL, train
from tests.model.test_inputs import table
from tests.model.test_validation import VECTORS, Mirror

IDS = ["a", "b", "c", "d", "e"]
TITLES = ["Anchor", "Bee", "See, with comma", None, "É"]


def asked(targets: dict[str, list[int]]) -> pa.Table:
    """Validation queries of (user, targets)."""
    empty = {"history": [], "history_times_us": [], "history_events": [], "history_length": 0, "seen": []}
    rows = [{"user_id": user, "time_us": 9, "targets": rows, **empty} for user, rows in targets.items()]
    return pa.Table.from_pylist(rows, schema=queries_schema)


def audit(users: list[tuple[list[int], list[int]]], validation: dict[str, list[int]], band: tuple[int, int]) -> Audit:
    sequences = table(users)
    search = Search(Mirror(), Sequences.from_tables([sequences]), VECTORS, VECTORS, band=band, max_history=3, seed=0)
    return audit_mined(search, Later.from_tables([sequences], asked(validation)), (IDS, TITLES))


def test_items_met_later_in_training_or_validation_are_flagged() -> None:
    # The only query: after item 0. By similarity come 1, 2, 3, 4; item 2 is met later in training, 3 in validation.
    found = audit([([0, 2], [1, 2])], {"u0": [3], "nobody of training": [1]}, band=(1, 4))
    rows = found.table.to_pylist()
    assert [(row["mined_item_id"], row["rank"], row["later_interacted"]) for row in rows] == [
        ("b", 1, False),
        ("c", 2, True),
        ("d", 3, True),
        ("e", 4, False),
    ]
    assert rows[0]["score"] == pytest.approx(np.cos(0.1), abs=1e-4)
    assert {row["anchor_titles"] for row in rows} == {"Anchor"}
    assert [row["mined_title"] for row in rows] == ["Bee", "See, with comma", "d", "É"]
    assert (found.record["sampled"], found.record["later_interacted"]) == (4, 2)
    assert found.record["false_negative_share"] == 0.5


def test_ranks_count_from_the_start_of_the_band_and_end_with_the_catalogue() -> None:
    found = audit([([0, 2], [1, 2])], {}, band=(3, 50))
    assert [(row["mined_item_id"], row["rank"]) for row in found.table.to_pylist()] == [("d", 3), ("e", 4)]
    assert found.sampled == 2


def test_a_band_past_the_catalogue_or_no_query_gives_an_empty_audit_and_no_share() -> None:
    for found in (audit([([0, 2], [1, 2])], {}, band=(9, 9)), audit([([2], [1])], {}, band=(1, 3))):
        assert found.record == {
            "anchors": found.anchors,
            "sampled": 0,
            "later_interacted": 0,
            "false_negative_share": None,
            "ci95": None,
        }
        assert found.table.num_rows == 0


def test_titles_are_the_last_five_of_the_history_oldest_first() -> None:
    found = audit([([4, 0, 1, 2], [1, 2, 3, 4])], {}, band=(1, 1))
    history = found.table["anchor_titles"][0].as_py().split(" | ")
    assert history == [title or "d" for title in (TITLES[item] for item in (4, 0, 1))][: len(history)]


def test_the_interval_of_one_pair_a_query_is_wilsons() -> None:
    # 20 of 100: (0.2 + 1.92073/100 -+ 1.959964 sqrt(0.0016 + 0.960365/10000)) / (1 + 3.841459/100).
    half = 1.959964 * np.sqrt(0.16 / 100 + 3.841459 / 40000)
    bounds = [(0.2 + 3.841459 / 200 + sign * half) / (1 + 3.841459 / 100) for sign in (-1, 1)]
    hits = np.arange(100) < 20
    assert share_interval(np.ones(100, int), hits.astype(int)) == pytest.approx(bounds, abs=2e-3)


def test_hits_that_come_together_make_the_interval_wider() -> None:
    sizes = np.full(50, 10)
    spread, together = np.full(50, 2), np.where(np.arange(50) < 10, 10, 0)
    narrow, wide = share_interval(sizes, spread), share_interval(sizes, together)
    assert narrow is not None
    assert wide is not None
    assert wide[1] - wide[0] > 2.5 * (narrow[1] - narrow[0])
    # All ten pairs of a query are alike: as 10 hits among 50.
    single = share_interval(np.ones(50, int), (np.arange(50) < 10).astype(int))
    assert wide == pytest.approx(single, abs=1e-6)


@pytest.mark.parametrize(("sizes", "hits"), [([3], [1]), ([3, 0], [0, 0]), ([2, 2], [2, 2]), ([5] * 9, [1] * 9)])
def test_the_interval_holds_the_share_at_every_extreme(sizes: list[int], hits: list[int]) -> None:
    interval = share_interval(np.array(sizes), np.array(hits))
    assert interval is not None
    assert 0.0 <= interval[0] <= sum(hits) / sum(sizes) <= interval[1] <= 1.0
    assert interval[0] < interval[1]


def test_users_without_validation_queries_and_queries_without_training_are_passed_over() -> None:
    users = pa.concat_tables([table([([1], [1])]), sequences_schema.empty_table()])
    later = Later.from_tables([users], asked({"u7": [1], "u0": [4, 2]}))
    assert later.of(0).tolist() == [4, 2]
    assert Later.from_tables([users], queries_schema.empty_table()).of(0).tolist() == []


@pytest.mark.slow
def test_training_with_mined_negatives_writes_the_audit(dataset: Path, tmp_path: Path) -> None:
    mined = {"kind": "mined", "count": 32, "warmup_epochs": 2, "first_rank": 3, "last_rank": 12}
    trained = train(dataset, tmp_path, model={"negatives": [*MODEL["negatives"], mined]})
    record = json.loads((trained.directory / EncoderFiles.TRAINING).read_text())
    assert [epoch["mined"] is not None for epoch in record["epochs"]] == [False, True, True, True]
    assert record["epochs"][2]["candidates"] > record["epochs"][0]["candidates"] + 20
    assert 0.0 <= record["epochs"][3]["mined"]["estimated_false_negative_share"] <= 1.0
    summary = record["mined_negatives"]
    assert summary["sampled"] == 10 * summary["anchors"]
    assert summary["false_negative_share"] == summary["later_interacted"] / summary["sampled"]
    assert summary["ci95"][0] <= summary["false_negative_share"] <= summary["ci95"][1]
    table = pyarrow.csv.read_csv(trained.directory / EncoderFiles.MINED_NEGATIVES)
    assert table.column_names == [
        "anchor_titles",
        "mined_item_id",
        "mined_title",
        "score",
        "rank",
        "later_interacted",
    ]
    assert table.num_rows == 500
