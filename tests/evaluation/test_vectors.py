from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from recsys_cg.evaluation import vectors as module
from recsys_cg.evaluation.vectors import check_vectors, measure_freshness, measure_vector_geometry, rank_correlation
from recsys_cg.geometry import l2_normalise


def unit(rows: int, seed: int = 0) -> np.ndarray:
    return l2_normalise(np.random.default_rng(seed).normal(size=(rows, 8)))


@pytest.mark.parametrize("block", [1, 3, 1000])
def test_broken_and_long_vectors_are_counted_in_every_block(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    vectors = unit(10)
    vectors[2, 3], vectors[7, 0] = np.nan, np.inf
    vectors[9] *= 1.5
    checked = check_vectors(vectors)
    assert checked["vectors"] == 10
    assert checked["not_finite"] == 2
    assert checked["max_norm_error"] == pytest.approx(0.5, abs=1e-6)
    assert check_vectors(unit(5))["max_norm_error"] < 1e-6
    assert check_vectors(np.zeros((0, 8), dtype=np.float32)) == {"vectors": 0, "not_finite": 0, "max_norm_error": 0.0}


def test_geometry_of_a_spread_and_of_a_collapsed_catalogue() -> None:
    items = unit(300)
    spread = measure_vector_geometry(items[:50], items[:50], items, seed=0)
    assert spread["alignment"] == pytest.approx(0.0, abs=1e-6)
    assert abs(spread["mean_pairwise_similarity"]) < 0.05
    assert spread["effective_rank"] > 7.5
    assert spread["norm_popularity_correlation"] is None
    same = np.tile(items[:1], (300, 1))
    collapsed = measure_vector_geometry(same[:50], same[:50], same, seed=0)
    assert collapsed["mean_pairwise_similarity"] == pytest.approx(1.0, abs=1e-6)
    assert collapsed["effective_rank"] == pytest.approx(1.0, abs=1e-3)


def test_large_catalogues_are_sampled_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 20)
    items = unit(300)
    first, again, other = (measure_vector_geometry(items, items, items, seed=s) for s in (1, 1, 2))
    assert first == again
    assert first["uniformity"] != other["uniformity"]


def test_norms_are_correlated_with_popularity_by_rank() -> None:
    rng = np.random.default_rng(0)
    norms, counts = rng.random(50).astype(np.float32), rng.integers(0, 6, 50)
    assert rank_correlation(norms, counts) == pytest.approx(stats.spearmanr(norms, counts).statistic, abs=1e-12)
    assert rank_correlation(norms, norms * 3) == pytest.approx(1.0)
    assert rank_correlation(norms, np.ones(50)) is None
    items = unit(50)
    measured = measure_vector_geometry(items, items, items, seed=0, raw_norms=norms, train_counts=counts)
    assert measured["norm_popularity_correlation"] == rank_correlation(norms, counts)


def test_staleness_counts_other_encoders_and_changed_content_but_not_departed_items() -> None:
    release = pa.table(
        {
            "item_id": ["same", "changed", "gone", "old"],
            "content_digest": ["1", "2", "3", "4"],
            "encoder_digest": ["e", "e", "e", "before"],
        }
    )
    catalogue = pa.table({"item_id": ["old", "new", "changed", "same"], "content_digest": ["4", "9", "two", "1"]})
    fresh = measure_freshness(release, catalogue, encoder_digest="e", now_us=7_200_000_000, catalogue_us=0)
    assert fresh == {"stale_fraction": 0.5, "items_without_vector": 1, "catalogue_age_hours": 2.0}
    unknown_age = measure_freshness(release.slice(0, 1), catalogue, encoder_digest="e", now_us=0, catalogue_us=None)
    assert unknown_age == {"stale_fraction": 0.0, "items_without_vector": 3, "catalogue_age_hours": None}
