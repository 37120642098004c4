from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from recsys_cg.evaluation.exposition import render_prometheus


def drift(**changes: Any) -> dict[str, Any]:
    return {
        "release": "20261129T192233Z-1a2b3c4d",
        "against": "earlier",
        "k": 20,
        "measured_us": 1_800_000_000_500_000,
        "frozen": {
            "probes": 1000,
            "probe_recall@20": {"current": 0.41, "previous": 0.4},
            "probe_index_recall@20": {"current": 0.99, "previous": None},
            "mean_pairwise_similarity": {"current": 0.21, "previous": 0.2},
            "churn@20": 0.3,
            "nearest_distance": {"ks": 0.02, "p_value": 0.5, "mean": 0.4, "previous_mean": 0.39},
            "query_norm": {"ks": 0.0, "p_value": 1.0, "mean": 1.0, "previous_mean": 1.0},
        },
        "staleness": {
            "items": 1682,
            "stale_fraction": 0.0,
            "unavailable_share": 0.25,
            "release_age_hours": 2.0,
            "served_hours": None,
            "data_age_hours": 30.5,
        },
        **changes,
    }


FRESH = {
    "requests": 50,
    "without_known_history": 0.1,
    "unknown_item_share": None,
    "queries": 45,
    "index_recall@20": 0.98,
    "mean_pairwise_similarity": 0.3,
    "nearest_distance": {"ks": 0.1, "p_value": 0.01, "mean": 0.5, "probe_mean": 0.4},
    "query_norm": {"ks": 0.0, "p_value": 1.0, "mean": 1.0, "probe_mean": 1.0},
}


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Parse as Prometheus does; no series stands twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = (sample.name.removeprefix("recsys_cg_drift_"), frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset(labels.items())))


def test_the_text_is_what_prometheus_reads() -> None:
    text = render_prometheus(drift(fresh=FRESH))
    assert text.endswith("\n")
    assert value(text, "info", release="20261129T192233Z-1a2b3c4d", against="earlier") == 1.0
    assert value(text, "measured_timestamp_seconds") == 1_800_000_000.5
    assert value(text, "probe_recall", release="current", k="20") == 0.41
    assert value(text, "churn_ratio", k="20") == 0.3
    assert value(text, "index_recall", release="current", set="probes", k="20") == 0.99
    assert value(text, "index_recall", release="current", set="fresh", k="20") == 0.98
    assert value(text, "ks_p_value", figure="nearest_distance", against="probes") == 0.01
    assert value(text, "ks_statistic", figure="nearest_distance", against="previous_release") == 0.02
    assert value(text, "nearest_distance_mean", release="previous", set="probes") == 0.39
    assert value(text, "release_age_seconds") == 7200.0
    assert value(text, "unavailable_items_ratio") == 0.25


def test_what_is_not_known_is_left_out() -> None:
    text = render_prometheus(drift(fresh=FRESH))
    assert value(text, "index_recall", release="previous", set="probes", k="20") is None
    assert value(text, "served_seconds") is None
    assert value(text, "request_unknown_item_ratio") is None
    first = render_prometheus(drift(against=None, frozen={"probes": 0}))
    assert value(first, "info", release="20261129T192233Z-1a2b3c4d", against="") == 1.0
    assert value(first, "queries", set="probes") == 0.0
    assert "churn" not in first
    assert not [labels for _, labels in samples(first) if ("set", "fresh") in labels]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ü"])
def test_a_label_is_escaped(name: str) -> None:
    assert value(render_prometheus(drift(release=name)), "info", release=name, against="earlier") == 1.0
