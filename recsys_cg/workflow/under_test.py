"""A release as a system under test: its own encoder, its own index, its own fallback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.data.context import ContextSet
from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation import TwoTowerSystem
from recsys_cg.schema import ReleaseFiles
from recsys_cg.serving.queries import encode_queries
from recsys_cg.serving.release import Release
from recsys_cg.trends import FadingCounts, RankedTrends, Trend
from recsys_cg.workflow.assembly import translate_queries

__all__ = ["ReleaseUnderTest", "ServedSystem"]


@dataclass(frozen=True)
class ReleaseUnderTest:
    """A release set against a dataset whose items may stand in other rows.

    Attributes:
        release: the open release.
        items: the dataset's items.
        events: the dataset's event names.
        context: the dataset's context features.
        count: gives the dataset's interactions as they fade by a half-life in hours; None: nothing trends.
    """

    release: Release
    items: pa.Table
    events: Sequence[str]
    context: ContextSet = field(default_factory=ContextSet)
    count: Callable[[float], FadingCounts] | None = None

    @classmethod
    def of(cls, release: Release, dataset: Dataset) -> Self:
        """Set a release against a dataset, its interactions included."""
        return cls(release, dataset.items, dataset.events, dataset.context, partial(_count, dataset))

    @cached_property
    def item_rows(self) -> NDArray[np.int32]:
        """[release items] the dataset's item_row of each, -1 where the dataset has no such item."""
        return _match(self.released["item_id"], self.items["item_id"])

    @cached_property
    def release_rows(self) -> NDArray[np.int32]:
        """[dataset items] the release's row of each, -1 where the release has no such item."""
        return _match(self.items["item_id"], self.released["item_id"])

    @cached_property
    def released(self) -> pa.Table:
        """The release's own item table."""
        return pq.read_table(self.release.path / ReleaseFiles.ITEMS)

    def encode(self, queries: pa.Table) -> NDArray[np.float32]:
        """Encode queries whose histories are rows and event codes of the dataset, in their context."""
        release = self.release
        known = translate_queries(queries, self.events, self.context, release.encoder.contract)
        return encode_queries(release.encoder, release.history_vectors, known, row_map=self.release_rows)

    def system(self, name: str, seed: int) -> ServedSystem:
        """Return the release as a system to be measured: what a lookup would answer, fallback included."""
        index = self.release.retriever
        context, rule = self.release.encoder.contract.context.names, self.release.trends
        trends = None
        if rule is not None and self.count is not None:
            trends = RankedTrends(self.release.vectors, rule.bonus, self.count(rule.half_life_hours))
        first = "" if trends is None else "trending and then the "
        encoded = TwoTowerSystem(
            name,
            self.encode,
            index,
            item_rows=self.item_rows,
            items=len(self.items),
            settings={
                "release": self.release.name,
                "index": index.kind,
                "without_history": f"the {first}most popular items, as a lookup answers",
                **({"context": list(context)} if context else {}),
                **({"repeat_bonus": self.release.repeats.bonus} if self.release.repeats else {}),
                **(rule.settings if rule is not None and trends else {}),
            },
            seed=seed,
            repeats=self.release.repeats,
            trends=trends,
        )
        return ServedSystem(encoded, self)

    def rows_of(self, lists: pa.ChunkedArray) -> list[NDArray[np.int32]]:
        """Return, list by list, the release rows of dataset item_rows; items that the release lacks are left out."""
        rows = (self.release_rows[np.asarray(one, dtype=np.int64)] for one in lists.to_pylist())
        return [one[one >= 0] for one in rows]


class ServedSystem:
    """What a lookup answers: the two towers where something of the history is known, else the stated fallback.

    Args:
        encoded: the two-tower system.
        under_test: the release and the dataset's rows.
    """

    def __init__(self, encoded: TwoTowerSystem, under_test: ReleaseUnderTest) -> None:
        self._encoded, self._under_test = encoded, under_test

    @property
    def name(self) -> str:
        """Key in the report."""
        return self._encoded.name

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a reader of the report should know."""
        return self._encoded.settings

    def trends_of(self, batch: pa.Table) -> list[Trend]:
        """See `recsys_cg.evaluation.TwoTowerSystem.trends_of`."""
        return self._encoded.trends_of(batch)

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        """See `recsys_cg.evaluation.System.recommend`."""
        lists = self._encoded.recommend(batch, k, allow)
        known = self._under_test.rows_of(batch["history"])
        unknown = np.flatnonzero([len(rows) == 0 for rows in known])
        if not len(unknown):
            return lists
        item_rows, popularity = self._under_test.item_rows, self._under_test.release.popularity
        available = item_rows >= 0
        if allow is not None:
            available &= allow[item_rows]
        asked = batch.take(pa.array(unknown))
        excluded = self._under_test.rows_of(asked["exclude"])
        for place, exclude, trend in zip(unknown, excluded, self._encoded.trends_of(asked), strict=True):
            rows = popularity.top(k, exclude=exclude, available=available, allow=None, trend=trend)
            lists[place] = -1
            lists[place, : len(rows)] = item_rows[rows]
        return lists


def _count(dataset: Dataset, half_life_hours: float) -> FadingCounts:
    """Count training interactions and what was asked for in the windows behind them."""
    queries = [dataset.queries(split) for split in ("validation", "test")]
    return FadingCounts.of(dataset.iter_sequences(), queries, half_life_hours=half_life_hours)


def _match(wanted: pa.ChunkedArray, known: pa.ChunkedArray) -> NDArray[np.int32]:
    rows = pc.fill_null(pc.index_in(wanted, value_set=known.combine_chunks()), -1)
    result: NDArray[np.int32] = rows.to_numpy().astype(np.int32)
    return result
