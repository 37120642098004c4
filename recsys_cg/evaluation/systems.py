"""What can be evaluated: anything that turns a batch of queries into lists of item_rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.bonuses import NOTHING_RAISED, Raised, join, lift_lists
from recsys_cg.evaluation.queries import EXCLUDE, QUERY
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.evaluation.ranking import shuffle_ties
from recsys_cg.index.base import Retriever
from recsys_cg.repeats import Repeats
from recsys_cg.trends import NO_TREND, RankedTrends, Trend

__all__ = ["System", "TwoTowerSystem"]

Encode = Callable[[pa.Table], NDArray[np.float32]]

_TIE_ROWS = 20_000


@runtime_checkable
class System(Protocol):
    """A candidate generator under test.

    A system that has an attribute ``nests`` which is False is asked for a list of each k; others once, for the largest.

    Attributes:
        name: key in the report.
        settings: what a reader of the report should know about it (hyperparameters, how they were chosen).
    """

    @property
    def name(self) -> str:
        """Key in the report."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON values: hyperparameters and how they were chosen."""

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """Return the k best candidates of each query.

        Args:
            batch: queries schema plus ``query`` (a number naming the query) and ``exclude`` (item_rows that may not
                be returned to it), in order of time.
            k: length of the lists.
            allow: [items] mask of the candidates of the whole batch; None: every item.

        Returns:
            [queries, k] int32 item_rows, best first, distinct, padded with -1.
        """


class TwoTowerSystem:
    """A query encoder and a retriever, measured as they serve: the lists are what a lookup returns.

    Equal scores within a list are put in a seeded order, and where a list ends in a tie the search is widened until
    the tie is whole (20,000 rows at most), so that the order of the rows lends no popularity to a model whose scores
    say nothing.

    ``nests`` is True where the first of a longer list are the shorter list. An approximate index looks further for
    longer lists, so it is asked for each k separately: nothing is measured at an effort that does not serve.

    Args:
        name: key in the report.
        encode: queries table -> [queries, dim] unit vectors.
        retriever: searches the release's rows.
        item_rows: [release rows] the dataset's item_row of each release row, -1 where the dataset has no such item.
        items: number of items of the dataset.
        settings: for the report.
        seed: of the order of ties.
        repeats: where items of a query's history are ranked by `recsys_cg.repeats`, what that takes; None: they are
            ranked as any other.
        trends: where what was asked for of late is ranked by `recsys_cg.trends`, what that takes; None: it
            is ranked as any other.
    """

    def __init__(
        self,
        name: str,
        encode: Encode,
        retriever: Retriever,
        *,
        item_rows: NDArray[np.int32],
        items: int,
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        repeats: Repeats | None = None,
        trends: RankedTrends | None = None,
    ) -> None:
        self.name = name
        self.settings = dict(settings or {})
        self._encode = encode
        self._retriever = retriever
        self._item_rows = item_rows
        self._seed = seed
        self._repeats, self._trends = repeats, trends
        self._vectors = repeats.vectors if repeats is not None else trends.vectors if trends is not None else None
        known = np.flatnonzero(item_rows >= 0)
        self._release_rows = np.full(items, -1, dtype=np.int32)
        self._release_rows[item_rows[known]] = known
        self._all_known = len(known) == len(item_rows)
        self.nests = retriever.is_exact

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """Encode, search and translate to item_rows; see `System.recommend`."""
        vectors = self._encode(batch)
        excluded = Ragged.from_column(batch, EXCLUDE)
        excluded = Ragged(self._release_rows[excluded.values], excluded.offsets)
        excluded = excluded.keep(excluded.values >= 0)
        mask = self._release_mask(allow)
        raised = self._raised(batch, excluded, mask)
        found = self._search(vectors, k, excluded, batch.column(QUERY).to_numpy(), mask, raised)
        return np.where(found >= 0, self._item_rows[found], -1).astype(np.int32)

    def _raised(self, batch: pa.Table, excluded: Ragged, allow: NDArray[np.bool_] | None) -> list[Raised] | None:
        """Return what has a bonus for each query; None where nothing can have one."""
        if self._repeats is None and self._trends is None:
            return None
        raised = [NOTHING_RAISED] * batch.num_rows
        if self._repeats is not None:
            own = self._own(batch, self._repeats.max_history, excluded, allow)
            raised = [self._repeats.raised(rows) for rows in own.split()]
        if self._trends is not None:
            bonus = self._trends.bonus
            trends = self.trends_of(batch)
            raised = [
                join(one, _eligible(trend, barred, allow).raised(bonus))
                for one, trend, barred in zip(raised, trends, excluded.split(), strict=True)
            ]
        return raised

    def trends_of(self, batch: pa.Table) -> list[Trend]:
        """Return what trended at the time of each query, in release rows; nothing where nothing is ranked by it."""
        if self._trends is None:
            return [NO_TREND] * batch.num_rows
        found = self._trends.counts.at(batch.column("time_us").to_numpy())
        return [self._in_release(trend) for trend in found]

    def _in_release(self, trend: Trend) -> Trend:
        rows = self._release_rows[trend.rows]
        return Trend.of(rows[rows >= 0], trend.counts[rows >= 0])

    def _own(self, batch: pa.Table, max_history: int, excluded: Ragged, allow: NDArray[np.bool_] | None) -> Ragged:
        """Return the eligible release rows of each query's history, distinct and rising."""
        met = Ragged.from_column(batch, "history")
        rows = self._release_rows[met.values]
        met = Ragged(rows, met.offsets).keep(rows >= 0).last(max_history)  # as a lookup: first what is not known leaves
        width = len(self._item_rows) + 1
        keys = np.unique(met.owners * width + met.values)
        keys = np.setdiff1d(keys, excluded.owners * width + excluded.values, assume_unique=True)
        if allow is not None:
            keys = keys[allow[keys % width]]
        return Ragged.from_owners((keys % width).astype(np.int32), keys // width, met.rows)

    def _release_mask(self, allow: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        if allow is None and self._all_known:
            return None
        known = self._item_rows >= 0
        return known if allow is None else known & allow[self._item_rows]

    def _search(  # noqa: PLR0917 - what one search needs
        self,
        vectors: NDArray[np.float32],
        k: int,
        excluded: Ragged,
        queries: NDArray[np.int64],
        allow: NDArray[np.bool_] | None,
        raised: list[Raised] | None,
    ) -> NDArray[np.int32]:
        """Search for k, and again for more where the last two scores are equal, so that the tie may go on."""
        result = self._retriever.search(vectors, k, exclude=excluded.split(), allow=allow)
        rows, scores = result.rows, result.scores
        if raised is not None and self._vectors is not None:
            rows, scores = lift_lists(rows, scores, vectors, raised, vectors=self._vectors)
        lists = shuffle_ties(rows, scores, queries, self._seed)
        if k >= min(self._retriever.size, _TIE_ROWS):
            return lists
        cut = np.flatnonzero((scores[:, max(k - 2, 0)] == scores[:, k - 1]) & (rows[:, -1] >= 0))
        if len(cut):
            wider = min(2 * k, self._retriever.size, _TIE_ROWS)
            mine = None if raised is None else [raised[place] for place in cut]
            lists[cut] = self._search(vectors[cut], wider, excluded.take(cut), queries[cut], allow, mine)[:, :k]
        return lists


def _eligible(trend: Trend, barred: NDArray[np.int32], allow: NDArray[np.bool_] | None) -> Trend:
    mask = ~np.isin(trend.rows, barred)
    return trend.among(mask if allow is None else mask & allow[trend.rows])
