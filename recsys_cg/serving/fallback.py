"""What is answered when nothing is known of a user: the most popular items, filtered as candidates are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsys_cg.serving.eligibility import may_be_answered
from recsys_cg.trends import Trend

__all__ = ["Popularity"]

_CHUNK = 256


class Popularity:
    """Items in the order of training popularity.

    Args:
        counts: int64 [items], training events of each item.
        last_seen_us: int64 [items], its last training event; ties in count go to the more recent one, then to the
            lower row.
    """

    def __init__(self, counts: NDArray[np.int64], last_seen_us: NDArray[np.int64]) -> None:
        self._order = np.lexsort((np.arange(len(counts)), -last_seen_us, -counts)).astype(np.int32)
        self._rank = np.empty(len(counts), np.int32)
        self._rank[self._order] = np.arange(len(counts), dtype=np.int32)

    def sort(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the distinct ``rows``, most popular first."""
        return self._order[np.unique(self._rank[rows])]

    def top_rows(self, k: int) -> NDArray[np.int32]:
        """Return int32 [<= k], the most popular rows of all."""
        return self._order[:k]

    def top(
        self,
        k: int,
        *,
        exclude: NDArray[np.int32],
        available: NDArray[np.bool_] | None,
        allow: NDArray[np.int32] | None,
        trend: Trend | None = None,
    ) -> NDArray[np.int32]:
        """Return int32 [<= k], the most popular rows that may be answered, most popular first.

        What trends comes before all else, by its counts.

        Args:
            k: rows wanted, at least 1.
            exclude: rows never returned.
            available: bool [items], or None when all are.
            allow: the only rows that may be returned, or None for all.
            trend: what was asked for of late, if that is known.
        """
        if trend is not None:
            eligible = may_be_answered(trend.rows, exclude=exclude, available=available, allow=allow)
            first = trend.among(eligible).by_count()[:k]
            rest = self.top(k, exclude=np.union1d(exclude, first), available=available, allow=allow)
            return np.concatenate([first, rest])[:k]
        order = self._order if allow is None else self.sort(allow)
        parts: list[NDArray[np.int32]] = []
        found, start, size = 0, 0, k + len(exclude) + _CHUNK
        while found < k and start < len(order):
            chunk = order[start : start + size]
            kept = ~np.isin(chunk, exclude)
            if available is not None:
                kept &= available[chunk]
            parts.append(chunk[kept])
            found += len(parts[-1])
            start, size = start + size, size * 2
        return np.concatenate(parts)[:k] if parts else np.zeros(0, np.int32)
