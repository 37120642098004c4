from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import EvaluationConfig, FeatureConfig
from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import ConfigError, DataError
from recsys_cg.evaluation import evaluate, evaluate_systems
from recsys_cg.evaluation.groups import bucket_codes
from tests.evaluation.tables import ListSystem, ScoreSystem, make_items, make_queries, make_sequences

CONFIG = EvaluationConfig(k=[1, 3], primary_k=3, bootstrap_samples=100)
BUCKETS = ["head", "head", "torso", "tail", "tail", "cold"]
ITEMS = make_items([50, 30, 20, 3, 2, 0], BUCKETS)
SEQUENCES = make_sequences({"a": [0, 1], "b": [2]})


def random_case(seed: int, queries: int = 300, items: int = 60, targets: int = 3):
    rng = np.random.default_rng(seed)
    counts = np.sort(rng.integers(0, 500, items))[::-1]
    table = make_items(counts.tolist(), [("head", "torso", "tail", "cold")[i * 4 // items] for i in range(items)])
    rows = [
        {
            "user": f"u{rng.integers(40)}",
            "time": int(rng.integers(0, 10**6)),
            "targets": rng.choice(items, rng.integers(1, targets + 1), replace=False).tolist(),
            "seen": rng.choice(items, 5, replace=False).tolist(),
            "length": int(rng.integers(0, 300)),
        }
        for _ in range(queries)
    ]
    return table, make_queries(rows), rng.random((queries, items)).astype(np.float32)


def test_figures_of_a_small_case_are_those_worked_out_by_hand() -> None:
    queries = make_queries(
        [
            {"user": "a", "time": 1, "targets": [3], "history": [0]},
            {"user": "a", "time": 2, "targets": [1, 4], "history": [0, 3]},
            {"user": "c", "time": 3, "targets": [2]},
        ]
    )
    system = ListSystem("mine", [[3, 1, 2], [2, 1, 5], [0, 1, 3]])
    report = evaluate([system], queries, ITEMS, SEQUENCES, CONFIG, 0)
    entry = report["systems"]["mine"]
    assert entry["overall"]["queries"] == 3
    assert entry["overall"]["users"] == 2
    assert entry["overall"]["recall@1"]["mean"] == pytest.approx(1 / 3)
    assert entry["overall"]["recall@3"]["mean"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert entry["overall"]["hit_rate@3"]["mean"] == pytest.approx(2 / 3)
    assert entry["overall"]["mrr@3"]["mean"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert entry["overall"]["precision@3"]["mean"] == pytest.approx((1 + 1 + 0) / 9)
    # Of the query with targets 1 (head) and 4 (tail) only the head target counts in head, only the other in tail.
    assert entry["head"]["queries"] == 1
    assert entry["head"]["recall@3"]["mean"] == 1.0
    assert entry["tail"]["queries"] == 2
    assert entry["tail"]["recall@3"]["mean"] == 0.5
    assert entry["torso"]["recall@3"]["mean"] == 0.0
    assert entry["cold"] == {"queries": 0, "users": 0}
    assert entry["by_history_length"]["0"]["queries"] == 1
    assert entry["by_history_length"]["1-4"]["recall@3"]["mean"] == 0.75
    assert entry["by_history_length"]["200+"] == {"queries": 0, "users": 0}


def test_debiased_recall_weighs_targets_by_inverse_popularity() -> None:
    queries = make_queries([{"user": "a", "targets": [0]}, {"user": "b", "targets": [3]}])
    config = CONFIG.model_copy(update={"propensity_clip": 0.0})
    report = evaluate([ListSystem("mine", [[0, 1, 2], [0, 1, 2]])], queries, ITEMS, SEQUENCES, config, 0)
    rare = 1 / math.sqrt(4 / 51)
    assert report["systems"]["mine"]["overall"]["recall_ips@3"]["mean"] == pytest.approx(1 / (1 + rare))
    summary = report["protocol"]["propensity"]
    assert summary["effective_sample_size"] == pytest.approx((1 + rare) ** 2 / (1 + rare**2))
    assert "warning" in summary


def test_every_figure_has_a_definition_and_the_report_is_json() -> None:
    items, queries, scores = random_case(0)
    report = evaluate([ScoreSystem("mine", scores)], queries, items, SEQUENCES, CONFIG, 1)
    definitions = report["protocol"]["definitions"]
    figures = set(report["systems"]["mine"]["overall"]) | set(report["coverage"]["mine"])
    assert figures - set(definitions) == {"queries", "users"}
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    for name, value in report["systems"]["mine"]["overall"].items():
        if "@" in name:
            low, high = value["ci95"]
            assert 0 <= low <= value["mean"] <= high <= 1, name


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
def test_figures_do_not_depend_on_the_batch_size(rows: int) -> None:
    items, queries, scores = random_case(2)
    systems = [ScoreSystem("a", scores), ScoreSystem("b", scores[:, ::-1])]
    whole = evaluate_systems(systems, queries, items, SEQUENCES, CONFIG, 1)
    parts = evaluate_systems(systems, queries, items, SEQUENCES, CONFIG, 1, batch_rows=rows)
    assert parts.report == whole.report
    assert parts.per_query.equals(whole.per_query)


def test_figures_do_not_depend_on_the_order_of_the_queries_or_the_names_of_users() -> None:
    items, queries, scores = random_case(3)
    order = np.random.default_rng(0).permutation(queries.num_rows)
    renamed = [f"x{u}" for u in queries.column("user_id").to_pylist()]
    other = queries.set_column(0, "user_id", pa.array(renamed)).take(order)
    first = evaluate([ScoreSystem("s", scores)], queries, items, SEQUENCES, CONFIG, 1)
    second = evaluate([ScoreSystem("s", scores[order])], other, items, SEQUENCES, CONFIG, 1)
    for name, value in first["systems"]["s"]["overall"].items():
        mean = value["mean"] if isinstance(value, dict) else value
        again = second["systems"]["s"]["overall"][name]
        assert (again["mean"] if isinstance(again, dict) else again) == pytest.approx(mean, abs=1e-12)


def test_rescaled_scores_give_the_same_figures_and_better_ones_give_better() -> None:
    items, queries, scores = random_case(4)
    helped = scores.copy()
    for row, targets in enumerate(queries.column("targets").to_pylist()):
        helped[row, targets] += 0.3
    systems = [ScoreSystem("a", scores), ScoreSystem("b", 5 * scores - 2), ScoreSystem("c", helped)]
    systems_report = evaluate(systems, queries, items, SEQUENCES, CONFIG, 1)["systems"]
    assert systems_report["a"] == systems_report["b"]
    for name in ("recall@3", "ndcg@3", "map@3", "mrr@3"):
        assert systems_report["c"]["overall"][name]["mean"] > systems_report["a"]["overall"][name]["mean"]


def test_an_oracle_reaches_one_and_a_list_of_everything_else_reaches_nothing() -> None:
    items, queries, _ = random_case(5, targets=3)
    targets = queries.column("targets").to_pylist()
    oracle = np.zeros((len(targets), items.num_rows), dtype=np.float32)
    for row, wanted in enumerate(targets):
        oracle[row, wanted] = 1.0
    report = evaluate([ScoreSystem("o", oracle), ScoreSystem("w", -oracle)], queries, items, SEQUENCES, CONFIG, 1)
    for name in ("recall@3", "hit_rate@3", "ndcg@3", "mrr@3", "map@3"):
        assert report["systems"]["o"]["overall"][name]["mean"] == pytest.approx(1.0), name
        assert report["systems"]["w"]["overall"][name]["mean"] == 0.0, name


def test_seen_items_are_never_counted_as_found() -> None:
    queries = make_queries([{"targets": [0], "seen": [0]}, {"targets": [1], "seen": [0]}])
    report = evaluate([ScoreSystem("s", np.array([[9, 8, 7, 6, 5, 4]]))], queries, ITEMS, SEQUENCES, CONFIG, 0)
    assert report["protocol"]["queries"] == 1
    assert report["protocol"]["selection"]["targets_seen_before"] == 1
    assert report["systems"]["s"]["overall"]["recall@1"]["mean"] == 1.0


def test_the_catalogue_counts_only_items_that_were_alive() -> None:
    items = make_items([5, 4, 3, 2, 1, 0], BUCKETS, available_from=[None] * 5 + [10**15])
    queries = make_queries([{"targets": [1]}])
    report = evaluate([ListSystem("s", [[0, 1, 2]])], queries, items, SEQUENCES, CONFIG, 0)
    assert report["protocol"]["candidates"] == 5
    assert report["coverage"]["s"]["catalogue_coverage@3"] == pytest.approx(3 / 5)
    assert report["coverage"]["s"]["never_retrieved"] == 2


def test_one_user_alone_gives_no_interval() -> None:
    queries = make_queries([{"user": "a", "targets": [0]}, {"user": "a", "targets": [1]}])
    report = evaluate([ListSystem("s", [[0, 1, 2]] * 2)], queries, ITEMS, SEQUENCES, CONFIG, 0)
    assert report["systems"]["s"]["overall"]["recall@3"] == {"mean": 1.0, "ci95": [0.0, 1.0]}
    assert report["coverage"]["s"]["between_user_overlap@3"] is None


def test_no_queries_give_no_made_up_zero() -> None:
    report = evaluate([ScoreSystem("s", np.zeros((1, 6)))], make_queries([]), ITEMS, SEQUENCES, CONFIG, 0)
    assert report["protocol"]["queries"] == 0
    assert report["protocol"]["cutoff"] is None
    assert report["systems"]["s"]["overall"] == {"queries": 0, "users": 0}
    assert report["coverage"]["s"] == {"queries": 0}


def test_k_beyond_the_catalogue_pads_and_says_so() -> None:
    config = EvaluationConfig(k=[100], primary_k=100, bootstrap_samples=100)
    queries = make_queries([{"user": u, "targets": [5]} for u in "ab"])
    report = evaluate([ScoreSystem("s", np.zeros((1, 6)))], queries, ITEMS, SEQUENCES, config, 0)
    assert report["systems"]["s"]["overall"]["recall@100"]["mean"] == 1.0
    assert report["coverage"]["s"]["fill_rate@100"] == 0.06


def test_two_systems_of_one_name_and_repeated_items_are_refused() -> None:
    queries = make_queries([{"targets": [0]}])
    with pytest.raises(DataError, match="share a name"):
        evaluate([ListSystem("s", [[0, 1, 2]])] * 2, queries, ITEMS, SEQUENCES, CONFIG, 0)
    with pytest.raises(DataError, match="'s' recommended item_row 1 twice"):
        evaluate([ListSystem("s", [[1, 1, 2]])], queries, ITEMS, SEQUENCES, CONFIG, 0)
    with pytest.raises(DataError, match="column bucket"):
        bucket_codes(make_items([1], ["middle"]))


def test_the_first_system_is_compared_with_each_other_one() -> None:
    items, queries, scores = random_case(6)
    helped = scores.copy()
    for row, targets in enumerate(queries.column("targets").to_pylist()):
        helped[row, targets] += 0.5
    report = evaluate([ScoreSystem("new", scores), ScoreSystem("old", helped)], queries, items, SEQUENCES, CONFIG, 1)
    entries = {entry["group"]: entry for entry in report["comparisons"]}
    assert set(entries) == {"overall", "head", "torso", "tail", "cold"}
    overall = entries["overall"]
    assert (overall["system"], overall["against"], overall["metric"]) == ("new", "old", "recall@3")
    means = [report["systems"][name]["overall"]["recall@3"]["mean"] for name in ("new", "old")]
    assert overall["difference"] == pytest.approx(means[0] - means[1], abs=1e-12)
    assert overall["ci95"][1] < 0
    assert overall["p_value"] < 0.05


def test_figures_of_single_queries_average_to_the_report() -> None:
    items, queries, scores = random_case(7)
    done = evaluate_systems([ScoreSystem("s", scores)], queries, items, SEQUENCES, CONFIG, 1)
    table = done.per_query.to_pandas()
    entry = done.report["systems"]["s"]
    assert len(table) == done.report["protocol"]["queries"]
    assert table["recall"].mean() == pytest.approx(entry["overall"]["recall@3"]["mean"])
    assert table["recall_tail"].mean() == pytest.approx(entry["tail"]["recall@3"]["mean"])
    assert (1 / (table["rank"] + 1)).fillna(0).mean() == pytest.approx(entry["overall"]["mrr@3"]["mean"])


def test_the_protocol_says_what_was_done() -> None:
    queries = make_queries([{"user": u, "time": 1_500_000_000_000_000, "targets": [1]} for u in ("a", "new")])
    report = evaluate(
        [], queries, ITEMS, SEQUENCES, CONFIG, 5, cutoff_us=1_400_000_000_000_000, skipped={"ease": "too large"}
    )
    protocol = report["protocol"]
    assert protocol["split"] == "test"
    assert protocol["cutoff"] == "2014-05-13T16:53:20Z"
    assert protocol["k"] == [1, 3]
    assert (protocol["users"], protocol["users_unseen_in_training"]) == (2, 1)
    assert protocol["filter_seen"] is True
    assert report["systems"] == {"ease": {"skipped": "too large"}}


class ShallowSystem(ScoreSystem):
    """Like an approximate index: a short list is not the beginning of a long one."""

    nests = False

    def recommend(self, batch, k, allow=None):
        return super().recommend(batch, k, allow)[:, ::-1]


def test_a_system_whose_lists_do_not_nest_is_asked_for_each_k() -> None:
    queries = make_queries([{"user": u, "targets": [0]} for u in "ab"])
    scores = np.array([[9, 8, 7, 6, 5, 4]])
    report = evaluate([ShallowSystem("s", scores)], queries, ITEMS, SEQUENCES, CONFIG, 0)
    figures = report["systems"]["s"]["overall"]
    # Of three items in reverse order the target stands last; of one it stands first.
    assert figures["recall@1"]["mean"] == 1.0
    assert figures["mrr@3"]["mean"] == pytest.approx(1 / 3)
    assert report["coverage"]["s"]["catalogue_coverage@1"] == pytest.approx(1 / 6)


def test_figures_are_split_by_the_categories_that_the_config_names() -> None:
    catalogue = pa.table({"genre": ["x|y", "x", "z", "y", None, "x"]})
    features = FeatureSet.fit(
        catalogue,
        [FeatureConfig(name="genre", kind="categorical", separator="|", min_items=1)],
        np.ones(6, dtype=np.bool_),
    )
    items = ITEMS.append_column("f_genre", features.encode(catalogue).column("f_genre"))
    queries = make_queries([{"user": u, "targets": [t]} for u, t in (("a", 0), ("b", 3), ("c", 4), ("d", 1))])
    config = CONFIG.model_copy(update={"by": ["genre"]})
    common = ([ListSystem("s", [[0, 1, 2]] * 4)], queries, items, SEQUENCES, config, 0)
    by_genre = evaluate(*common, features=features)["systems"]["s"]["by_genre"]
    assert set(by_genre) == {"x", "y", "z"}
    assert (by_genre["x"]["queries"], by_genre["x"]["recall@3"]["mean"]) == (2, 1.0)
    assert (by_genre["y"]["queries"], by_genre["y"]["recall@3"]["mean"]) == (2, 0.5)
    assert by_genre["z"] == {"queries": 0, "users": 0}
    with pytest.raises(ConfigError, match="'genre' is no categorical feature of the items; there is: none"):
        evaluate(*common)
