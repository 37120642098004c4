"""Evaluation queries as arrays that the query tower takes: histories left-aligned, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["QueryArrays", "gather_histories", "query_arrays"]


@dataclass(frozen=True)
class QueryArrays:
    """Histories of queries; padding after ``length`` holds zeros.

    Attributes:
        rows: int32 [queries, max_history], item_row.
        gap_s: float32 [queries, max_history], seconds to the next event, at the last one to the query.
        event: int32 [queries, max_history], event codes.
        length: int32 [queries].
        context: int32 [queries, features], context codes; None without context features.
    """

    rows: NDArray[np.int32]
    gap_s: NDArray[np.float32]
    event: NDArray[np.int32]
    length: NDArray[np.int32]
    context: NDArray[np.int32] | None = None


def query_arrays(queries: pa.Table, max_history: int, context: Sequence[str] = ()) -> QueryArrays:
    """Align the last ``max_history`` events of each query of `recsys_cg.schema.queries_schema`.

    Args:
        queries: the queries.
        max_history: events kept of each.
        context: columns of context codes, in the order of the query tower.
    """
    history = queries["history"].combine_chunks()
    lengths = np.asarray(history.value_lengths(), dtype=np.int64)
    rows = np.asarray(history.flatten(), dtype=np.int32)
    times = np.asarray(queries["history_times_us"].combine_chunks().flatten(), dtype=np.int64)
    codes = np.asarray(queries["history_events"].combine_chunks().flatten(), dtype=np.int32)
    asked = np.asarray(queries["time_us"].combine_chunks(), dtype=np.int64)
    ends = np.cumsum(lengths)
    following = np.empty_like(times)
    following[:-1] = times[1:]
    filled = lengths > 0
    following[ends[filled] - 1] = asked[filled]
    kept = np.minimum(lengths, max_history)
    query = np.repeat(np.arange(len(lengths)), kept)
    column = np.arange(len(query)) - np.repeat(np.cumsum(kept) - kept, kept)
    source = np.repeat(ends - kept, kept) + column
    shape = (len(lengths), max_history)
    arrays = QueryArrays(
        rows=np.zeros(shape, np.int32),
        gap_s=np.zeros(shape, np.float32),
        event=np.zeros(shape, np.int32),
        length=kept.astype(np.int32),
        context=np.stack([np.asarray(queries[name], np.int32) for name in context], axis=1) if context else None,
    )
    arrays.rows[query, column] = rows[source]
    arrays.gap_s[query, column] = np.maximum(following - times, 0)[source] / 1e6
    arrays.event[query, column] = codes[source]
    return arrays


def gather_histories(arrays: QueryArrays, history_vectors: NDArray[np.float32], part: slice) -> dict[str, NDArray[Any]]:
    """Return the query tower's inputs for ``part`` of the queries: history, gap_s, event, length, perhaps context."""
    rows, length = arrays.rows[part], arrays.length[part]
    history = history_vectors[rows]
    history[np.arange(rows.shape[1]) >= length[:, None]] = 0.0
    inputs = {"history": history, "gap_s": arrays.gap_s[part], "event": arrays.event[part], "length": length}
    return inputs if arrays.context is None else {**inputs, "context": arrays.context[part]}
