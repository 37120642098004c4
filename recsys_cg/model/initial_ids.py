"""Where the ids of items begin: near the items that people meet with them.

At random, an item that few met is still where it was drawn when training ends, and the first epochs go into finding
out what one pass over the log can count. So each id starts as its item's row of a factorised co-occurrence matrix:
positive pointwise mutual information of items within a few steps of one user's sequence, with smoothed contexts, whose
largest eigenvectors are weighed by the root of their eigenvalues (Levy, Goldberg and Dagan 2015, "Improving
Distributional Similarity with Lessons Learned from Word Embeddings"). It is what skip-gram with negative sampling tends
to (Levy and Goldberg 2014), in seconds. Since queries begin as sums of the items of their history
(`recsys_cg.model.query_tower`), the untrained model already is an item-kNN of ``dim`` dimensions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from recsys_cg.data.co_occurrence import Matrix, windowed_co_occurrence
from recsys_cg.model.inputs import Sequences

__all__ = ["co_occurrence_vectors", "positive_information", "symmetric_factors"]

_WINDOW: Final = 10
_DECAY: Final = 0.8
_SMOOTHING: Final = 0.75
_EVENTS: Final = 10_000_000
_DENSE: Final = 4
_TOLERANCE: Final = 1e-3
_SEED: Final = 0


def co_occurrence_vectors(sequences: Sequences, rows: NDArray[np.int32], *, dim: int) -> NDArray[np.float32]:
    """Place ids by what users meet within ten steps of their items.

    Of a log of more than ten million events as many users are read as make that many: every second one, or every
    third, and so on.

    Args:
        sequences: the training events.
        rows: int32 [items], row of each item in the id table, 0 for one without a training event.
        dim: coordinates.

    Returns:
        float32 [known + 1, dim], of unit norm; zeros for an item that is never met with another, and in row 0.
    """
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.starts))
    is_read = users % -(-sequences.events // _EVENTS) == 0
    met = rows[sequences.items[is_read]]
    counts = windowed_co_occurrence(met, users[is_read], int(rows.max()) + 1, window=_WINDOW, decay=_DECAY)
    information = positive_information(counts)
    factors = symmetric_factors(information, dim)
    factors[np.diff(information.indptr) == 0] = 0.0  # of a search that ends at a tolerance something is left there
    norms = np.linalg.norm(factors, axis=1)
    factors[norms > 0.0] /= norms[norms > 0.0, None]
    return factors


def positive_information(counts: Matrix) -> Matrix:
    """Return positive pointwise mutual information with smoothed contexts, made symmetric.

    ``max(0, log(c_ij / (n_i m_j)))``, where c sums to one, n is its row sums, and m is in proportion to ``n ** 0.75``.

    Args:
        counts: [items, items], symmetric, at least 0.
    """
    pairs = counts.tocoo()
    rows, columns = pairs.coords
    margins = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)
    contexts = margins**_SMOOTHING
    expected = margins[rows] * contexts[columns] / max(contexts.sum(), 1.0)
    known = pairs.data > 0
    information = np.zeros(len(pairs.data))
    information[known] = np.maximum(np.log(pairs.data[known] / expected[known]), 0.0)
    one_way = sparse.csr_array((information.astype(np.float32), (rows, columns)), shape=counts.shape)
    symmetric = sparse.csr_array((one_way + one_way.T) * np.float32(0.5))
    symmetric.eliminate_zeros()
    return symmetric


def symmetric_factors(matrix: Matrix, dim: int) -> NDArray[np.float32]:
    """Return F of float32 [items, dim] whose ``F F^T`` has the largest positive eigenvalues, as their roots.

    Args:
        matrix: float32 [items, items], symmetric.
        dim: at least 1; coordinates beyond the number of positive eigenvalues add nothing.
    """
    items = matrix.shape[0]
    if not matrix.nnz:
        return np.zeros((items, dim), dtype=np.float32)
    if items <= _DENSE * dim:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        start = np.random.default_rng(_SEED).normal(size=items).astype(np.float32)
        try:
            values, vectors = linalg.eigsh(matrix, k=dim, which="LA", tol=_TOLERANCE, v0=start)
        except linalg.ArpackNoConvergence as unfinished:  # what was found is a place to begin, too
            values, vectors = unfinished.eigenvalues, unfinished.eigenvectors
    weights: NDArray[Any] = np.sqrt(np.maximum(values[-dim:], 0.0))
    factors = np.zeros((items, dim), dtype=np.float32)
    factors[:, : len(weights)] = vectors[:, -dim:] * weights
    return factors
