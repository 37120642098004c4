from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cg.evaluation.drift import (
    Probe,
    freeze_probes,
    measure_drift,
    probes_schema,
    run_probes,
    thaw_probes,
)
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.exact import ExactRetriever
from tests.evaluation.tables import make_items, make_queries

EVENTS = ("click", "purchase")
ITEMS = make_items([3, 2, 1, 1])
QUERIES = make_queries(
    [
        {"time": 50, "targets": [0], "history": [2, 0], "times": [10, 20], "events": [1, 0]},
        {"time": 60, "targets": [0]},
        {"time": 70, "targets": [1], "history": [3], "times": [30], "events": [0]},
    ]
)


def test_probes_are_drawn_from_queries_with_a_history_and_name_items_by_id() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)
    assert probes.schema == probes_schema
    assert probes.column("history_ids").to_pylist() == [["item_2", "item_0"], ["item_3"]]
    assert "user_id" not in probes.schema.names
    assert freeze_probes(QUERIES, ITEMS, EVENTS, count=1, seed=0).num_rows == 1
    assert freeze_probes(QUERIES.slice(1, 1), ITEMS, EVENTS, count=5, seed=0).num_rows == 0


def test_thawed_probes_follow_their_items_to_other_rows_and_forget_departed_ones() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)
    later = ITEMS.take([3, 2, 1])  # item_0 left; item_3 is row 0 now
    queries = thaw_probes(probes, later, EVENTS)
    assert queries.column("history").to_pylist() == [[1], [0]]
    assert queries.column("history_times_us").to_pylist() == [[10], [30]]
    assert queries.column("history_events").to_pylist() == [[1], [0]]
    assert queries.column("history_length").to_pylist() == [1, 1]


def test_thawed_probes_follow_their_events_to_other_codes_and_an_unknown_event_becomes_the_first(tmp_path) -> None:
    pq.write_table(freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0), tmp_path / "probes.parquet")
    probes = pq.read_table(tmp_path / "probes.parquet")
    assert probes.schema.equals(probes_schema)
    codes = {
        events: thaw_probes(probes, ITEMS, events).column("history_events").to_pylist()
        for events in (("cart", "click", "purchase"), ("purchase",))
    }
    assert codes == {("cart", "click", "purchase"): [[2, 1], [1]], ("purchase",): [[0, 0], [0]]}


def ask(vectors: np.ndarray, items=ITEMS, *, k: int = 2) -> Probe:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)

    def encode(queries):
        return vectors[[rows[-1] for rows in queries.column("history").to_pylist()]]

    return run_probes(probes, items, encode, ExactRetriever(vectors), events=EVENTS, k=k)


def test_the_same_release_does_not_drift() -> None:
    probe = ask(l2_normalise(np.random.default_rng(0).normal(size=(4, 5))))
    drift = measure_drift(probe, probe, k=2)
    assert drift["probes"] == 2
    assert drift["churn@2"] == 0.0
    for name in ("nearest_distance", "query_norm"):
        assert (drift[name]["ks"], drift[name]["p_value"]) == (0.0, 1.0)
    assert drift["query_norm"]["mean"] == pytest.approx(1.0, abs=1e-6)


def test_churn_is_counted_by_item_and_not_by_row() -> None:
    vectors = l2_normalise(np.random.default_rng(0).normal(size=(4, 5)))
    order = [3, 1, 0, 2]
    moved = ask(np.ascontiguousarray(vectors[order]), ITEMS.take(order))
    assert measure_drift(moved, ask(vectors), k=2)["churn@2"] == 0.0


def test_churn_is_the_share_of_the_previous_list_that_is_gone() -> None:
    def probe(lists: list[list[str]]) -> Probe:
        import pyarrow as pa

        many = np.arange(len(lists), dtype=np.float64)
        return Probe([pa.array(x, pa.string()) for x in lists], many, many + 1, 0.1)

    now, then = probe([["a", "b"], ["c"], []]), probe([["a", "z"], ["c"], ["q"]])
    drift = measure_drift(now, then, k=2)
    assert drift["churn@2"] == pytest.approx((0.5 + 0 + 1) / 3)
    assert drift["mean_pairwise_similarity"] == {"current": 0.1, "previous": 0.1}
    assert measure_drift(now, probe([["a"]]), k=2) == {"probes": 0}


def test_a_shifted_distribution_is_found_and_an_equal_one_is_not() -> None:
    rng = np.random.default_rng(0)
    first, second, shifted = rng.normal(0.3, 0.05, 300), rng.normal(0.3, 0.05, 300), rng.normal(0.35, 0.05, 300)
    import pyarrow as pa

    lists = [pa.array(["a"])] * 300

    def compare(a: np.ndarray, b: np.ndarray) -> dict:
        ones = np.ones(300)
        return measure_drift(Probe(lists, a, ones, None), Probe(lists, b, ones, None), k=1)["nearest_distance"]

    assert compare(first, second)["p_value"] > 0.05
    assert compare(first, shifted)["p_value"] < 1e-6
    assert compare(first, shifted)["ks"] > 0.25
    assert compare(np.full(300, np.nan), first) == {"ks": None, "p_value": None, "mean": None, "previous_mean": None}
