"""The geometry of embeddings: the one normalisation, and the figures that show collapse before a loss does.

NumPy only. Everything that compares vectors, in training, index or serving, agrees with `l2_normalise`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NORM_EPSILON",
    "Geometry",
    "alignment",
    "effective_rank",
    "l2_normalise",
    "mean_pairwise_similarity",
    "measure_geometry",
    "uniformity",
]

NORM_EPSILON = 1e-12
"""Lower bound of the squared norm in every L2 normalisation of the project."""

Floats = NDArray[np.floating]


def l2_normalise(vectors: Floats) -> NDArray[np.float32]:
    """Return ``x / sqrt(max(sum(x^2), 1e-12))`` along the last axis, as float32; a zero vector stays zero.

    Example:
        >>> l2_normalise(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()  # float32
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    wide = np.asarray(vectors, dtype=np.float64)
    squared = np.square(wide).sum(axis=-1, keepdims=True)
    unit: NDArray[np.float32] = (wide / np.sqrt(np.maximum(squared, NORM_EPSILON))).astype(np.float32)
    return unit


def alignment(queries: Floats, positives: Floats) -> float:
    """Return the mean squared distance of positive pairs, in [0, 4] for unit vectors; lower is better.

    Wang and Isola 2020 (arXiv 2005.10242), equation 1 with alpha = 2.

    Args:
        queries: [pairs, dim], at least one pair.
        positives: [pairs, dim], row i belongs to row i of ``queries``.

    Example:
        >>> alignment(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
        2.0
    """
    _require_rows(queries, 1)
    difference = np.asarray(queries, dtype=np.float64) - np.asarray(positives, dtype=np.float64)
    return float(np.square(difference).sum(axis=1).mean())


def uniformity(vectors: Floats, *, t: float = 2.0) -> float:
    """Return ``log mean exp(-t |x - y|^2)`` over distinct pairs: 0 when all are equal, about -2 dim / (dim + 2) ... -4.

    Wang and Isola 2020, equation 2; lower is more uniform.

    Args:
        vectors: [points, dim] unit vectors, at least two. Cost is points^2: pass a sample of a few thousand.
        t: the kernel's sharpness, above 0.

    Example:
        >>> uniformity(np.array([[1.0, 0.0], [-1.0, 0.0]]))  # -t * 2^2
        -8.0
    """
    _require_rows(vectors, 2)
    wide = np.asarray(vectors, dtype=np.float64)
    squared = np.square(wide).sum(axis=1)
    distances = np.maximum(squared[:, None] + squared[None, :] - 2.0 * wide @ wide.T, 0.0)
    pairs = distances[np.triu_indices(len(wide), k=1)]
    return float(np.log(np.exp(-t * pairs).mean()))


def mean_pairwise_similarity(vectors: Floats) -> float:
    """Return the mean dot product of distinct rows, in [-1/(n-1), 1] for unit vectors; 1 is total collapse.

    Example:
        >>> mean_pairwise_similarity(np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]))  # (1 - 1 - 1) / 3
        -0.3333333333333333
    """
    _require_rows(vectors, 2)
    wide = np.asarray(vectors, dtype=np.float64)
    count = len(wide)
    total = np.square(wide.sum(axis=0)).sum() - np.square(wide).sum()
    return float(total / (count * (count - 1)))


def effective_rank(vectors: Floats) -> float:
    """Return exp of the entropy of the normalised singular values, in [1, dim]; 1 is a line, 0 rows of zeros only.

    Roy and Vetterli 2007, definition 1, of the matrix as it is (not centred), so that a common direction counts.

    Example:
        >>> round(effective_rank(np.eye(3)), 6)
        3.0
    """
    _require_rows(vectors, 1)
    singular = np.linalg.svd(np.asarray(vectors, dtype=np.float64), compute_uv=False)
    total = singular.sum()
    if total <= 0.0:
        return 0.0
    shares = singular[singular > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


@dataclass(frozen=True)
class Geometry:
    """The figures of one probe; see the functions of the same names."""

    alignment: float
    uniformity: float
    mean_pairwise_similarity: float
    max_pairwise_similarity: float
    effective_rank: float


def measure_geometry(queries: Floats, positives: Floats, items: Floats) -> Geometry:
    """Measure query-item alignment and the spread of the items, all of unit norm.

    Args:
        queries: [pairs, dim], as for `alignment`.
        positives: [pairs, dim], as for `alignment`.
        items: [points, dim] item vectors, distinct items, at least two and a few thousand at most.
    """
    wide = np.asarray(items, dtype=np.float64)
    similarities = wide @ wide.T
    np.fill_diagonal(similarities, -np.inf)
    return Geometry(
        alignment=alignment(queries, positives),
        uniformity=uniformity(wide),
        mean_pairwise_similarity=mean_pairwise_similarity(wide),
        max_pairwise_similarity=float(similarities.max()),
        effective_rank=effective_rank(wide),
    )


def _require_rows(vectors: Floats, least: int) -> None:
    if vectors.ndim != 2 or len(vectors) < least:
        raise ValueError(f"expected [rows, dim] with at least {least} row(s), got shape {vectors.shape}")
