"""Item-kNN: items met together are neighbours, and a history recommends the neighbours of its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from recsys_cg.data.co_occurrence import Matrix, without_diagonal
from recsys_cg.evaluation.baselines.matrices import history_matrix, interaction_matrix
from recsys_cg.evaluation.baselines.scored import recommend_by_score
from recsys_cg.evaluation.baselines.sessions import Sessions

__all__ = ["ItemKnn", "co_occurrence", "nearest"]

_LAST = 500


class ItemKnn:
    """Score items by the sum of their similarities to the history's items, each weighed by its age.

    Args:
        neighbours: [items, items] similarity of a history item (row) to its nearest candidates (columns).
        decay: weight of a history item against the next more recent one.
        settings: for the report.
    """

    name = "item_knn"

    def __init__(self, neighbours: Matrix, *, decay: float, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._neighbours, self._decay = neighbours, decay

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """See `System.recommend`."""
        return recommend_by_score(self._score, batch, k, self._neighbours.shape[0], allow)

    def _score(self, batch: pa.Table) -> NDArray[np.float32]:
        history = history_matrix(batch, self._neighbours.shape[0], decay=self._decay)
        return np.asarray((history @ self._neighbours).todense(), dtype=np.float32)


def co_occurrence(sessions: Sessions) -> Matrix:
    """Return [items, items] float32: how many users met both items (in their last 500 interactions), zero diagonal."""
    matrix = interaction_matrix(sessions, last=_LAST)
    return without_diagonal(sparse.csr_array(matrix.T @ matrix))


def nearest(counts: Matrix, meetings: NDArray[np.int64], *, shrink: float, neighbours: int) -> Matrix:
    """Return for each item its nearest neighbours by shrunk cosine, ``c_ij / (sqrt(n_i n_j) + shrink)``.

    Args:
        counts: [items, items] co-occurrence.
        meetings: [items] n, how often each item was met in training.
        shrink: at least 0; distrusts rare pairs.
        neighbours: kept a row; ties by the smaller column.
    """
    pairs = counts.sorted_indices().tocoo()
    rows, columns = pairs.coords
    roots = np.sqrt(np.maximum(meetings, 1).astype(np.float32))
    values = pairs.data / (roots[rows] * roots[columns] + np.float32(shrink))
    # One integer a pair in the order (row, highest value): the bits of floats that are not negative are ordered as
    # they are. Pairs come by row and column, so a stable sort leaves ties by the smaller column.
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    order = np.argsort((rows.astype(np.uint64) << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - bits), kind="stable")
    rows, columns, values = rows[order], columns[order], values[order]
    starts = np.searchsorted(rows, np.arange(counts.shape[0]))
    kept = np.arange(len(rows)) - starts[rows] < neighbours
    return sparse.csr_array((values[kept], (rows[kept], columns[kept])), shape=counts.shape)
