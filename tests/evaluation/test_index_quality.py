from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.evaluation.index_quality import measure_index
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.base import SearchResult
from recsys_cg.index.exact import ExactRetriever

VECTORS = l2_normalise(np.random.default_rng(0).normal(size=(50, 6)))
QUERIES = l2_normalise(np.random.default_rng(1).normal(size=(30, 6)))
BUCKETS = ["head"] * 10 + ["torso"] * 15 + ["tail"] * 25


class BlindRetriever:
    """Exact search that never finds the rows it is blind to."""

    kind = "blind"
    is_exact = False
    size, dim = VECTORS.shape
    why = "for a test"

    def __init__(self, blind: set[int], *, fills: bool = True) -> None:
        self._blind, self._fills = blind, fills
        self._exact = ExactRetriever(VECTORS)

    def search(self, queries, k, *, exclude=None, allow=None) -> SearchResult:
        barred = [sorted(self._blind | {int(r) for r in rows}) for rows in (exclude or [[]] * len(queries))]
        found = self._exact.search(queries, k, exclude=barred)
        if not self._fills:
            found.rows[:, k // 2 :], found.scores[:, k // 2 :] = -1, -np.inf
            return SearchResult(found.rows, found.scores, np.minimum(found.found, k // 2))
        return found


def test_an_exact_index_loses_nothing() -> None:
    exact = ExactRetriever(VECTORS)
    measured = measure_index(exact, exact, QUERIES, BUCKETS, 10, info={"bytes": 12, "parameters": {"a": 1}, "x": 0})
    assert measured["recall_vs_exact@10"] == 1.0
    assert measured["by_bucket"] == {"head": 1.0, "torso": 1.0, "tail": 1.0}
    assert measured["fill_rate"] == 1.0
    assert (measured["kind"], measured["is_exact"], measured["bytes"]) == ("exact", True, 12)
    assert 0 < measured["latency_ms"]["p50"] <= measured["latency_ms"]["p99"]
    assert measured["latency_ms"]["queries"] == 30
    assert "x" not in measured


def test_an_index_blind_to_the_tail_shows_it_in_the_tail() -> None:
    tail = set(range(25, 50))
    measured = measure_index(BlindRetriever(tail), ExactRetriever(VECTORS), QUERIES, BUCKETS, 10)
    order = np.argsort(-(QUERIES @ VECTORS.T), axis=1)[:, :10]
    assert measured["recall_vs_exact@10"] == pytest.approx((order < 25).mean())
    assert measured["by_bucket"] == {"head": 1.0, "torso": 1.0, "tail": 0.0}
    low, high = measured["ci95"]
    assert low < measured["recall_vs_exact@10"] < high


def test_half_filled_lists_show_in_the_fill_rate() -> None:
    measured = measure_index(BlindRetriever(set(), fills=False), ExactRetriever(VECTORS), QUERIES, BUCKETS, 10)
    assert measured["fill_rate"] == 0.5
    assert measured["recall_vs_exact@10"] == 0.5


def test_exclusions_hold_for_both_and_do_not_count_as_missing() -> None:
    exclude = [np.arange(45, dtype=np.int32)] * 30
    exact = ExactRetriever(VECTORS)
    measured = measure_index(exact, exact, QUERIES, BUCKETS, 10, exclude=exclude)
    assert measured["recall_vs_exact@10"] == 1.0
    assert measured["fill_rate"] == 1.0  # five eligible rows, five found
    assert measured["by_bucket"] == {"tail": 1.0}


def test_a_list_longer_than_the_index_is_full_when_it_holds_everything() -> None:
    exact = ExactRetriever(VECTORS)
    measured = measure_index(exact, exact, QUERIES[:1], BUCKETS, 100)
    assert measured["recall_vs_exact@100"] == 1.0
    assert measured["fill_rate"] == 1.0
    assert measured["ci95"] == [0.0, 1.0]  # one query says nothing about others


def test_without_queries_nothing_is_claimed() -> None:
    exact = ExactRetriever(VECTORS)
    measured = measure_index(exact, exact, QUERIES[:0], BUCKETS, 10)
    assert measured == {"kind": "exact", "is_exact": True, "k": 10, "queries": 0}
