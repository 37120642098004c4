from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from recsys_cg.config import EvaluationConfig
from recsys_cg.evaluation import evaluate
from recsys_cg.evaluation.baselines import fit_baselines
from recsys_cg.evaluation.baselines.tuning import Ladder, Tuner
from recsys_cg.evaluation.queries import prepare_queries
from tests.evaluation.tables import ScoreSystem, as_batch, make_items, make_queries, make_sequences

ITEMS = 40
CONFIG = EvaluationConfig(k=[5], primary_k=5, bootstrap_samples=100, recent_hours=1.0)


def world(seed: int = 0):
    """Eight groups of five items; a user stays in one group."""
    rng = np.random.default_rng(seed)

    def draw(group: int, count: int) -> list[int]:
        return (group * 5 + rng.permutation(5)[:count]).tolist()

    sequences = make_sequences({f"u{u}": draw(int(rng.integers(8)), 4) for u in range(200)})
    counts = np.bincount([i for row in sequences.column("item_rows").to_pylist() for i in row], minlength=ITEMS)

    def ask(start: int) -> Any:
        rows = []
        for q in range(120):
            *history, target = draw(int(rng.integers(8)), 4)
            rows.append({"user": f"n{q}", "time": start + q, "targets": [target], "history": history})
        return make_queries(rows)

    return make_items(counts.tolist()), sequences, ask(10**6), ask(2 * 10**6)


def test_all_baselines_are_fitted_tuned_and_beat_popularity_by_the_history() -> None:
    items, sequences, validation, test = world()
    systems, skipped = fit_baselines(items, sequences, CONFIG, validation=validation, test=test, seed=0)
    assert skipped == {}
    assert [system.name for system in systems] == CONFIG.baselines
    report = evaluate(systems, test, items, sequences, CONFIG, 0)
    means = {name: entry["overall"]["recall@5"]["mean"] for name, entry in report["systems"].items()}
    assert means["popularity"] < 0.3
    assert min(means["item_knn"], means["ease"], means["ials"]) > 0.95
    for name in ("item_knn", "ease", "ials"):
        assert "validation queries" in report["systems"][name]["settings"]["chosen"]


def test_without_validation_queries_defaults_are_used_and_named() -> None:
    items, sequences, _, test = world()
    empty = make_queries([])
    systems, _ = fit_baselines(items, sequences, CONFIG, validation=empty, test=test, seed=0)
    assert {s.settings["chosen"] for s in systems if "chosen" in s.settings} == {"default"}


def test_a_catalogue_too_large_for_ease_is_skipped_with_its_reason() -> None:
    items, sequences, validation, test = world()
    config = CONFIG.model_copy(update={"ease_max_items": 39, "baselines": ["ease", "popularity"]})
    systems, skipped = fit_baselines(items, sequences, config, validation=validation, test=test, seed=0)
    assert [system.name for system in systems] == ["popularity"]
    assert skipped == {"ease": "the catalogue has 40 items, more than evaluation.ease_max_items = 39"}


def test_a_library_that_is_missing_skips_its_baseline_and_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    items, sequences, validation, test = world()
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "implicit":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    config = CONFIG.model_copy(update={"baselines": ["popularity", "ials"]})
    systems, skipped = fit_baselines(items, sequences, config, validation=validation, test=test, seed=0)
    assert [system.name for system in systems] == ["popularity"]
    assert "pip install 'recsys-cg[report]'" in skipped["ials"]


def test_no_baseline_sees_a_test_target_before_its_time() -> None:
    items, sequences, validation, test = world()
    rows = test.to_pylist()
    for row in rows[60:]:
        row["targets"] = [(row["targets"][0] + 1) % ITEMS]
    changed = make_queries(
        [{**row, "user": row["user_id"], "time": row["time_us"], "times": row["history_times_us"]} for row in rows]
    )
    lists = []
    for version in (test, changed):
        systems, _ = fit_baselines(items, sequences, CONFIG, validation=validation, test=version, seed=0)
        lists.append([system.recommend(as_batch(test.slice(0, 61)), 5) for system in systems])
    for first, second in zip(*lists, strict=True):
        assert np.array_equal(first, second)


def test_training_without_interactions_still_gives_lists() -> None:
    items = make_items([0] * 6, ["cold"] * 6)
    test = make_queries([{"targets": [1], "history": [0]}])
    systems, skipped = fit_baselines(items, make_sequences({}), CONFIG, validation=make_queries([]), test=test, seed=0)
    assert set(skipped) <= {"ials"}
    for system in systems:
        assert sorted(system.recommend(as_batch(test), 5)[0].tolist()) == [1, 2, 3, 4, 5], system.name


def tuner_of(values: dict[tuple[int, int], float]) -> tuple[Tuner, Any, list[tuple[int, int]]]:
    """A tuner whose systems find the target at recall given by their two settings, and what was asked for."""
    rows = [{"user": f"u{n}", "time": n, "targets": [0]} for n in range(100)]
    queries = prepare_queries(make_queries(rows), make_items([1] * 4), filter_seen=True, max_queries=100, seed=0)
    asked: list[tuple[int, int]] = []

    def make(settings: Any) -> ScoreSystem:
        asked.append((settings["a"], settings["b"]))
        hits = round(100 * values[asked[-1]])
        system = ScoreSystem("s", np.array([[1.0, 0.5, 0.0, 0.0]] * hits + [[0.5, 1.0, 0.0, 0.0]] * (100 - hits)))
        system.settings = settings
        return system

    return Tuner(queries, 4, 1), make, asked


def test_the_tuner_climbs_to_where_no_neighbour_is_better_and_tries_nothing_twice() -> None:
    values = {(a, b): 0.9 - 0.1 * abs(a - 3) - 0.2 * abs(b - 1) for a in range(5) for b in range(3)}
    tuner, make, asked = tuner_of(values)
    chosen = tuner.climb(make, [Ladder("a", (0, 1, 2, 3, 4), 1), Ladder("b", (0, 1, 2), 0)])
    assert (chosen.settings["a"], chosen.settings["b"]) == (3, 1)
    assert chosen.settings["chosen"] == "best of 8 tried by recall@1 = 0.9000 on 100 validation queries"
    assert len(set(asked)) == len(asked) - 1 == 8


def test_the_tuner_stays_at_the_default_among_equals_and_names_an_end_of_what_was_offered() -> None:
    tuner, make, _ = tuner_of({(a, b): 0.5 + 0.1 * b for a in range(3) for b in range(2)})
    chosen = tuner.climb(make, [Ladder("a", (0, 1, 2), 1), Ladder("b", (0, 1), 0)])
    assert (chosen.settings["a"], chosen.settings["b"]) == (1, 1)
    assert chosen.settings["chosen"].endswith("; at the end of what was offered: b")
