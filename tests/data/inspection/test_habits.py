"""Settings that the rows of a log ask for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from recsys_cg.config import load_config
from recsys_cg.data.inspection import inspect_sources, render_config
from recsys_cg.data.inspection.habits import propose_settings


def settings(rows: list[tuple[str, str, str]]) -> dict[str, object]:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table({name: pa.array(values, pa.string()) for name, values in zip("uit", columns, strict=True)})
    return {key: value for key, (value, _) in propose_settings(table, "u", "i", "t").items()}


def test_a_log_of_single_events_and_no_repeats_keeps_the_defaults() -> None:
    assert settings([("u", f"i{number}", f"t{number}") for number in range(50)]) == {}
    assert settings([]) == {}


def test_coming_back_to_items_keeps_them_candidates() -> None:
    rows = [("u", f"i{number % 10}", f"t{number}") for number in range(20)]
    assert settings(rows) == {"evaluation.filter_seen": False}


def test_a_row_written_twice_is_not_coming_back() -> None:
    assert settings([("u", f"i{number}", f"t{number}") for number in range(20)] * 2) == {}


def test_small_baskets_are_learned_item_by_item() -> None:
    rows = [("u", f"i{number}", f"t{number // 4}") for number in range(40)]
    assert settings(rows) == {"training.ties_in_order": 1.0}


def test_large_baskets_ask_for_longer_histories() -> None:
    rows = [("u", f"i{number}", f"t{number // 20}") for number in range(80)]
    assert settings(rows) == {
        "training.ties_in_order": 1.0,
        "dataset.max_history": 200,
        "training.row_length": 256,
    }


def test_one_time_of_many_users_is_no_basket() -> None:
    assert settings([(f"u{number}", f"i{number}", "t") for number in range(40)]) == {}


def test_rows_without_a_value_are_passed_over() -> None:
    table = pa.table({"u": ["a", None], "i": ["x", "x"], "t": pa.array([None, 3], pa.int64())})
    assert propose_settings(table, "u", "i", "t") == {}


def test_the_project_file_carries_what_was_found_and_why(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    lines = [f"u{number // 40},i{number % 20},{1_700_000_000 + number // 20}" for number in range(400)]
    log.write_text("user_id,item_id,timestamp\n" + "\n".join(lines) + "\n")
    text = render_config(inspect_sources(str(log)))
    (tmp_path / "project.toml").write_text(text)
    config = load_config(tmp_path / "project.toml")
    assert config.evaluation.filter_seen is False
    assert (config.training.ties_in_order, config.training.row_length, config.dataset.max_history) == (1.0, 256, 200)
    assert "50% of the rows looked at come back to an item" in text
