"""Draw from a fixed discrete distribution, many draws at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shares"]


class Shares:
    """Intervals laid end to end, one an index, as wide as its weight; finds which one covers a point.

    A guide table says where to begin looking, so that a look-up costs a few steps whatever the number of intervals
    (Chen and Asau, "On generating random variates from an empirical distribution", AIIE Transactions 6(2), 1974).

    Attributes:
        sums: float64 [n + 1], the running sums, from 0.
    """

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.sums = np.zeros(len(weights) + 1)
        np.cumsum(weights, out=self.sums[1:])
        self._cells = max(1, len(weights))
        edges = np.linspace(0.0, self.sums[-1], self._cells + 1)
        self._guide = np.searchsorted(self.sums[1:], edges, side="right").astype(np.int64)

    @property
    def total(self) -> float:
        """Width of all intervals together."""
        return float(self.sums[-1])

    def find(self, points: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the index n with ``sums[n] <= point < sums[n + 1]``; an interval of no width is never found.

        Args:
            points: float64 [m], each in [0, total).
        """
        cell = (points * (self._cells / self.total)).astype(np.int64)
        # One cell back, because the product may have been rounded up into the next one.
        found: NDArray[np.int64] = self._guide[np.maximum(cell - 1, 0)]
        ends = self.sums[1:]
        short = np.flatnonzero(ends[found] <= points)
        while len(short):
            found[short] += 1
            short = short[ends[found[short]] <= points[short]]
        return found

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw ``count`` indexes, each with a probability proportional to its weight."""
        return self.find(np.minimum(rng.random(count) * self.total, np.nextafter(self.total, 0.0)))
