"""The state of a release's vectors: their geometry, whether they are whole, and whether they are stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.geometry import measure_geometry

__all__ = ["check_vectors", "measure_freshness", "measure_vector_geometry", "rank_correlation"]

_BLOCK = 65_536
_SAMPLE = 4096
_HOUR_US = 3.6e9


def check_vectors(vectors: NDArray[np.float32]) -> dict[str, Any]:
    """Return the report's ``vectors`` part: rows with a NaN or an infinity, and the others' largest ``| |x| - 1 |``.

    Args:
        vectors: [rows, dim], possibly mapped from disk; read block by block.
    """
    broken, error = 0, 0.0
    for start in range(0, len(vectors), _BLOCK):
        block = np.asarray(vectors[start : start + _BLOCK], dtype=np.float64)
        finite = np.isfinite(block).all(axis=1)
        broken += int((~finite).sum())
        if finite.any():
            error = max(error, float(np.abs(np.linalg.norm(block[finite], axis=1) - 1.0).max()))
    return {"vectors": len(vectors), "not_finite": broken, "max_norm_error": error}


def measure_vector_geometry(
    queries: NDArray[np.float32],
    positives: NDArray[np.float32],
    items: NDArray[np.float32],
    *,
    seed: int,
    raw_norms: NDArray[np.float32] | None = None,
    train_counts: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Return the report's ``geometry`` part from seeded samples of at most 4,096 rows; all of them are finite.

    Args:
        queries: [pairs, dim] unit vectors of queries, at least one.
        positives: [pairs, dim] unit vectors of one target each.
        items: [items, dim] unit vectors, at least two.
        seed: of the samples.
        raw_norms: [items] norms before normalisation. Unit vectors have none, so without them
            ``norm_popularity_correlation`` is None: not measured.
        train_counts: [items] for the correlation (Spearman's) with ``raw_norms``.
    """
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.permutation(len(queries))[:_SAMPLE])
    chosen = np.sort(rng.permutation(len(items))[:_SAMPLE])
    correlation = None
    if raw_norms is not None and train_counts is not None:
        correlation = rank_correlation(raw_norms, train_counts)
    measured = measure_geometry(queries[pairs], positives[pairs], np.asarray(items[chosen]))
    return {**vars(measured), "norm_popularity_correlation": correlation}


def rank_correlation(a: NDArray[Any], b: NDArray[Any]) -> float | None:
    """Return Spearman's correlation, ties by their mean rank, in [-1, 1]; None where one side is constant."""
    ranks = [_mean_ranks(np.asarray(side)) for side in (a, b)]
    centred = [side - side.mean() for side in ranks]
    scale = float(np.sqrt(np.square(centred[0]).sum() * np.square(centred[1]).sum()))
    return float((centred[0] * centred[1]).sum() / scale) if scale > 0 else None


def _mean_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: NDArray[np.float64] = (ends - (counts - 1) / 2.0)[inverse]
    return result


def measure_freshness(
    release_items: pa.Table,
    catalogue: pa.Table,
    *,
    encoder_digest: str,
    now_us: int,
    catalogue_us: int | None,
) -> dict[str, Any]:
    """Return the report's ``freshness`` part.

    Args:
        release_items: ``item_id``, ``content_digest``, ``encoder_digest`` of the release.
        catalogue: ``item_id``, ``content_digest`` of the items as they are now.
        encoder_digest: of the encoder that the release carries.
        now_us: the time of measuring.
        catalogue_us: the time that the catalogue stands for; None: not known.

    Returns:
        ``stale_fraction``: share of the release's items embedded by another encoder, or from other content than the
        catalogue now has (items that left the catalogue are not stale); ``items_without_vector``: items of the
        catalogue that the release lacks; ``catalogue_age_hours``.
    """
    places = pc.index_in(release_items.column("item_id"), value_set=catalogue.column("item_id").combine_chunks())
    current = catalogue.column("content_digest").take(places)
    other_content = pc.fill_null(pc.not_equal(release_items.column("content_digest"), current), fill_value=False)
    other_encoder = pc.not_equal(release_items.column("encoder_digest"), encoder_digest)
    stale = pc.sum(pc.or_(other_content, other_encoder)).as_py() or 0
    known = pc.sum(pc.is_valid(places)).as_py() or 0
    return {
        "stale_fraction": stale / release_items.num_rows if release_items.num_rows else 0.0,
        "items_without_vector": catalogue.num_rows - known,
        "catalogue_age_hours": None if catalogue_us is None else (now_us - catalogue_us) / _HOUR_US,
    }
