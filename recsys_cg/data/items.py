"""Item statistics of a dataset, and the item table that joins them with the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import FeatureConfig
from recsys_cg.data import catalogue as names
from recsys_cg.data.content import FeatureSet, content_digests
from recsys_cg.data.popularity import assign_buckets, sampling_probabilities
from recsys_cg.data.shards import Shard
from recsys_cg.schema import items_schema

__all__ = ["assemble_items", "count_events", "counts_schema", "frequent_items", "merge_item_counts"]

counts_schema: Final = pa.schema(
    [
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("event", pa.string()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("first_us", pa.int64()),
        pa.field("last_us", pa.int64()),
    ]
)
"""Training events by item and event type; an item without any has one row: no event, count 0, no times."""


def count_events(shard: Shard, is_training: npt.NDArray[np.bool_]) -> pa.Table:
    """Count the training events of every item of ``shard`` as `counts_schema`.

    Args:
        shard: events of every window; its items are all counted, if with zero.
        is_training: bool ``[n]``, the events to count.
    """
    types = max(len(shard.events), 1)
    keys = shard.item[is_training].astype(np.int64) * types + shard.event[is_training]
    times = shard.time_us[is_training]
    size = len(shard.items) * types
    counts = np.bincount(keys, minlength=size)
    first = np.full(size, np.iinfo(np.int64).max)
    last = np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(first, keys, times)
    np.maximum.at(last, keys, times)
    found = np.flatnonzero(counts)
    without = np.setdiff1d(np.arange(len(shard.items)), found // types)
    counted = pa.table(
        [
            shard.items.take(pa.array(found // types)),
            shard.events.take(pa.array(found % types)),
            pa.array(counts[found]),
            pa.array(first[found]),
            pa.array(last[found]),
        ],
        schema=counts_schema,
    )
    absent = pa.nulls(len(without), pa.int64())
    zeros = pa.array(np.zeros(len(without), dtype=np.int64))
    rest = [shard.items.take(pa.array(without)), pa.nulls(len(without), pa.string()), zeros, absent, absent]
    return pa.concat_tables([counted, pa.table(rest, schema=counts_schema)])


def merge_item_counts(tables: Sequence[pa.Table]) -> pa.Table:
    """Add up counts of several shards; the result is ordered by item and event, whatever the shards were."""
    merged = pa.concat_tables([counts_schema.empty_table(), *tables])
    grouped = merged.group_by(["item_id", "event"]).aggregate(
        [("count", "sum"), ("first_us", "min"), ("last_us", "max")]
    )
    renamed = grouped.rename_columns(
        {"count_sum": "count", "first_us_min": "first_us", "last_us_max": "last_us"}
    ).select(counts_schema.names)
    return renamed.sort_by([("item_id", "ascending"), ("event", "ascending")]).cast(counts_schema)


def frequent_items(counts: pa.Table, least: int) -> pa.Array:
    """Return the item_ids with at least ``least`` training events, of whatever type, ordered."""
    totals = counts.group_by("item_id").aggregate([("count", "sum")])
    chosen = totals.filter(pc.greater_equal(totals.column("count_sum"), least)).column("item_id")
    return chosen.combine_chunks().sort()


def assemble_items(
    counts: pa.Table,
    catalogue: pa.Table,
    features: Sequence[FeatureConfig],
    *,
    weights: Mapping[str, float],
    validation_from_us: int,
    fitted: FeatureSet | None = None,
) -> tuple[pa.Table, FeatureSet]:
    """Join statistics and catalogue to the item table, and fit the content features.

    Every item of either side is there. Features are fitted on the items of the catalogue that were known in training
    time: those with a training event, or declared available before the validation window; a value that only later
    items have goes to a hash bucket. ``train_weight`` is added up by event type, so it does not depend on the order of
    events.

    Args:
        counts: what `merge_item_counts` gave.
        catalogue: one row an item, as `recsys_cg.data.catalogue.merge_catalogue` gives.
        features: the ``[[items.features]]``.
        weights: event type -> weight; empty: all weigh 1.
        validation_from_us: start of the validation window.
        fitted: features of an encoder that is kept; they are used as they are and nothing is fitted.

    Returns:
        the table of `recsys_cg.schema.items_schema` and the columns ``f_<name>``, ordered by training count (highest
        first) and item_id; and the fitted features.
    """
    stats = _statistics(counts, catalogue, weights)
    ids = stats.column("item_id").combine_chunks()
    place = pc.index_in(ids, value_set=catalogue.column(names.ID).combine_chunks())
    listed = catalogue.take(place)
    train_counts = stats.column("train_count").to_numpy()
    early = pc.fill_null(pc.less(listed.column(names.FROM), validation_from_us), False)
    is_listed = np.asarray(place.is_valid(), dtype=bool)
    known = is_listed & ((train_counts > 0) | np.asarray(early, dtype=bool))
    fitted = FeatureSet.fit(listed, features, known) if fitted is None else fitted
    encoded = fitted.encode(listed)
    titles = listed.column(names.TITLE).combine_chunks()
    columns = {
        "item_row": pa.array(np.arange(len(ids), dtype=np.int32)),
        "item_id": ids,
        "title": titles,
        "in_catalogue": pa.array(is_listed),
        "available_from_us": listed.column(names.FROM),
        "available_until_us": listed.column(names.UNTIL),
        "train_count": stats.column("train_count"),
        "train_weight": stats.column("train_weight"),
        "first_seen_us": stats.column("first_us"),
        "last_seen_us": stats.column("last_us"),
        "bucket": pa.array(assign_buckets(train_counts).tolist(), type=pa.string()),
        "q": pa.array(sampling_probabilities(train_counts)),
        "content_digest": content_digests(encoded, titles),
    }
    table = pa.table([columns[name] for name in items_schema.names], schema=items_schema)
    for name in encoded.column_names:
        table = table.append_column(name, encoded.column(name))
    return table, fitted


def _statistics(counts: pa.Table, catalogue: pa.Table, weights: Mapping[str, float]) -> pa.Table:
    kinds = sorted(weights)
    values = pa.array([weights[kind] for kind in kinds], type=pa.float64())
    if kinds:
        found = values.take(pc.index_in(counts.column("event"), value_set=pa.array(kinds)))
        weight = pc.multiply(counts.column("count").cast(pa.float64()), pc.fill_null(found, 0.0))
    else:
        weight = counts.column("count").cast(pa.float64())
    ordered = counts.append_column("weight", weight)
    grouped = ordered.group_by("item_id", use_threads=False).aggregate(
        [("count", "sum"), ("weight", "sum"), ("first_us", "min"), ("last_us", "max")]
    )
    stats = grouped.rename_columns(
        {"count_sum": "train_count", "weight_sum": "train_weight", "first_us_min": "first_us", "last_us_max": "last_us"}
    ).select(["item_id", "train_count", "train_weight", "first_us", "last_us"])
    ids = catalogue.column(names.ID)
    only = ids.filter(pc.invert(pc.is_in(ids, value_set=stats.column("item_id").combine_chunks())))
    count = len(only)
    absent = pa.nulls(count, pa.int64())
    zeros = pa.array(np.zeros(count, dtype=np.int64))
    rest = pa.table([only, zeros, zeros.cast(pa.float64()), absent, absent], schema=stats.schema)
    return pa.concat_tables([stats, rest]).sort_by([("train_count", "descending"), ("item_id", "ascending")])
