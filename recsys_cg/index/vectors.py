"""Refusals before native code: vectors that ScaNN would die of or answer wrongly for, and ids that repeat."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recsys_cg.errors import IndexBuildError
from recsys_cg.index.base import Vectors
from recsys_cg.index.requests import NORM_TOLERANCE

__all__ = ["check_vectors", "refuse_duplicate_ids"]

_BLOCK_ROWS = 1 << 16
_SHOWN = 5


def check_vectors(vectors: Vectors) -> None:
    """Raise IndexBuildError unless ``vectors`` is float32 [items, dim], C-contiguous, each row finite and of unit norm.

    One NaN or a row of 1e38 ends the process in a tree build; rows that are not of unit norm are answered wrongly
    without a word. The message names the first rows at fault.
    """
    if vectors.ndim != 2 or vectors.shape[1] < 1:
        raise IndexBuildError(f"vectors have shape {list(vectors.shape)}; [items, dim] with dim >= 1 is indexed")
    if vectors.dtype != np.float32 or not vectors.flags.c_contiguous:
        raise IndexBuildError(
            f"vectors are {vectors.dtype}, contiguous: {vectors.flags.c_contiguous}; give float32 in C order"
        )
    if len(vectors) > np.iinfo(np.int32).max:
        raise IndexBuildError(f"{len(vectors):,} vectors; rows are int32, so at most 2,147,483,647 are indexed")
    bad: list[str] = []
    count = 0
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        with np.errstate(all="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", block, block))
            wrong = np.flatnonzero(~(np.abs(norms - 1.0) <= NORM_TOLERANCE))
        count += len(wrong)
        bad += [f"row {start + row} ({_describe(block[row])})" for row in wrong[: _SHOWN - len(bad)]]
    if count:
        more = ", ..." if count > len(bad) else ""
        raise IndexBuildError(
            f"{count:,} of {len(vectors):,} vectors are not finite and of unit norm: {', '.join(bad)}{more}; "
            "L2-normalise the item vectors and find out why these are broken"
        )


def _describe(row: Vectors) -> str:
    if np.isnan(row).any():
        return "NaN"
    if np.isinf(row).any():
        return "infinite"
    norm = float(np.linalg.norm(row.astype(np.float64)))
    return "all zero" if norm == 0.0 else f"norm {norm:.4g}"


def refuse_duplicate_ids(ids: Iterable[str]) -> None:
    """Raise IndexBuildError, naming the first ids that occur more than once and their rows."""
    first: dict[str, int] = {}
    repeated: list[str] = []
    count = 0
    for row, identifier in enumerate(ids):
        earlier = first.setdefault(identifier, row)
        if earlier != row:
            count += 1
            if len(repeated) < _SHOWN:
                repeated.append(f"{identifier!r} in rows {earlier} and {row}")
    if count:
        raise IndexBuildError(f"{count:,} item ids repeat: {', '.join(repeated)}; one vector an item is indexed")
