"""Which items may be answered: what is available at the time of the request."""

from __future__ import annotations

import bisect

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Availability", "may_be_answered"]

_ALWAYS = np.iinfo(np.int64)
_KEPT = 4


class Availability:
    """When each item may be shown: from ``available_from_us`` on, until before ``available_until_us``.

    The answer changes only at the moments that the table names, so it is computed once between two of them and kept.

    Args:
        from_us, until_us: int64 columns, null where that side is open, in row order.
    """

    def __init__(self, from_us: pa.ChunkedArray, until_us: pa.ChunkedArray) -> None:
        limited = from_us.null_count < len(from_us) or until_us.null_count < len(until_us)
        self._from = _fill(from_us, _ALWAYS.min) if limited else None
        self._until = _fill(until_us, _ALWAYS.max) if limited else None
        self._moments = self._list_moments()
        self._known: dict[int, NDArray[np.bool_] | None] = {}

    def _list_moments(self) -> list[int]:
        if self._from is None or self._until is None:
            return []
        moments: list[int] = np.unique(np.concatenate([self._from, self._until])).tolist()
        return moments

    def at(self, time_us: int) -> NDArray[np.bool_] | None:
        """Return bool [items], which items are available at ``time_us``; None when all are.

        The array is shared: do not write to it. Equal spans of time give the same object.
        """
        if self._from is None or self._until is None:
            return None
        span = bisect.bisect_right(self._moments, time_us)
        known = self._known
        if span not in known:
            mask = (self._from <= time_us) & (time_us < self._until)
            mask.flags.writeable = False
            known = dict(list(known.items())[-(_KEPT - 1) :])
            known[span] = None if mask.all() else mask
            self._known = known
        return known[span]


def _fill(column: pa.ChunkedArray, value: int) -> NDArray[np.int64]:
    filled: NDArray[np.int64] = pc.fill_null(column, value).to_numpy()
    return filled


def may_be_answered(
    rows: NDArray[np.int32],
    *,
    exclude: NDArray[np.int32],
    available: NDArray[np.bool_] | None,
    allow: NDArray[np.int32] | None,
) -> NDArray[np.bool_]:
    """Return bool [len(rows)]: which of ``rows`` are not excluded, and available and allowed where that is limited."""
    eligible = ~np.isin(rows, exclude)
    if available is not None:
        eligible &= available[rows]
    if allow is not None:
        eligible &= np.isin(rows, allow)
    return eligible
