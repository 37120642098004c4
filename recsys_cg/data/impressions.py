"""Impressions: what was shown to whom, where, by which policy and how likely; and which one an event followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import ImpressionsConfig
from recsys_cg.data.blocks import Block, naming_source, reject_rows
from recsys_cg.data.identifiers import to_strings
from recsys_cg.data.sequences import Timeline
from recsys_cg.data.shards import is_among_newest
from recsys_cg.data.times import is_absurd, parse_times
from recsys_cg.data.values import numeric_column

__all__ = [
    "CleanImpressions",
    "clean_impression_block",
    "exposures_of",
    "impression_columns",
    "impressions_schema",
    "latest_impressions",
    "merge_impressions",
]

impressions_schema: Final = pa.schema(
    [
        pa.field("user_id", pa.string(), nullable=False),
        pa.field("item_row", pa.int32(), nullable=False),
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("position", pa.int32()),
        pa.field("policy", pa.string()),
        pa.field("propensity", pa.float64()),
        pa.field("random", pa.bool_()),
    ]
)
"""One impression; what the source has no column for is null. Ordered by user_id, time, item and the rest."""

_clean_schema: Final = pa.schema(
    [pa.field("item_id", pa.string()) if f.name == "item_row" else f for f in impressions_schema]
)
_ORDER: Final = [
    (name, "ascending") for name in ("user_id", "time_us", "item_id", "position", "policy", "propensity", "random")
]
_COMPACT_ROWS: Final = 4_000_000
_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")
_EXPOSED: Final = ("position", "propensity", "random")


@dataclass(frozen=True)
class CleanImpressions:
    """What became of a block: ``rows`` = impressions + rejects."""

    impressions: pa.Table
    rejects: pa.Table
    rows: int


def impression_columns(config: ImpressionsConfig) -> list[str]:
    """Return the source columns that `clean_impression_block` needs, each once."""
    named = [config.user, config.item, config.time, config.position, config.policy, config.propensity, config.random]
    return list(dict.fromkeys(name for name in named if name is not None))


def clean_impression_block(block: Block, config: ImpressionsConfig) -> CleanImpressions:
    """Check one block of impressions.

    A row is refused for ``missing_user``, ``missing_item``, ``unreadable_time`` (also a missing one),
    ``absurd_time``, ``bad_position`` (there, and no whole number from 0 on), ``bad_propensity`` (there, and not in (0,
    1]) or ``bad_random`` (there, and neither true, false, 1, 0, yes nor no).

    Raises:
        SourceError: a column is nested or no UTF-8; the message names the file.
    """
    with naming_source(block.source):
        return _clean(block, config)


def _clean(block: Block, config: ImpressionsConfig) -> CleanImpressions:
    table, count = block.table, block.table.num_rows
    users, items = (
        to_strings(table.column(config.user), config.user),
        to_strings(table.column(config.item), config.item),
    )
    times = parse_times(table.column(config.time), config.time_unit, config.time_zone)
    position, bad_position = _numbers(table, config.position, whole=True)
    propensity, bad_propensity = _numbers(table, config.propensity, whole=False)
    random, bad_random = _booleans(table, config.random)
    policy = pa.nulls(count, pa.string())
    if config.policy is not None:
        policy = to_strings(table.column(config.policy), config.policy)
    reasons = {
        "missing_user": _mask(users.is_null()),
        "missing_item": _mask(items.is_null()),
        "unreadable_time": _mask(times.is_null()),
        "absurd_time": _mask(pc.fill_null(is_absurd(times), False)),
        "bad_position": bad_position,
        "bad_propensity": bad_propensity,
        "bad_random": bad_random,
    }
    kept = pa.array(~np.logical_or.reduce(list(reasons.values())))
    columns = [users, items, times, position, policy, propensity, random]
    clean = pa.table([column.filter(kept) for column in columns], schema=_clean_schema)
    return CleanImpressions(clean, pa.concat_tables([block.rejects, reject_rows(block, reasons)]), block.rows)


def _mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array, dtype=bool)


def _numbers(table: pa.Table, name: str | None, *, whole: bool) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read positions (whole numbers from 0 on) or probabilities; also tell which are there and bad."""
    kind = pa.int32() if whole else pa.float64()
    if name is None:
        return pa.nulls(table.num_rows, kind), np.zeros(table.num_rows, dtype=bool)
    raw = table.column(name).combine_chunks()
    values = np.asarray(pc.fill_null(numeric_column(raw, name), float("nan")), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        good = (
            (values >= 0) & (values < 2**31) & (values == np.floor(values)) if whole else (values > 0) & (values <= 1)
        )
    read = pa.array(np.where(good, values, 0), mask=~good).cast(kind)
    return read, _mask(raw.is_valid()) & ~good


def _booleans(table: pa.Table, name: str | None) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    if name is None:
        return pa.nulls(table.num_rows, pa.bool_()), np.zeros(table.num_rows, dtype=bool)
    raw = table.column(name).combine_chunks()
    text = pc.utf8_lower(to_strings(raw, name))
    is_true = pc.is_in(text, value_set=pa.array(_TRUE))
    is_false = pc.is_in(text, value_set=pa.array(_FALSE))
    read = pc.if_else(pc.or_(is_true, is_false), is_true, None)
    return read, _mask(pc.and_(raw.is_valid(), read.is_null()))


def merge_impressions(
    tables: Iterable[pa.Table], item_ids: pa.Array, most: int, cuts: Sequence[int] = ()
) -> tuple[pa.Table, dict[str, int]]:
    """Sort the impressions of a group of users; the result does not depend on the order of rows or tables.

    Args:
        tables: cleaned impressions.
        item_ids: the items of the dataset, in the order of their rows.
        most: newest impressions kept of one user and window, as ``dataset.max_user_events``.
        cuts: times in microseconds, ascending, at which a window ends and the next begins; none: one window.

    Returns:
        a table of `impressions_schema`, and what was left out: impressions of items that are not in the dataset
        (``unknown_item``) and of the oldest beyond the cap (``max_user_events``).
    """
    left_out = {"unknown_item": 0, "max_user_events": 0}
    held: list[pa.Table] = [_clean_schema.empty_table()]
    rows, limit = 0, _COMPACT_ROWS
    for table in tables:
        known = pc.is_in(table.column("item_id"), value_set=item_ids)
        chosen = table.filter(known)
        left_out["unknown_item"] += table.num_rows - chosen.num_rows
        held.append(chosen)
        rows += chosen.num_rows
        if rows > limit:
            held = [_sort_and_cap(held, most, cuts, left_out)]
            rows = held[0].num_rows
            limit = rows + _COMPACT_ROWS
    final = _sort_and_cap(held, most, cuts, left_out)
    item_rows = pc.index_in(final.column("item_id").combine_chunks(), value_set=item_ids)
    columns = [item_rows if name == "item_row" else final.column(name) for name in impressions_schema.names]
    counted = {reason: count for reason, count in left_out.items() if count}
    return pa.table(columns, schema=impressions_schema), counted


def _sort_and_cap(tables: list[pa.Table], most: int, cuts: Sequence[int], left_out: dict[str, int]) -> pa.Table:
    table = pa.concat_tables(tables).sort_by(_ORDER).combine_chunks()
    users = np.asarray(table.column("user_id").combine_chunks().dictionary_encode().indices)
    kept = is_among_newest(users, table.column("time_us").to_numpy(), most, cuts)
    left_out["max_user_events"] += int((~kept).sum())
    return table.filter(pa.array(kept))


def exposures_of(timeline: Timeline, impressions: pa.Table) -> pa.Table:
    """Describe for each event the latest impression of its user and item at or before its time.

    Args:
        timeline: events of a group of users.
        impressions: their impressions, as `merge_impressions` gives.

    Returns:
        ``position``, ``propensity`` and ``random`` of that impression, one row an event; null where there is none.
    """
    found = latest_impressions(timeline, impressions)
    return impressions.select(list(_EXPOSED)).take(pa.array(found, mask=found < 0))


def latest_impressions(timeline: Timeline, impressions: pa.Table) -> npt.NDArray[np.int64]:
    """Find for each event the latest impression of its user and item at or before its time.

    Args:
        timeline: events of a group of users.
        impressions: their impressions, as `merge_impressions` gives.

    Returns:
        int64 [n], place of that impression in ``impressions``; -1 where there is none.
    """
    users = np.asarray(pc.fill_null(pc.index_in(impressions.column("user_id"), value_set=timeline.users), -1))
    shown = np.flatnonzero(users >= 0)
    rows = np.asarray(impressions.column("item_row"), dtype=np.int64)[shown]
    width = int(max(rows.max(initial=0), timeline.item_row.max(initial=0))) + 1
    keys = np.concatenate(
        [users[shown].astype(np.int64) * width + rows, timeline.user.astype(np.int64) * width + timeline.item_row]
    )
    times = np.concatenate([np.asarray(impressions.column("time_us"))[shown], timeline.time_us])
    is_event = np.arange(len(keys)) >= len(shown)
    order = np.lexsort((is_event, times, keys))
    arranged = np.where(is_event[order], -1, np.arange(len(order)))
    latest = np.maximum.accumulate(arranged) if len(order) else arranged
    found = np.where((latest >= 0) & (keys[order][latest] == keys[order]), order[latest], -1)
    by_event = np.empty(len(timeline.user), dtype=np.int64)
    events = is_event[order]
    by_event[order[events] - len(shown)] = found[events]
    return np.where(by_event < 0, -1, shown[by_event]) if len(shown) else by_event
