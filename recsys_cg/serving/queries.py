"""Encode the evaluation queries of a dataset with a release's query tower, thousands at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.data.context import ContextSet
from recsys_cg.errors import SearchError
from recsys_cg.serving.encoder import QueryEncoder
from recsys_cg.serving.inputs import history_inputs

__all__ = ["encode_queries"]

_BATCH = 1024


def encode_queries(
    encoder: QueryEncoder,
    history_vectors: NDArray[np.float32],
    queries: pa.Table,
    *,
    row_map: NDArray[np.int32] | None = None,
) -> NDArray[np.float32]:
    """Return float32 [queries, dim], the query vectors of ``queries``, row for row, of unit norm.

    The same history and time give the vector that a lookup would search with. History items that the release does
    not have are left out, as a lookup does. A query of which nothing is left gets the vector of an empty history; a
    lookup does not search then, it answers with the most popular items.

    Args:
        encoder: the query tower.
        history_vectors: float32 [release items, history_dim].
        queries: a table of `schema.queries_schema`, with the codes of the encoder's context features. Of a feature
            without a column nothing is known, but for what the query's time tells.
        row_map: int32 [dataset items], the release row of each dataset item_row, -1 where the release has no such
            item. None: they are equal, as for a release built from this dataset.

    Raises:
        SearchError: a history names a row outside ``row_map`` (outside the release when that is None).
    """
    vectors = np.empty((queries.num_rows, encoder.contract.dim), np.float32)
    start = 0
    for batch in queries.to_batches(max_chunksize=_BATCH):
        vectors[start : start + len(batch)] = _encode_batch(encoder, history_vectors, batch, row_map)
        start += len(batch)
    return vectors


def _encode_batch(
    encoder: QueryEncoder,
    history_vectors: NDArray[np.float32],
    batch: pa.RecordBatch,
    row_map: NDArray[np.int32] | None,
) -> NDArray[np.float32]:
    rows, times, events = (
        batch.column(name).flatten().to_numpy(zero_copy_only=False)
        for name in ("history", "history_times_us", "history_events")
    )
    lengths = pc.list_value_length(batch.column("history")).to_numpy(zero_copy_only=False).astype(np.int64)
    items = len(history_vectors) if row_map is None else len(row_map)
    if len(rows) and (rows.min() < 0 or rows.max() >= items):
        raise SearchError(f"a query's history names item_row {rows.min()} to {rows.max()}, expected 0 to {items - 1}")
    if row_map is not None:
        rows = row_map[rows]
        known = rows >= 0
        query = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(query[known], minlength=len(lengths))
        rows, times, events = rows[known], times[known], events[known]
    tensors = history_inputs(
        rows,
        times,
        events,
        lengths,
        batch.column("time_us").to_numpy(zero_copy_only=False),
        vectors=history_vectors,
        max_history=encoder.contract.max_history,
    )
    if not len(encoder.contract.context):
        return encoder.encode(**tensors)
    return encoder.encode(**tensors, context=_context_of(encoder.contract.context, batch))


def _context_of(context: ContextSet, batch: pa.RecordBatch) -> NDArray[np.int32]:
    times = batch.column("time_us").to_numpy(zero_copy_only=False)
    columns = []
    for feature in context.features:
        if feature.field_name in batch.schema.names:
            columns.append(batch.column(feature.field_name).to_numpy(zero_copy_only=False))
        else:
            columns.append(feature.encode_times(times) if feature.is_derived else np.zeros(len(times), np.int32))
    return np.stack(columns, axis=1).astype(np.int32)
