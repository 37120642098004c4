"""Column names, Arrow schemas and file names that the stages share.

Outside identifiers (``user_id``, ``item_id``) are strings and are never interpreted. Inside, an item is its
``item_row``: its position in ``items.parquet``, from 0. Times are integers, microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = [
    "BUCKETS",
    "DatasetFiles",
    "EncoderFiles",
    "ReleaseFiles",
    "ReportFiles",
    "events_schema",
    "items_schema",
    "queries_schema",
    "rejects_schema",
    "sequences_schema",
]

BUCKETS: Final = ("head", "torso", "tail", "cold")
"""Popularity buckets, most popular first; see `recsys_cg.data.popularity`."""


class DatasetFiles:
    """What a dataset directory holds, relative to it."""

    ITEMS: Final = "items.parquet"
    SEQUENCES: Final = "sequences"
    QUERIES: Final = "queries"
    HISTORIES: Final = "histories"
    REJECTS: Final = "rejects"
    IMPRESSIONS: Final = "impressions"
    FEATURES: Final = "features.json"
    CONTEXT: Final = "context.json"


class EncoderFiles:
    """What an encoder directory holds, relative to it."""

    CONTRACT: Final = "encoder.json"
    QUERY_SAVED_MODEL: Final = "query/saved_model"
    QUERY_LITERT: Final = "query/query.tflite"
    ITEM_SAVED_MODEL: Final = "item/saved_model"
    CONTENT_LITERT: Final = "item/content.tflite"
    ITEM_IDS: Final = "item/ids.parquet"
    FEATURES: Final = "item/features.json"
    SAMPLING: Final = "sampling.parquet"
    TRAINING: Final = "training.json"
    MINED_NEGATIVES: Final = "mined_negatives.csv"


class ReleaseFiles:
    """What a release directory holds, relative to it."""

    ENCODER: Final = "encoder"
    ITEMS: Final = "items.parquet"
    VECTORS: Final = "vectors.npy"
    HISTORY_VECTORS: Final = "history_vectors.npy"
    INDEX: Final = "index"
    HISTORIES: Final = "histories.lmdb"
    REPORT: Final = "report"


class ReportFiles:
    """What an evaluation directory holds, relative to it."""

    JSON: Final = "report.json"
    HTML: Final = "report.html"
    MARKDOWN: Final = "report.md"


events_schema: Final = pa.schema(
    [
        pa.field("user_id", pa.string(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("weight", pa.float32(), nullable=False),
    ]
)
"""A block of cleaned interactions, as the transforms pass it on; with categorical context features also the column
``context`` (`recsys_cg.data.context_values.join_values`)."""

items_schema: Final = pa.schema(
    [
        pa.field("item_row", pa.int32(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("in_catalogue", pa.bool_(), nullable=False),
        pa.field("available_from_us", pa.int64()),
        pa.field("available_until_us", pa.int64()),
        pa.field("train_count", pa.int64(), nullable=False),
        pa.field("train_weight", pa.float64(), nullable=False),
        pa.field("first_seen_us", pa.int64()),
        pa.field("last_seen_us", pa.int64()),
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("q", pa.float64(), nullable=False),
        pa.field("content_digest", pa.string(), nullable=False),
    ]
)
"""The item table without its content columns, which follow as ``f_<feature name>``.

Rows are ordered by training count, highest first, then by item_id. ``train_count``, ``first_seen_us``,
``last_seen_us``, ``bucket`` and ``q`` (the share of training events, which sums to one) know training time only.
"""

sequences_schema: Final = pa.schema(
    [
        pa.field("user_id", pa.string(), nullable=False),
        pa.field("item_rows", pa.list_(pa.int32()), nullable=False),
        pa.field("times_us", pa.list_(pa.int64()), nullable=False),
        pa.field("events", pa.list_(pa.int8()), nullable=False),
        pa.field("weights", pa.list_(pa.float32()), nullable=False),
    ]
)
"""One user's training interactions, ordered by time and, within one time, by item_id.

Behind these columns, for each context feature, ``c_<name>`` list<int32>: its code at each interaction."""

queries_schema: Final = pa.schema(
    [
        pa.field("user_id", pa.string(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("targets", pa.list_(pa.int32()), nullable=False),
        pa.field("history", pa.list_(pa.int32()), nullable=False),
        pa.field("history_times_us", pa.list_(pa.int64()), nullable=False),
        pa.field("history_events", pa.list_(pa.int8()), nullable=False),
        pa.field("history_length", pa.int32(), nullable=False),
        pa.field("seen", pa.list_(pa.int32()), nullable=False),
    ]
)
"""One evaluation query.

``history`` holds the last ``dataset.max_history`` interactions strictly before ``time_us``, oldest first;
``history_length`` counts all of them. ``seen`` holds every distinct item_row met strictly before ``time_us``.
``targets`` are the item_rows to be found. Behind these columns, for each context feature, ``c_<name>`` int32: its code
at the interaction that is asked for (the first one of a query that asks for a window).
"""

rejects_schema: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)
"""One refused row: its file, its row number from 1 (not counting a header), why, and the row as JSON."""
