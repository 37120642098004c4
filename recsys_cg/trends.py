"""What everybody turns to at the moment: items ranked higher the more often they turned up of late.

An encoder is trained now and then and serves for days. News, and whatever is in fashion all at once, live for hours: of
what is read tomorrow the encoder has seen little, and how it would have embedded the rest cannot be told from content
alone. What can be known is what is being asked for, so that is added to the score::

    score(i) = similarity(i) + bonus * log(1 + c(i, t))
    c(i, t)  = sum over interactions of i at times u < t of 2^(-(t - u) / half_life)

``half_life`` is declared, the bonus is one number of the release, fitted on validation queries, each of them with the
counts of its own time: beside an encoder that knows the items it is small, beside one that was trained days ago it
decides nearly all. The logarithm makes it a product of odds: popularity of the hour times what the user likes. Fading
counts forget evenly, where a window forgets all at once; interactions are weighed relative to a landmark, so that time
passing changes no weight until the landmark moves (forward decay, Cormode, Shkapenyuk, Srivastava and Xu 2009). As with
any bonus no wider search is needed (`recsys_cg.bonuses`). NumPy and Arrow only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.bonuses import Raised

__all__ = [
    "LEAST_TRENDING",
    "MOST_TRENDING",
    "NO_TREND",
    "TREND_BONUSES",
    "FadingCounts",
    "RankedTrends",
    "Trend",
    "first_targets",
]

TREND_BONUSES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Bonuses that are tried; at 2 the popularity of the hour decides, and similarity between equal counts."""

MOST_TRENDING: Final = 1000
"""Items that may have the bonus at one time: those with the largest counts, of equal ones the lower rows."""

LEAST_TRENDING: Final = 1 / 16
"""Least count that is one: that of a single interaction four half-lives ago."""

_HOUR_US = 3_600_000_000
_FORGOTTEN = 24.0  # half-lives after which sixteen million interactions are one


class Trend(NamedTuple):
    """What was asked for of late.

    Attributes:
        rows: int32 [n], distinct and rising.
        counts: float64 [n], interactions as they have faded, each above 0.
    """

    rows: NDArray[np.int32]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[np.integer], counts: NDArray[np.floating]) -> Self:
        """Return the trend of distinct ``rows``, in any order, cut to `MOST_TRENDING`."""
        if len(counts) > MOST_TRENDING:
            kept = counts >= np.partition(counts, -MOST_TRENDING)[-MOST_TRENDING]
            rows, counts = rows[kept], counts[kept]
        order = np.lexsort((rows, -counts))[:MOST_TRENDING]
        order = order[np.argsort(rows[order])]
        return cls(rows[order].astype(np.int32), counts[order].astype(np.float64))

    def raised(self, bonus: float) -> Raised:
        """Return the bonus of each item."""
        return Raised(self.rows, (bonus * np.log1p(self.counts)).astype(np.float32))

    def among(self, mask: NDArray[np.bool_]) -> Trend:
        """Return those where ``mask`` [n] holds."""
        return Trend(self.rows[mask], self.counts[mask])

    def by_count(self) -> NDArray[np.int32]:
        """Return the rows, those with the largest counts first, of equal ones the lower row."""
        return self.rows[np.argsort(-self.counts, kind="stable")]


NO_TREND: Final = Trend(np.zeros(0, np.int32), np.zeros(0, np.float64))


class FadingCounts:
    """Interactions of each item strictly before any time, faded by the time since.

    Args:
        times_us: int64 [events], ascending.
        rows: int32 [events].
        half_life_hours: time in which an interaction comes to count half as much, above 0.
    """

    def __init__(self, times_us: NDArray[np.int64], rows: NDArray[np.int32], *, half_life_hours: float) -> None:
        self._times, self._rows = times_us, rows
        self._half_life_us = half_life_hours * _HOUR_US

    @classmethod
    def of(cls, sequences: Iterable[pa.Table], queries: Iterable[pa.Table], *, half_life_hours: float) -> Self:
        """Count training interactions and the first target of each query, which happened at the query's time.

        Further targets happened later, when is not known, and are not counted. Training interactions too old to count
        for any of the queries are not kept.

        Args:
            sequences: tables of `recsys_cg.schema.sequences_schema`, in any order.
            queries: tables of `recsys_cg.schema.queries_schema`, each complete: all that happened in its window.
            half_life_hours: as of the class.
        """
        tables = list(queries)
        first = min((pc.min(table["time_us"]).as_py() for table in tables if len(table)), default=None)
        times, rows = [], []
        for table in tables:
            when, what = first_targets(table)
            times.append(when)
            rows.append(what)
        for table in sequences:
            when, what = (pc.list_flatten(table[name]).to_numpy() for name in ("times_us", "item_rows"))
            recent = slice(None) if first is None else when >= first - _FORGOTTEN * half_life_hours * _HOUR_US
            times.append(when[recent])
            rows.append(what[recent])
        if not times:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int32), half_life_hours=half_life_hours)
        all_times, all_rows = np.concatenate(times), np.concatenate(rows)
        order = np.argsort(all_times, kind="stable")
        return cls(all_times[order], all_rows[order].astype(np.int32), half_life_hours=half_life_hours)

    def at(self, times_us: NDArray[np.int64]) -> list[Trend]:
        """Return the trend at each of the times, int64 microseconds, which may come in any order."""
        trends: list[Trend] = [NO_TREND] * len(times_us)
        if not len(times_us):
            return trends
        stops = self._times.searchsorted(times_us)
        starts = self._times.searchsorted(times_us - round(_FORGOTTEN * self._half_life_us))
        first, last = int(starts.min()), int(stops.max())
        distinct, place_of = np.unique(self._rows[first:last], return_inverse=True)
        weights = np.zeros(len(distinct))
        landmark, counted = int(times_us.min()), first
        for place in np.argsort(times_us, kind="stable").tolist():
            now = int(times_us[place])
            faded = 0.5 ** ((now - landmark) / self._half_life_us)
            if faded < 0.5**_FORGOTTEN:  # weights of new interactions would grow without end
                weights *= faded
                landmark, faded = now, 1.0
            start, stop = max(counted, int(starts[place])), int(stops[place])
            ages = (landmark - self._times[start:stop]) / self._half_life_us
            np.add.at(weights, place_of[start - first : stop - first], 0.5**ages)
            counted = max(counted, stop)
            known = (weights >= LEAST_TRENDING / faded).nonzero()[0]
            trends[place] = Trend.of(distinct[known], weights[known] * faded)
        return trends


def first_targets(queries: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (times, item_rows) of the first target of each query that has one, which happened at the query's time.

    Further ones (``dataset.targets = "window"``) happened later, when is not known: dated by the query they would tell
    the future.
    """
    asked = queries.filter(pc.greater(pc.list_value_length(queries["targets"]), 0))
    return asked["time_us"].to_numpy(), pc.list_element(asked["targets"], 0).to_numpy()


class RankedTrends(NamedTuple):
    """What it takes to rank what trended at any time of a log among other items.

    Attributes:
        vectors: float32 [items of the release, dim], unit norm.
        bonus: of the release.
        counts: of the log, in rows of its dataset.
    """

    vectors: NDArray[np.float32]
    bonus: float
    counts: FadingCounts
