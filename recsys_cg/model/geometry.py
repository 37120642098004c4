"""The geometry of the embeddings on a frozen probe, epoch after epoch, and the stop when it collapses."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import TrainingConfig
from recsys_cg.errors import RepresentationCollapseError
from recsys_cg.geometry import l2_normalise, measure_geometry

__all__ = ["GeometryProbe", "norm_popularity_correlation", "refuse_collapse"]

_MOST_ITEMS = 2048


class GeometryProbe:
    """Items that are measured every epoch, drawn once.

    Args:
        counts: int64 [items], training events an item.
        seed: seed of the sample.
    """

    def __init__(self, counts: NDArray[np.int64], *, seed: int) -> None:
        rows = np.random.default_rng([seed, 1]).permutation(len(counts))[:_MOST_ITEMS]
        self._rows = np.sort(rows)
        self._counts = counts

    def measure(
        self, queries: NDArray[np.float32], positives: NDArray[np.int32], embedded: NDArray[np.float32]
    ) -> dict[str, float]:
        """Measure the geometry of one moment; needs at least two items and one pair.

        Args:
            queries: float32 [pairs, dim], unit norm.
            positives: int32 [pairs], item_row of each query's target.
            embedded: float32 [items, dim], item embeddings before normalisation.

        Returns:
            The fields of `recsys_cg.geometry.Geometry`, and ``norm_popularity_correlation``.
        """
        unit = l2_normalise(embedded)
        figures = asdict(measure_geometry(queries, unit[positives], unit[self._rows]))
        figures["norm_popularity_correlation"] = norm_popularity_correlation(embedded, self._counts)
        return figures


def norm_popularity_correlation(embedded: NDArray[np.float32], counts: NDArray[np.int64]) -> float:
    """Return Pearson's correlation of an embedding's norm with log(1 + count), in [-1, 1]; 0 where one is constant."""
    norms = np.linalg.norm(np.asarray(embedded, dtype=np.float64), axis=1)
    popularity = np.log1p(np.asarray(counts, dtype=np.float64))
    norms, popularity = norms - norms.mean(), popularity - popularity.mean()
    scale = np.sqrt(np.square(norms).sum() * np.square(popularity).sum())
    return float((norms * popularity).sum() / scale) if scale > 0 else 0.0


def refuse_collapse(figures: dict[str, float], config: TrainingConfig, *, dim: int, items: int, epoch: int) -> None:
    """Raise when the items lost their geometry.

    A catalogue of few items, or few dimensions, cannot reach a high rank: the limit is at most half of the smaller.

    Raises:
        RepresentationCollapseError: the effective rank is below ``min_effective_rank`` or the mean pairwise similarity
            above ``max_mean_similarity``; the message names the figures and their limits.
    """
    rank, similarity = figures["effective_rank"], figures["mean_pairwise_similarity"]
    least = min(config.min_effective_rank, 0.5 * min(dim, items))
    if rank >= least and similarity <= config.max_mean_similarity:
        return
    raise RepresentationCollapseError(
        f"the item embeddings collapsed in epoch {epoch}: effective rank {rank:.2f} (at least {least:g}), mean "
        f"pairwise similarity {similarity:.3f} (at most {config.max_mean_similarity:g}), uniformity "
        f"{figures['uniformity']:.3f}; "
        "raise the number of negatives, or set model.temperature lower and training.learning_rate lower"
    )
