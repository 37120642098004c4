"""Exact top-k of score matrices with a stated tie rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["shuffle_ties", "top_k"]

_LOW = np.uint64(0xFFFFFFFF)
_FORBIDDEN = np.uint64(0x007FFFFF)  # what -inf becomes in the order of integers
_CELLS = 1 << 17  # scores worked on at once, so that they stay in the processor's cache


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int32]:
    """Return the columns of the k largest scores of each row; ties go to the smaller column.

    Args:
        scores: [rows, columns] float32 without NaN; ``-inf`` marks columns that may not be returned.
        k: how many, at least 0; more than there are columns gives padding.

    Returns:
        [rows, k] int32, best first, padded with -1.

    Example:
        >>> top_k(np.array([[0.5, 0.9, 0.5]], dtype=np.float32), 4).tolist()
        [[1, 0, 2, -1]]
    """
    rows, columns = scores.shape
    result = np.full((rows, k), -1, dtype=np.int32)
    step = max(1, _CELLS // max(1, columns))
    for start in range(0, rows, step):
        found = _top_k(scores[start : start + step], k)
        result[start : start + step, : found.shape[1]] = found
    return result


def _top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int32]:
    columns = scores.shape[1]
    bits = (scores + np.float32(0.0)).view(np.uint32)  # adding zero turns -0.0 into 0.0
    # Flip the bits so that unsigned integers are ordered as the floats are: all of a negative, the sign of a positive.
    ordered = bits ^ ((bits.view(np.int32) >> 31).view(np.uint32) | np.uint32(0x80000000))
    # One integer a cell whose order is (score, smaller column first), so that a partition is exact under ties.
    keys = ordered.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= _LOW - np.arange(columns, dtype=np.uint64)
    if k < columns:
        keys = np.partition(keys, columns - k, axis=1)[:, columns - k :]
    keys = np.sort(keys, axis=1)[:, ::-1]
    found = (_LOW - (keys & _LOW)).astype(np.int32)
    found[(keys >> np.uint64(32)) == _FORBIDDEN] = -1
    return found


def shuffle_ties(
    rows: NDArray[np.int32], scores: NDArray[np.float32], queries: NDArray[np.int64], seed: int
) -> NDArray[np.int32]:
    """Reorder each list so that equal scores stand in an order drawn from ``seed`` and the query, not from the rows.

    Rows are often sorted by popularity, so "ties by row" would lend a model without any opinion the recall of the
    bestseller list. After this it gets what chance gives.

    Args:
        rows: [queries, k] by score, highest first, padded with -1.
        scores: [queries, k] their scores, padded with -inf.
        queries: [queries] a number that names each query, so that the order does not depend on the batch.
        seed: of the order.
    """
    noise = _mix(rows.astype(np.uint64) + _mix(queries.astype(np.uint64) + np.uint64(seed))[:, None])
    noise[rows < 0] = np.uint64(0xFFFFFFFFFFFFFFFF)
    order = np.lexsort((noise, -scores), axis=1)
    return np.take_along_axis(rows, order, axis=1)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64-bit integers that scatters neighbours."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
