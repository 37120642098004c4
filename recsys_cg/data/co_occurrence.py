"""Who is met with whom: items that stand near each other in users' sequences."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Matrix", "windowed_co_occurrence", "without_diagonal"]

Matrix: TypeAlias = "sparse.csr_array[Any, tuple[int, int]]"

_PAIRS = 40_000_000


def windowed_co_occurrence(
    rows: NDArray[np.integer[Any]], owners: NDArray[np.integer[Any]], items: int, *, window: int, decay: float
) -> Matrix:
    """Return [items, items] float32: meetings within ``window`` steps of one user's sequence, zero diagonal.

    Two interactions g steps apart count ``decay ** (g - 1)``, in both directions. The window shrinks where it would
    make more than 40 million pairs.

    Args:
        rows: int [interactions], item_row, user by user in order of time.
        owners: int [interactions], the user of each.
        items: number of items.
        window: steps, at least 1.
        decay: in (0, 1].
    """
    shape = (items, items)
    counts = sparse.csr_array(shape, dtype=np.float32)
    for gap in range(1, min(window, max(1, _PAIRS // max(1, len(rows))), len(rows) - 1) + 1):
        together = owners[gap:] == owners[:-gap]
        left, right = rows[:-gap][together], rows[gap:][together]
        weights = np.full(len(left), decay ** (gap - 1), dtype=np.float32)
        counts = counts + sparse.csr_array((weights, (left, right)), shape=shape)
    return without_diagonal(sparse.csr_array(counts + counts.T))


def without_diagonal(counts: Matrix) -> Matrix:
    """Return the matrix without its diagonal, [items, items]."""
    pairs = counts.tocoo()
    rows, columns = pairs.coords
    apart = rows != columns
    return sparse.csr_array((pairs.data[apart], (rows[apart], columns[apart])), shape=counts.shape)
