"""EASE: a linear item-item model in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import linalg

from recsys_cg.evaluation.baselines.matrices import history_matrix, interaction_matrix
from recsys_cg.evaluation.baselines.scored import recommend_by_score
from recsys_cg.evaluation.baselines.sessions import Sessions

__all__ = ["Ease", "fit_ease"]


class Ease:
    """Score items by ``h B``: the query's history, weighed by age, times the item-item weights.

    Args:
        weights: [known, known] float32, zero diagonal.
        known: [known] item_rows that had a training interaction; the others score 0.
        items: number of items.
        decay: weight of a history item against the next more recent one.
        settings: for the report.
    """

    name = "ease"

    def __init__(
        self,
        weights: NDArray[np.float32],
        known: NDArray[np.int64],
        items: int,
        *,
        decay: float,
        settings: Mapping[str, Any],
    ) -> None:
        self.settings = settings
        self._weights, self._known, self._items, self._decay = weights, known, items, decay

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """See `System.recommend`."""
        return recommend_by_score(self._score, batch, k, self._items, allow)

    def _score(self, batch: pa.Table) -> NDArray[np.float32]:
        history = history_matrix(batch, self._items, decay=self._decay)[:, self._known]
        scores = np.zeros((batch.num_rows, self._items), dtype=np.float32)
        scores[:, self._known] = history @ self._weights
        return scores


def fit_ease(sessions: Sessions, regularisation: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return ([known, known] weights, [known] item_rows), ``B = I - P / diag(P)``, ``P = (X'X + lambda I)^-1``.

    Steck 2019 (arXiv 1905.03375), equation 8. X is binary. Cost: known^3 operations and 8 known^2 bytes.
    """
    matrix = interaction_matrix(sessions)
    known = np.flatnonzero(np.asarray(matrix.sum(axis=0)).ravel() > 0)
    matrix = matrix[:, known]
    gram = np.asarray((matrix.T @ matrix).todense(), dtype=np.float32, order="F")
    gram[np.diag_indices_from(gram)] += np.float32(regularisation)
    if not len(known):
        return np.zeros((0, 0), dtype=np.float32), known
    factor = linalg.cholesky(gram, lower=True, overwrite_a=True, check_finite=False)
    inverse, failed = linalg.lapack.spotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise linalg.LinAlgError(f"EASE: the Gram matrix with lambda = {regularisation} cannot be inverted")
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = np.ascontiguousarray(inverse / -np.diag(inverse)[None, :], dtype=np.float32)
    np.fill_diagonal(weights, 0.0)
    return weights, known
