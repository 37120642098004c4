"""Checks of what a search is asked for, made before native code sees any of it."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import MetricMismatchError, SearchError
from recsys_cg.index.base import Allow, Exclude, Vectors

__all__ = [
    "LEAST_SQUARE",
    "MOST_SQUARE",
    "NORM_TOLERANCE",
    "check_allow",
    "check_exclude",
    "check_k",
    "check_queries",
    "refuse_outside",
]

NORM_TOLERANCE = 1e-3
"""How far the norm of a vector may be from one: float32 and LiteRT rounding stay well below, other metrics above."""

_INT32 = np.dtype(np.int32)
_MAX_RESULTS = 1 << 29
LEAST_SQUARE, MOST_SQUARE = (1.0 - NORM_TOLERANCE) ** 2, (1.0 + NORM_TOLERANCE) ** 2
"""Bounds of the squared norm of a query."""


def check_k(k: int, queries: int) -> int:
    """Return ``k`` as an int; raise SearchError where it is no integer, below 1, or too large to hold the results."""
    try:
        length = operator.index(k)
    except TypeError as error:
        raise SearchError(f"k = {k!r} is not an integer") from error
    if length < 1:
        raise SearchError(f"k = {length} asks for no results; ask for 1 or more")
    if length * max(queries, 1) > _MAX_RESULTS:
        raise SearchError(f"{queries} queries of k = {length} do not fit in memory; search in smaller batches")
    return length


def check_queries(queries: Vectors, dim: int) -> Vectors:
    """Return ``queries`` as C-contiguous float32 [queries, dim], each finite and of unit norm.

    Raises:
        SearchError: another shape or type, or a value that is NaN or infinite.
        MetricMismatchError: a norm more than `NORM_TOLERANCE` from one.
    """
    try:
        checked = np.ascontiguousarray(queries, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SearchError(f"queries are not an array of numbers: {error}") from error
    if checked.ndim != 2 or checked.shape[1] != dim:
        raise SearchError(f"queries have shape {list(checked.shape)}; this index takes [queries, {dim}]")
    if len(checked) == 1:
        wide = checked[0].astype(np.float64)  # squares of float32 cannot overflow
        if not LEAST_SQUARE <= wide.dot(wide) <= MOST_SQUARE:
            _refuse(checked)
    elif len(checked):
        squared = np.einsum("ij,ij->i", checked, checked)
        if not (squared.min() >= LEAST_SQUARE and squared.max() <= MOST_SQUARE):
            _refuse(checked)
    return checked


def _refuse(queries: Vectors) -> None:
    finite = np.isfinite(queries).all(axis=1)
    if not finite.all():
        raise SearchError(f"query {int(np.argmin(finite))} holds a NaN or an infinity")
    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    worst = int(np.argmax(np.abs(norms - 1.0)))
    raise MetricMismatchError(
        f"query {worst} has norm {norms[worst]:.4g}; the index compares unit vectors: L2-normalise the queries"
    )


def check_exclude(exclude: Exclude, queries: int) -> list[NDArray[np.int32]] | None:
    """Return one int32 array a query, or None where nothing is excluded; rows are not yet checked against a size.

    Raises:
        SearchError: not one array a query, or not of integers.
    """
    if len(exclude) != queries:
        raise SearchError(f"exclude holds {len(exclude)} lists for {queries} queries; give one a query")
    arrays = [_integers(rows, "exclude") for rows in exclude]
    return arrays if any(map(len, arrays)) else None


def _integers(rows: object, name: str) -> NDArray[np.int32]:
    array = np.asarray(rows)
    if array.dtype is _INT32 and array.ndim == 1:
        return array
    if array.ndim != 1:
        raise SearchError(f"{name} has shape {list(array.shape)}; rows are one-dimensional")
    if not len(array):
        return np.empty(0, dtype=np.int32)
    if array.dtype.kind not in "iu":
        raise SearchError(f"{name} holds {array.dtype}; rows are integers")
    if int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int32).max:
        raise SearchError(f"{name} holds row {int(array.min())} ... {int(array.max())}, outside the index")
    return array.astype(np.int32)


def refuse_outside(rows: NDArray[np.int32], size: int, name: str) -> None:
    """Raise SearchError where a row is not in [0, size)."""
    if len(rows) and not (rows.min() >= 0 and rows.max() < size):
        bad = int(rows[(rows < 0) | (rows >= size)][0])
        raise SearchError(f"{name} holds row {bad}; the index holds rows 0 to {size - 1}")


def check_allow(allow: Allow, size: int) -> NDArray[np.int32]:
    """Return the allowed rows, sorted and unique.

    Raises:
        SearchError: a mask of another length, a row outside [0, size), or neither mask nor integers.
    """
    array = np.asarray(allow)
    if array.dtype == np.bool_:
        if array.shape != (size,):
            raise SearchError(f"the allow mask has shape {list(array.shape)}; the index holds {size} items")
        return np.flatnonzero(array).astype(np.int32)
    rows = _integers(array, "allow")
    refuse_outside(rows, size, "allow")
    return np.unique(rows)
