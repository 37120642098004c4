"""Small datasets for the tests of the evaluation, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.evaluation.queries import EXCLUDE
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.schema import items_schema, queries_schema, sequences_schema


def make_items(
    counts: Sequence[int],
    buckets: Sequence[str] | None = None,
    *,
    available_from: Sequence[int | None] | None = None,
    available_until: Sequence[int | None] | None = None,
) -> pa.Table:
    """Items item_0, item_1, ... with the given training counts."""
    n = len(counts)
    total = max(1, sum(counts))
    columns: dict[str, Any] = {
        "item_row": list(range(n)),
        "item_id": [f"item_{i}" for i in range(n)],
        "title": [f"Title {i}" for i in range(n)],
        "in_catalogue": [True] * n,
        "available_from_us": list(available_from or [None] * n),
        "available_until_us": list(available_until or [None] * n),
        "train_count": list(counts),
        "train_weight": [float(c) for c in counts],
        "first_seen_us": [None] * n,
        "last_seen_us": [None] * n,
        "bucket": list(buckets or ["head"] * n),
        "q": [c / total for c in counts],
        "content_digest": ["d"] * n,
    }
    return pa.table(columns, schema=items_schema)


def make_queries(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Queries from dictionaries: user, time, targets, and optionally history, times and seen."""
    columns: dict[str, list[Any]] = {name: [] for name in queries_schema.names}
    for row in rows:
        history = list(row.get("history", []))
        columns["user_id"].append(row.get("user", "u"))
        columns["time_us"].append(row.get("time", 1_000_000))
        columns["targets"].append(list(row["targets"]))
        columns["history"].append(history)
        columns["history_times_us"].append(list(row.get("times", range(len(history)))))
        columns["history_events"].append(list(row.get("events", [0] * len(history))))
        columns["history_length"].append(row.get("length", len(history)))
        columns["seen"].append(sorted(set(row.get("seen", history))))
    return pa.table(columns, schema=queries_schema)


def make_sequences(lists: Mapping[str, Sequence[int]], *, start: int = 0) -> pa.Table:
    """One training sequence a user, its interactions a microsecond apart."""
    return pa.table(
        {
            "user_id": list(lists),
            "item_rows": [list(rows) for rows in lists.values()],
            "times_us": [list(range(start, start + len(rows))) for rows in lists.values()],
            "events": [[0] * len(rows) for rows in lists.values()],
            "weights": [[1.0] * len(rows) for rows in lists.values()],
        },
        schema=sequences_schema,
    )


def as_batch(queries: pa.Table, exclude: Sequence[Sequence[int]] | None = None) -> pa.Table:
    """Add the columns that the protocol adds."""
    lists = exclude if exclude is not None else queries.column("seen").to_pylist()
    queries = queries.append_column("query", pa.array(range(queries.num_rows), pa.int64()))
    return queries.append_column(EXCLUDE, pa.array([list(x) for x in lists], pa.list_(pa.int32())))


class ScoreSystem:
    """A system that recommends by fixed scores, one row a query number or one row for all."""

    def __init__(self, name: str, scores: NDArray[np.float32]) -> None:
        self.name = name
        self.settings: Mapping[str, Any] = {}
        self._scores = np.atleast_2d(np.asarray(scores, dtype=np.float32))

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        queries = batch.column("query").to_numpy()
        scores = self._scores[queries % len(self._scores)].copy()
        excluded = Ragged.from_column(batch, EXCLUDE)
        scores[excluded.owners, excluded.values] = -np.inf
        if allow is not None:
            scores[:, ~allow] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        lists = np.full((len(queries), k), -1, dtype=np.int32)
        lists[:, : order.shape[1]] = np.where(np.isinf(np.take_along_axis(scores, order, axis=1)), -1, order)
        return lists


class ListSystem:
    """A system that returns the same lists whatever is asked."""

    def __init__(self, name: str, lists: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.settings: Mapping[str, Any] = {}
        self._lists = np.array(lists, dtype=np.int32)

    def recommend(self, batch: pa.Table, k: int, allow: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
        return self._lists[batch.column("query").to_numpy()]
