from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.config import TrainingConfig
from recsys_cg.errors import RepresentationCollapseError
from recsys_cg.model.geometry import GeometryProbe, norm_popularity_correlation, refuse_collapse

HEALTHY = {"effective_rank": 30.0, "mean_pairwise_similarity": 0.2, "uniformity": -2.5}


def test_norms_that_grow_with_popularity_correlate() -> None:
    counts = np.array([0, 9, 99, 999])
    norms = 1.0 + np.log1p(counts)
    directions = np.eye(4)
    assert norm_popularity_correlation(directions * norms[:, None], counts) == pytest.approx(1.0)
    assert norm_popularity_correlation(directions * norms[::-1, None], counts) == pytest.approx(-1.0)
    assert norm_popularity_correlation(directions, counts) == 0.0


def test_the_probe_is_frozen_and_measures_before_and_after_normalisation() -> None:
    rng = np.random.default_rng(0)
    counts = np.arange(3000)
    embedded = rng.normal(size=(3000, 4)).astype(np.float32)
    queries = embedded[:10] / np.linalg.norm(embedded[:10], axis=1, keepdims=True)
    probe = GeometryProbe(counts, seed=1)
    first = probe.measure(queries, np.arange(10, dtype=np.int32), embedded)
    assert first == probe.measure(queries, np.arange(10, dtype=np.int32), embedded)
    assert first["alignment"] == pytest.approx(0.0, abs=1e-6)
    assert first["effective_rank"] == pytest.approx(4.0, abs=0.01)


@pytest.mark.parametrize(
    ("name", "value"), [("effective_rank", 1.9), ("mean_pairwise_similarity", 0.96), ("effective_rank", float("nan"))]
)
def test_collapse_is_refused_with_its_figures(name: str, value: float) -> None:
    refuse_collapse(HEALTHY, TrainingConfig(), dim=64, items=1000, epoch=3)
    with pytest.raises(RepresentationCollapseError, match=r"epoch 3: effective rank .* mean pairwise similarity"):
        refuse_collapse({**HEALTHY, name: value}, TrainingConfig(), dim=64, items=1000, epoch=3)


def test_few_items_or_dimensions_are_held_to_what_they_can_reach() -> None:
    refuse_collapse({**HEALTHY, "effective_rank": 1.6}, TrainingConfig(), dim=64, items=3, epoch=1)
    refuse_collapse({**HEALTHY, "effective_rank": 1.6}, TrainingConfig(), dim=2, items=1000, epoch=1)
