"""Interactions: from raw blocks to clean events, and from events to one sorted, bounded table a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import InteractionsConfig
from recsys_cg.data.blocks import Block, naming_source, reject_rows
from recsys_cg.data.context_values import JOINED, join_values
from recsys_cg.data.filters import apply_filters, parse_filters
from recsys_cg.data.identifiers import hash_strings, to_strings
from recsys_cg.data.times import is_absurd, parse_times
from recsys_cg.schema import events_schema

__all__ = ["Cleaned", "clean_block", "interaction_columns", "lean", "shard_of", "split_by_shard", "weights_of"]

_USER_SALT: Final = 1

_Masks = dict[str, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Cleaned:
    """What became of a block: ``rows`` = events + rejects + the sum of ``filtered``.

    Attributes:
        events: rows kept, as `recsys_cg.schema.events_schema`, in the order of the block; with categorical context
            features also their values, as `recsys_cg.data.context_values.join_values` gives them.
        rejects: broken rows, as `recsys_cg.schema.rejects_schema`.
        filtered: reason -> rows left out on purpose (``filter``, ``unlisted_event``).
        rows: rows that the block stood for.
    """

    events: pa.Table
    rejects: pa.Table
    filtered: Mapping[str, int]
    rows: int


def interaction_columns(config: InteractionsConfig) -> list[str]:
    """Return the source columns that `clean_block` needs, each once.

    Raises:
        ConfigError: a filter cannot be parsed.
    """
    columns = [config.user, config.item, config.time, *([config.event] if config.event else [])]
    columns += [feature.source_column for feature in config.context if feature.source_column is not None]
    return list(dict.fromkeys(columns + [condition.column for condition in parse_filters(config.filters)]))


def clean_block(
    block: Block, config: InteractionsConfig, *, catalogue: pa.Array | None = None, until_us: int | None = None
) -> Cleaned:
    """Turn raw rows into events; what is left out is counted, and what is broken is kept as a reject.

    A row is judged in this order, and counts once: refused while reading; text where a filter needs a number
    (``unreadable_filter_value``); not meeting a filter (filtered: ``filter``); an event type missing
    (``missing_event``) or not in ``event_weights`` (filtered: ``unlisted_event``); ``missing_user``,
    ``missing_item`` (null, empty or NaN); ``missing_time``, ``unreadable_time``, ``absurd_time`` (before 1970 or after
    2199); with a ``catalogue``, ``unknown_item``; at or after ``until_us`` (filtered: ``after_test_until``).

    Args:
        block: raw rows with the columns of `interaction_columns`.
        config: the ``[interactions]`` section.
        catalogue: string array of known items, when interactions with others are to be refused.
        until_us: end of the last window, where one is declared.

    Raises:
        SourceError: an identifier column is nested or no UTF-8; the message names the file.
    """
    with naming_source(block.source):
        fields = _read_fields(block.table, config)
        kept, reasons, filtered = _choose_rows(block.table, fields.events, config)
        context = join_values(block.table, config.context)
    reasons |= _find_faults(fields, kept, catalogue)
    rejects = pa.concat_tables([block.rejects, reject_rows(block, reasons)])
    for mask in reasons.values():
        kept &= ~mask
    if until_us is not None:
        late = kept & _mask(pc.fill_null(pc.greater_equal(fields.times, until_us), False))
        filtered["after_test_until"] = int(late.sum())
        kept &= ~late
    columns = [fields.users, fields.items, fields.times, fields.events, *([] if context is None else [context])]
    if not kept.all():
        columns = [column.filter(pa.array(kept)) for column in columns]
    weights = pa.array(weights_of(columns[3], config.event_weights))
    clean = pa.table([*columns[:4], weights], schema=events_schema)
    if context is not None:
        clean = clean.append_column(JOINED, columns[4])
    return Cleaned(clean, rejects, {reason: count for reason, count in filtered.items() if count}, block.rows)


@dataclass(frozen=True)
class _Fields:
    users: pa.Array
    items: pa.Array
    raw_times: pa.Array
    times: pa.Array
    events: pa.Array


def _read_fields(table: pa.Table, config: InteractionsConfig) -> _Fields:
    raw = table.column(config.time).combine_chunks()
    events = pa.array([""] * table.num_rows, type=pa.string())
    if config.event is not None:
        events = to_strings(table.column(config.event), config.event)
    return _Fields(
        users=to_strings(table.column(config.user), config.user),
        items=to_strings(table.column(config.item), config.item),
        raw_times=raw,
        times=parse_times(raw, config.time_unit, config.time_zone),
        events=events,
    )


def _choose_rows(
    table: pa.Table, events: pa.Array, config: InteractionsConfig
) -> tuple[npt.NDArray[np.bool_], _Masks, dict[str, int]]:
    """Return the rows to judge, faults found on the way, and what was filtered."""
    kept, unreadable = apply_filters(parse_filters(config.filters), table)
    reasons = {"unreadable_filter_value": unreadable}
    filtered = {"filter": int((~kept & ~unreadable).sum())}
    if config.event is not None:
        reasons["missing_event"] = kept & _mask(events.is_null())
        if config.event_weights:
            listed = _mask(pc.is_in(events, value_set=pa.array(sorted(config.event_weights))))
            unlisted = kept & ~listed & ~reasons["missing_event"]
            filtered["unlisted_event"] = int(unlisted.sum())
            kept &= ~unlisted
    return kept, reasons, filtered


def _find_faults(fields: _Fields, kept: npt.NDArray[np.bool_], catalogue: pa.Array | None) -> _Masks:
    faults = {
        "missing_user": kept & _mask(fields.users.is_null()),
        "missing_item": kept & _mask(fields.items.is_null()),
        "missing_time": kept & _mask(fields.raw_times.is_null(nan_is_null=True)),
        "unreadable_time": kept & _mask(fields.times.is_null()),
        "absurd_time": kept & _mask(pc.fill_null(is_absurd(fields.times), False)),
    }
    if catalogue is not None:
        faults["unknown_item"] = kept & ~_mask(pc.is_in(fields.items, value_set=catalogue))
    return faults


def _mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array, dtype=bool)


def weights_of(events: pa.Array, weights: Mapping[str, float]) -> npt.NDArray[np.float32]:
    """Return the weight of each event type, 1 for all when none are declared; float32 ``[n]``."""
    if not weights:
        return np.ones(len(events), dtype=np.float32)
    names = sorted(weights)
    values = np.array([weights[name] for name in names], dtype=np.float32)
    chosen: npt.NDArray[np.float32] = values[np.asarray(pc.index_in(events, pa.array(names, type=pa.string())))]
    return chosen


def shard_of(users: pa.Array, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each user, 0 to ``shards`` - 1, from a stable hash; int64 ``[n]``."""
    return (hash_strings(users, _USER_SALT) % np.uint64(shards)).astype(np.int64)


def split_by_shard(rows: pa.Table, shards: int) -> list[tuple[int, pa.Table]]:
    """Split rows by the shard of their ``user_id``; shards without rows are left out, order inside is kept."""
    users = rows.column("user_id").combine_chunks().dictionary_encode()
    kind = np.int16 if shards < 2**15 else np.int64
    by_row = shard_of(users.dictionary, shards)[np.asarray(users.indices)].astype(kind)
    order = np.argsort(by_row, kind="stable")
    arranged = rows.take(pa.array(order)).combine_chunks()
    bounds = np.searchsorted(by_row[order], np.arange(shards + 1))
    return [
        (shard, arranged.slice(start, end - start))
        for shard, (start, end) in enumerate(pairwise(bounds.tolist()))
        if end > start
    ]


def lean(events: pa.Table) -> pa.Table:
    """Return events for their way to the workers: event types as a dictionary, no weight (the type implies it).

    Context values, where there are any, become a dictionary too.
    """
    lighter = events.select(["user_id", "item_id", "time_us"])
    for name in ("event", JOINED):
        if name in events.column_names:
            lighter = lighter.append_column(name, events.column(name).combine_chunks().dictionary_encode())
    return lighter
