from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import load_config
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import SourceError
from recsys_cg.schema import queries_schema
from tests.benchmarks import bench_quality
from tests.benchmarks import quality_splits as splits
from tests.benchmarks.quality_figures import make_figures, tabulate
from tests.benchmarks.quality_run import overrides_of
from tests.benchmarks.quality_sets import CONFIGS, SETS, SkippedError

SECOND = 1_000_000
DAY = 86_400 * SECOND


def ratings(*rows: tuple[str, str, int]) -> pa.Table:
    users, items, seconds = zip(*rows, strict=True)
    times = np.array(seconds, dtype=np.int64) * SECOND
    return pa.table({"user_id": users, "item_id": items, "timestamp": times})


def test_ratings_are_read_in_file_order_with_titles_that_hold_quotes(tmp_path: Path) -> None:
    path = tmp_path / "x.inter"
    text = 'user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t"Film" (1995)\t5\t10\n1\t7\t3\t9\n'
    path.write_text(text, encoding="utf-8")
    assert splits.read_ratings(path).to_pylist() == [
        {"user_id": "1", "item_id": '"Film" (1995)', "timestamp": 10 * SECOND},
        {"user_id": "1", "item_id": "7", "timestamp": 9 * SECOND},
    ]


def test_orders_without_times_end_on_one_day(tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_text("u p q r\nv q p\n", encoding="utf-8")
    log, last = splits.read_orders(path)
    assert last == 4 * DAY
    assert [tuple(row.values()) for row in log.to_pylist()] == [
        ("u", "p", 2 * DAY),
        ("u", "q", 3 * DAY),
        ("u", "r", 4 * DAY),
        ("v", "q", 3 * DAY),
        ("v", "p", 4 * DAY),
    ]


def test_a_folder_without_beauty_is_skipped_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAUTY", str(tmp_path))
    (tmp_path / "Beauty.txt").write_text("\n")
    with pytest.raises(SkippedError, match=r"there is no Beauty_item2attributes\.json"):
        SETS["beauty"](tmp_path)
    (tmp_path / "Beauty_item2attributes.json").write_text("{}")
    with pytest.raises(SourceError, match="holds no user with an item"):
        SETS["beauty"](tmp_path)


def test_beauty_is_split_leave_one_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Beauty.txt").write_text("".join(f"{user} 3 1 2 {4 + user % 2}\n" for user in range(1, 31)))
    (tmp_path / "Beauty_item2attributes.json").write_text('{"1": [7, 8], "2": [7]}')
    monkeypatch.setenv("BEAUTY", str(tmp_path))
    quality = SETS["beauty"](tmp_path)
    data = Dataset.open(quality.data.path)
    ids = data.items["item_id"].to_pylist()
    assert sorted(ids) == ["1", "2", "3", "4", "5"]
    for split, wanted, past in (("validation", {"2"}, ["3", "1"]), ("test", {"4", "5"}, ["3", "1", "2"])):
        queries = data.queries(split)
        assert queries.num_rows == 30
        assert {ids[row] for targets in queries["targets"].to_pylist() for row in targets} == wanted
        assert [ids[row] for row in queries["history"][0].as_py()] == past


def test_leave_one_out_moves_the_last_two_of_each_user_and_keeps_ties_in_file_order() -> None:
    given = ratings(("a", "p", 5), ("b", "q", 100), ("a", "r", 5), ("a", "s", 5), ("b", "t", 90), ("c", "u", 7))
    moved, shift = splits.leave_one_out(given, "file")
    assert (shift.start_us, shift.span_us) == (5 * SECOND, 95 * SECOND + DAY)
    by_user: dict[str, list[tuple[str, int]]] = {}
    for row in moved.to_pylist():
        by_user.setdefault(row["user_id"], []).append((row["item_id"], row["timestamp"]))
    span = shift.span_us
    assert by_user == {
        "a": [("p", 5 * SECOND), ("r", 5 * SECOND + 1 + span), ("s", 5 * SECOND + 2 + 2 * span)],
        "b": [("t", 90 * SECOND + span), ("q", 100 * SECOND + 2 * span)],
        "c": [("u", 7 * SECOND + 2 * span)],
    }
    windows = [time >= start for time, start in ((5 * SECOND + 1 + span, shift.validation_from_us),)]
    assert windows == [True]
    assert max(100 * SECOND + span, 0) < shift.test_from_us
    truth = shift.undo(moved["timestamp"].to_numpy())
    assert truth.tolist() == [5 * SECOND, 5 * SECOND + 1, 5 * SECOND + 2, 90 * SECOND, 100 * SECOND, 7 * SECOND]


def test_shuffled_ties_change_the_order_within_a_second_and_nothing_else() -> None:
    given = ratings(*[("a", str(n), 5 if n < 20 else 6) for n in range(40)])
    kept, shift = splits.leave_one_out(given, "file")
    drawn, _ = splits.leave_one_out(given, "shuffled")
    assert kept["item_id"].to_pylist() == [str(n) for n in range(40)]
    assert drawn["item_id"].to_pylist() != kept["item_id"].to_pylist()
    assert set(drawn["item_id"].to_pylist()[:20]) == {str(n) for n in range(20)}
    assert drawn["timestamp"].equals(kept["timestamp"])
    assert shift.undo(kept["timestamp"].to_numpy())[-1] == 6 * SECOND + 19
    with pytest.raises(ValueError, match="ties"):
        splits.leave_one_out(given, "any")


def queries(*rows: tuple[int, list[int], list[int]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "user_id": "a", "time_us": time, "targets": targets, "history": [0] * len(times),
                "history_times_us": times, "history_events": [0] * len(times), "history_length": len(times), "seen": [],
            }
            for time, targets, times in rows
        ],
        schema=queries_schema,
    )  # fmt: skip


def test_queries_get_their_true_times_back() -> None:
    shift = splits.Shift(100, 1000)
    true = splits.unshift(queries((2150, [1], [100, 120, 1140]), (1130, [2], [])), shift)
    assert true.schema == queries_schema
    assert true["time_us"].to_pylist() == [150, 130]
    assert true["history_times_us"].to_pylist() == [[100, 120, 140], []]


def test_hidden_items_leave_training_and_the_validation_targets_only() -> None:
    given = ratings(("a", "p", 1), ("a", "q", 2), ("b", "p", 3))
    assert splits.without_items(given, ["p"], 3 * SECOND)["item_id"].to_pylist() == ["q", "p"]
    left = splits.without_targets(queries((1, [4], []), (2, [5, 6], []), (3, [7], [])), np.array([6, 9]))
    assert left["time_us"].to_pylist() == [1, 3]


def piece(name: str, variant: str, seed: int, **systems: Any) -> dict[str, Any]:
    groups = ("overall", "head", "torso", "tail", "cold")
    entries = {
        system: {
            **{group: {"queries": 1, "recall@100": {"mean": value}} for group in groups},
            "coverage": {"catalogue_coverage@100": value},
        }
        for system, value in systems.items()
    }
    return {"set": name, "variant": variant, "seed": seed, "systems": entries, "slices": {}}


def test_ours_is_judged_against_the_best_baseline_of_its_group_seed_by_seed() -> None:
    pieces = [
        piece("movielens-t", "two_tower", 0, two_tower=0.6),
        piece("movielens-t", "two_tower", 1, two_tower=0.5),
        piece("movielens-t", "baselines", 0, ease=0.5, popularity=0.2),
        piece("movielens-t", "tfrs", 0, tfrs=0.1),
    ]
    figures = {figure.name: figure for figure in make_figures(pieces)}
    overall = figures["movielens-t overall recall@100"]
    assert (overall.against, overall.value, overall.ratio, overall.met) == ("ease", 0.55, 1.1, False)
    assert figures["movielens-t coverage@100"].met is True
    row = tabulate(pieces)["movielens-t"]["two_tower"]["overall recall@100"]
    assert row == {"mean": 0.55, "low": 0.5, "high": 0.6, "seeds": 2}


def test_the_code_digest_sees_code_and_not_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_quality, "ROOT", tmp_path)
    file = tmp_path / "x.py"
    digests = []
    for text in ('"""One."""\nx = 1\n', '"""Two."""\nx = 1  # one\n', '"""Two."""\nx = 2\n'):
        file.write_text(text, encoding="utf-8")
        digests.append(bench_quality._digest_code("x.py"))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("variant", ["two_tower", "without_cold_start", *bench_quality.ABLATION])
def test_every_variant_is_a_valid_configuration_with_as_many_negatives_as_are_shipped(variant: str) -> None:
    shipped = load_config(CONFIGS / "movielens-1m.toml")
    changed = load_config(CONFIGS / "movielens-1m.toml", overrides_of(variant, shipped))
    assert sum(one.count for one in changed.model.negatives) == sum(one.count for one in shipped.model.negatives)
    assert (changed == shipped) == (variant == "two_tower")


@pytest.mark.slow
def test_the_quick_bench_measures_every_system_on_the_same_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICK", "1")
    record = json.loads(bench_quality.main(tmp_path).read_text(encoding="utf-8"))
    systems = record["tables"]["movielens-100k"]
    assert set(systems) == {
        "two_tower", "popularity", "popularity_recent", "item_knn", "ease", "ials", "tfrs", "tfrs_logq",
    }  # fmt: skip
    assert systems["ease"]["overall recall@100"]["mean"] > systems["popularity"]["overall recall@100"]["mean"]
    pieces = [
        json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "quality" / "pieces").rglob("*.json")
    ]
    assert len({piece["protocol"]["queries"] for piece in pieces}) == 1
