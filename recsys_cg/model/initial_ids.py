"""Where the ids of items begin: near the items that people meet with them.

At random, an item that few met is still where it was drawn when training ends, and the first epochs go into finding
out what one pass over the log can count. So each id starts as its item's row of a factorised co-occurrence matrix:
positive pointwise mutual information of items within a few steps of one user's sequence, with smoothed contexts, whose
eigenvectors are weighed by the root of their eigenvalues (Levy, Goldberg and Dagan 2015, "Improving Distributional
Similarity with Lessons Learned from Word Embeddings": smoothing of 0.75, eigenvalue weighting of 0.5). There the matrix
is not symmetric and its singular vectors are taken; here queries and items share one space, so it is made symmetric and
its positive part is kept. Queries begin as sums of the items of their history (`recsys_cg.model.query_tower`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg
from threadpoolctl import threadpool_limits

from recsys_cg.data.co_occurrence import Matrix, windowed_co_occurrence
from recsys_cg.model.inputs import Sequences

__all__ = ["co_occurrence_vectors", "positive_information", "symmetric_factors"]

_WINDOW: Final = 10
_DECAY: Final = 0.8
_SMOOTHING: Final = 0.75
_EVENTS: Final = 10_000_000
_DENSE: Final = 4
_LANDMARKS: Final = 20_000
_LANDMARK_SHARE: Final = 0.95
_TOLERANCE: Final = 1e-3
_RESTARTS: Final = 40
_SEED: Final = 0


def co_occurrence_vectors(sequences: Sequences, rows: NDArray[np.int32], *, dim: int) -> NDArray[np.float32]:
    """Place ids by what users meet within ten steps of their items.

    Of a log of more than ten million events every second user is read, or every third, and so on, and of more than four
    million events fewer than ten steps (`windowed_co_occurrence`).

    Args:
        sequences: the training events.
        rows: int32 [items], row of each item in the id table, 0 for one without a training event.
        dim: coordinates.

    Returns:
        float32 [known + 1, dim], rows of unit norm; zeros in row 0 and for an item that shares nothing with those that
        are met most; columns of zeros where there are fewer positive eigenvalues than ``dim``.
    """
    users = np.repeat(np.arange(sequences.users), np.diff(sequences.starts))
    is_read = users % -(-sequences.events // _EVENTS) == 0
    met, users, known = rows[sequences.items[is_read]], users[is_read], int(rows.max()) + 1
    counts = windowed_co_occurrence(met, users, known, window=_WINDOW, decay=_DECAY)
    factors = _extend(positive_information(counts), _landmarks(counts), dim)
    norms = np.linalg.norm(factors, axis=1)
    is_placed = norms > _TOLERANCE * norms.max()  # below stands what the search for eigenvectors left over
    factors[~is_placed] = 0.0
    factors[is_placed] /= norms[is_placed, None]
    return factors


def _margins(counts: Matrix) -> NDArray[np.float64]:
    return np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)


def _landmarks(counts: Matrix) -> NDArray[np.intp]:
    """Return the items that are met most, which make up 95% of all meetings, at most 20,000 of them, rising."""
    margins = _margins(counts)
    order = np.argsort(-margins, kind="stable")
    before = np.cumsum(margins[order]) - margins[order]
    is_landmark = (before < _LANDMARK_SHARE * margins.sum()) & (margins[order] > 0.0)
    return np.sort(order[is_landmark][:_LANDMARKS])


def _extend(matrix: Matrix, landmarks: NDArray[np.intp], dim: int) -> NDArray[np.float32]:
    """Return factors of the landmarks among themselves, and of the others by what they share with landmarks.

    With ``P_LL = V diag(w) V^T`` they are ``P_L V diag(w)^-1/2``, which for landmarks is ``V diag(w)^1/2`` (Williams
    and Seeger 2001, "Using the Nystroem Method to Speed Up Kernel Machines"). The rarest items would otherwise take the
    largest eigenvectors for themselves: two that one user met and nobody else have the most information in common.
    """
    toward = sparse.csr_array(matrix[:, landmarks])
    among = symmetric_factors(sparse.csr_array(toward[landmarks]), dim)
    weights = np.square(among).sum(axis=0)
    scaled = np.divide(among, weights, out=np.zeros_like(among), where=weights > 0.0)
    factors: NDArray[np.float32] = toward @ scaled
    return factors


def positive_information(counts: Matrix) -> Matrix:
    """Return positive pointwise mutual information with smoothed contexts, made symmetric.

    ``max(0, log(c_ij / (n_i m_j)))``, where c sums to one, n is its row sums, and m is in proportion to ``n ** 0.75``.

    Args:
        counts: [items, items], symmetric, at least 0.
    """
    pairs = counts.tocoo()
    rows, columns = pairs.coords
    margins = _margins(counts)
    contexts = margins**_SMOOTHING
    expected = margins[rows] * contexts[columns] / contexts.sum()
    known = pairs.data > 0
    information = np.zeros(len(pairs.data))
    information[known] = np.maximum(np.log(pairs.data[known] / expected[known]), 0.0)
    one_way = sparse.csr_array((information.astype(np.float32), (rows, columns)), shape=counts.shape)
    symmetric = sparse.csr_array((one_way + one_way.T) * np.float32(0.5))
    symmetric.eliminate_zeros()
    return symmetric


def symmetric_factors(matrix: Matrix, dim: int) -> NDArray[np.float32]:
    """Return F of float32 [items, dim] whose ``F F^T`` has the largest positive eigenvalues, as their roots.

    A large matrix is searched by Lanczos iterations, seeded, on one thread: products with one vector gain nothing by
    more, and lose several times over on a busy machine. Where they do not end, what they found is taken.

    Args:
        matrix: float32 [items, items], symmetric.
        dim: at least 1; columns are 0 for which no eigenvalue above a thousandth of the largest is left.
    """
    items = matrix.shape[0]
    factors = np.zeros((items, dim), dtype=np.float32)
    if not matrix.nnz:
        return factors
    with threadpool_limits(1, user_api="blas"):
        values, vectors = _largest(matrix, dim)
    weights: NDArray[Any] = np.where(values > _TOLERANCE * values.max(initial=0.0), values, 0.0) ** 0.5
    factors[:, : len(weights)] = vectors * weights
    return factors


def _largest(matrix: Matrix, dim: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return at most ``dim`` largest eigenvalues, rising, and their vectors [items, eigenvalues]."""
    items = matrix.shape[0]
    if items <= _DENSE * dim:
        values, vectors = np.linalg.eigh(matrix.toarray())
        return values[-dim:], vectors[:, -dim:]
    rng = np.random.default_rng(_SEED)
    start = rng.normal(size=items).astype(np.float32)
    try:
        return linalg.eigsh(matrix, k=dim, which="LA", tol=_TOLERANCE, maxiter=_RESTARTS, v0=start, rng=rng)
    except linalg.ArpackNoConvergence as unfinished:
        return unfinished.eigenvalues, unfinished.eigenvectors
