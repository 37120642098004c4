from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import EvaluationConfig
from recsys_cg.data.impressions import impressions_schema
from recsys_cg.evaluation import evaluate
from recsys_cg.evaluation.debiasing import effective_sample_size, match_impressions, popularity_propensity, weigh
from recsys_cg.evaluation.queries import prepare_queries
from tests.evaluation.tables import ListSystem, make_items, make_queries, make_sequences


def test_popularity_propensity_is_relative_to_the_bestseller() -> None:
    assert popularity_propensity(np.array([99, 24, 0]), 0.5).tolist() == [1.0, 0.5, 0.1]
    assert popularity_propensity(np.array([99, 24, 0]), 0.0).tolist() == [1.0, 1.0, 1.0]
    assert popularity_propensity(np.zeros(0, dtype=np.int64), 0.5).tolist() == []


def test_effective_sample_size_counts_equal_weights() -> None:
    assert effective_sample_size(np.full(7, 3.0)) == pytest.approx(7.0)
    assert effective_sample_size(np.array([1.0, 0.0, 0.0])) == 1.0
    assert effective_sample_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
    assert effective_sample_size(np.zeros(0)) == 0.0


def test_weights_are_inverse_clipped_and_shared_by_the_targets_of_a_query() -> None:
    propensities = np.array([1.0, 0.5, 0.2, 0.1, 0.001])
    weights = weigh(propensities, np.array([1, 2, 1, 1, 1]), clip=0.25, source="test")
    assert weights.values.tolist() == [1.0, 1.0, 5.0, 10.0, 10.0]
    assert weights.summary["floor"] == 0.1
    assert weights.summary["clipped_share"] == 0.2
    assert weigh(propensities, np.ones(5, dtype=np.int64), clip=0.0, source="").values[-1] == 1000.0
    assert weights.summary["source"] == "test"


def test_a_small_effective_sample_warns_and_a_large_one_does_not() -> None:
    few = np.ones(2000)
    few[:3] = 1e-6
    assert "rests on few targets" in weigh(few, np.ones(2000, dtype=np.int64), clip=0.0, source="").summary["warning"]
    assert "warning" not in weigh(np.ones(2000), np.ones(2000, dtype=np.int64), clip=0.01, source="").summary
    assert "warning" in weigh(np.ones(3), np.ones(3, dtype=np.int64), clip=0.01, source="").summary
    assert weigh(np.zeros(0), np.zeros(0, dtype=np.int64), clip=0.01, source="").summary["targets"] == 0


def test_weighing_by_the_true_propensity_recovers_recall_over_all_interest() -> None:
    # 400 rare and 400 popular targets are wanted; rare ones are observed with probability 0.1. A system finds all
    # popular and no rare ones: its recall over all interest is 0.5.
    rng = np.random.default_rng(0)
    observed = np.concatenate((np.ones(4000, dtype=bool), rng.random(4000) < 0.1))
    found = np.concatenate((np.ones(4000), np.zeros(4000)))[observed]
    propensity = np.where(np.arange(8000) < 4000, 1.0, 0.1)[observed]
    weights = weigh(propensity, np.ones(len(found), dtype=np.int64), clip=0.01, source="truth").values
    assert found.mean() > 0.9
    assert (found @ weights) / weights.sum() == pytest.approx(0.5, abs=0.03)


def impressions_of(rows: list[tuple[str, int, int, float | None, bool | None]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    arrays = [pa.array(c, t.type) for c, t in zip(columns, _SCHEMA, strict=True)]
    return pa.table(arrays, schema=_SCHEMA)


_SCHEMA = pa.schema([impressions_schema.field(n) for n in ("user_id", "item_row", "time_us", "propensity", "random")])


def test_a_target_takes_the_latest_impression_of_its_user_and_item_up_to_its_time() -> None:
    queries = make_queries(
        [
            {"user": "a", "time": 10, "targets": [1, 2]},
            {"user": "b", "time": 5, "targets": [1]},
            {"user": "c", "time": 5, "targets": [1]},
        ]
    )
    chosen = prepare_queries(queries, make_items([1] * 4), filter_seen=True, max_queries=9, seed=0)
    exposed = match_impressions(
        chosen,
        impressions_of(
            [
                ("a", 1, 3, 0.3, False),
                ("a", 1, 10, 0.4, True),
                ("a", 1, 11, 0.9, False),  # after the query
                ("a", 2, 1, None, None),
                ("b", 2, 1, 0.7, True),  # another item
                ("d", 1, 1, 0.8, True),  # another user
                ("c", 1, 2, 0.6, None),
            ]
        ),
    )
    by_target = dict(
        zip(
            zip(chosen.table["user_id"].take(chosen.targets.owners).to_pylist(), chosen.targets.values, strict=True),
            zip(exposed.propensities, exposed.is_random, strict=True),
            strict=True,
        )
    )
    assert by_target["a", 1] == (0.4, True)
    assert np.isnan(by_target["a", 2][0])
    assert np.isnan(by_target["b", 1][0])
    assert by_target["c", 1] == (0.6, False)
    nothing = match_impressions(chosen, impressions_of([]))
    assert np.isnan(nothing.propensities).all()
    assert not nothing.is_random.any()


def test_logged_propensities_and_the_random_slice_reach_the_report() -> None:
    queries = make_queries([{"user": u, "time": 10, "targets": [t]} for u, t in (("a", 0), ("b", 1), ("c", 2))])
    shown = impressions_of([("a", 0, 9, 0.5, False), ("b", 1, 9, 0.1, True)])
    config = EvaluationConfig(k=[1], primary_k=1, bootstrap_samples=100)
    system = ListSystem("s", [[0]] * 3)
    items = make_items([3, 2, 1], ["head", "torso", "cold"])
    report = evaluate([system], queries, items, make_sequences({}), config, 0, impressions=shown)
    entry = report["systems"]["s"]
    # The floor is the 1% quantile of the two propensities, 0.1 + 0.01 * (0.5 - 0.1).
    assert entry["overall"]["recall_ips@1"]["mean"] == pytest.approx((1 / 0.5) / (1 / 0.5 + 1 / 0.104))
    assert entry["random_exposure"]["queries"] == 1
    assert entry["random_exposure"]["recall@1"]["mean"] == 0.0
    assert "recall_ips@1" not in entry["cold"]  # its target has no logged impression
    assert entry["cold"]["recall@1"]["mean"] == 0.0
    assert report["protocol"]["propensity"]["matched_share"] == pytest.approx(2 / 3)
    assert report["protocol"]["propensity"]["source"].startswith("logged")
    blank = evaluate(
        [system], queries, items, make_sequences({}), config, 0, impressions=impressions_of([("a", 0, 9, None, None)])
    )
    assert blank["protocol"]["propensity"]["source"].startswith("modelled")
