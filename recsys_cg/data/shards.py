"""A shard: all events of a group of users, sorted and dictionary-coded, kept as files that are memory-mapped.

Codes follow the order of the strings they stand for, so sorting by code is sorting by identifier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.context_values import JOINED
from recsys_cg.schema import events_schema

__all__ = ["Shard", "build_shard", "is_among_newest"]

_COMPACT_ROWS: Final = 4_000_000
_UNITS_US: Final = (86_400_000_000, 3_600_000_000, 1_000_000, 1_000, 1)


@dataclass(frozen=True)
class Shard:
    """Events of a group of users, ordered by user_id, time, item_id, and then by how the event is preferred.

    Attributes:
        users: string array, sorted; ``items`` and ``events`` likewise.
        items: distinct item_ids.
        events: distinct event types.
        user: int32 ``[n]``, position in ``users``.
        item: int32 ``[n]``, position in ``items``.
        event: int32 ``[n]``, position in ``events``.
        time_us: int64 ``[n]``.
        contexts: distinct joined context values (`recsys_cg.data.context_values.join_values`), sorted; None without.
        context: int32 ``[n]``, position in ``contexts``; None without.
    """

    users: pa.Array
    items: pa.Array
    events: pa.Array
    user: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    event: npt.NDArray[np.int32]
    time_us: npt.NDArray[np.int64]
    contexts: pa.Array | None = None
    context: npt.NDArray[np.int32] | None = None

    def save(self, directory: Path) -> None:
        """Write the shard below ``directory``, and beside it the sorted times as ``times.npy``."""
        directory.mkdir(parents=True, exist_ok=True)
        with_context = self.context is not None
        for name in ("user", "item", "event", "time_us", *(["context"] if with_context else [])):
            np.save(directory / f"{name}.npy", getattr(self, name))
        np.save(directory / "times.npy", np.sort(self.time_us))
        for name in ("users", "items", *(["contexts"] if with_context else [])):
            table = pa.table({name: getattr(self, name)})
            with pa.OSFile(str(directory / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)
        (directory / "events.json").write_text(json.dumps(self.events.to_pylist()), encoding="utf-8")

    @classmethod
    def open(cls, directory: Path) -> Shard:
        """Map the shard that `save` wrote; nothing is read until it is used."""
        has_context = (directory / "context.npy").exists()
        named = ("user", "item", "event", *(["context"] if has_context else []))
        numbers = {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in named}
        strings = {}
        for name in ("users", "items", *(["contexts"] if has_context else [])):
            table = pa.ipc.open_file(pa.memory_map(str(directory / f"{name}.arrow"))).read_all()
            strings[name] = table.column(name).combine_chunks()
        events = json.loads((directory / "events.json").read_text(encoding="utf-8"))
        times = np.load(directory / "time_us.npy", mmap_mode="r")
        return cls(events=pa.array(events, type=pa.string()), time_us=times, **numbers, **strings)

    @staticmethod
    def open_times(directory: Path) -> npt.NDArray[np.int64]:
        """Map the sorted times that `save` wrote."""
        times: npt.NDArray[np.int64] = np.load(directory / "times.npy", mmap_mode="r")
        return times

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Shard:
        """Return the shard with these of its rows, in this order, and all of its names."""
        return replace(
            self,
            user=self.user[rows],
            item=self.item[rows],
            event=self.event[rows],
            time_us=self.time_us[rows],
            context=None if self.context is None else self.context[rows],
        )

    def to_table(self) -> pa.Table:
        """Return the rows as a table that `build_shard` takes."""
        columns = {
            "user_id": self.users.take(pa.array(self.user)),
            "item_id": self.items.take(pa.array(self.item)),
            "time_us": pa.array(self.time_us),
            "event": pa.DictionaryArray.from_arrays(pa.array(self.event), self.events),
        }
        if self.context is not None:
            columns[JOINED] = pa.DictionaryArray.from_arrays(pa.array(self.context), self.contexts)
        return pa.table(columns)


def is_among_newest(
    user: npt.NDArray[np.integer], time_us: npt.NDArray[np.int64], most: int, cuts: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Tell which rows are among the last ``most`` of their user and window.

    Args:
        user: ``[n]``, not decreasing.
        time_us: int64 ``[n]``, not decreasing within a user.
        most: at least 1.
        cuts: times, ascending, at which a window ends and the next begins.

    Returns:
        bool ``[n]``.

    Example:
        >>> is_among_newest(np.zeros(5, np.int64), np.array([1, 2, 3, 8, 9]), 2, [8]).tolist()
        [False, True, True, True, True]
    """
    is_last = np.ones(len(user), dtype=bool)
    is_last[:-1] = user[1:] != user[:-1]
    if len(cuts):
        window = np.searchsorted(np.asarray(cuts, dtype=np.int64), time_us, side="right")
        is_last[:-1] |= window[1:] != window[:-1]
    ends = np.flatnonzero(is_last)
    from_end = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(user))
    return from_end < most


def build_shard(
    tables: Iterable[pa.Table],
    *,
    max_user_events: int,
    dedupe: bool,
    weights: Mapping[str, float],
    cuts: Sequence[int] = (),
) -> tuple[Shard, dict[str, int]]:
    """Sort events, cap hot users, drop repeats; the result does not depend on the order of rows or tables.

    Of each user the newest ``max_user_events`` rows of each window are kept (by time, then item_id), so that what comes
    in a later window pushes nothing out of an earlier one. They are counted before repeats are dropped, so that the cap
    can be applied piecewise: however many events a robot has, memory holds at most about four million rows more than
    what is kept. With ``dedupe``, one event of each (user, item, time) is kept: of the
    greatest weight, then of the first name, then of the first context.

    Args:
        tables: events with user_id, item_id, time_us and event, the last as strings or as a dictionary; and perhaps
            context, likewise.
        max_user_events: at least 1.
        dedupe: whether repeats are dropped.
        weights: event type -> weight; may be empty.
        cuts: times in microseconds, ascending, at which a window ends and the next begins; none: one window.

    Returns:
        the shard, and the rows left out by reason (``max_user_events``, ``duplicate``).
    """
    held: list[pa.Table] = []
    rows, limit, capped = 0, _COMPACT_ROWS, 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows > limit:
            shard, dropped = _cap(_sort(held, weights), max_user_events, cuts)
            capped += dropped
            held, rows = [shard.to_table()], len(shard.user)
            limit = rows + _COMPACT_ROWS
    shard, dropped = _cap(_sort(held, weights), max_user_events, cuts)
    capped += dropped
    repeats = 0
    if dedupe:
        is_repeat = _repeats(shard)
        repeats = int(is_repeat.sum())
        shard = shard.take(~is_repeat) if repeats else shard
    counts = {"max_user_events": capped, "duplicate": repeats}
    return shard, {reason: count for reason, count in counts.items() if count}


def _cap(shard: Shard, most: int, cuts: Sequence[int]) -> tuple[Shard, int]:
    kept = is_among_newest(shard.user, shard.time_us, most, cuts)
    dropped = int(len(kept) - kept.sum())
    return (shard.take(kept) if dropped else shard), dropped


def _repeats(shard: Shard) -> npt.NDArray[np.bool_]:
    same = np.zeros(len(shard.user), dtype=bool)
    for values in (shard.user, shard.time_us, shard.item):
        equal = values[1:] == values[:-1]
        same[1:] = equal if values is shard.user else same[1:] & equal
    return same


def _sort(tables: Sequence[pa.Table], weights: Mapping[str, float]) -> Shard:
    table = pa.concat_tables(_decode_where_mixed(tables)) if tables else events_schema.empty_table()
    users, user = _encode(table.column("user_id"))
    items, item = _encode(table.column("item_id"))
    events, event = _encode(table.column("event"))
    time_us = table.column("time_us").to_numpy()
    names = events.to_pylist()
    preferred = sorted(range(len(names)), key=lambda code: (-weights.get(names[code], 1.0), names[code]))
    rank = np.empty(len(names), dtype=np.int32)
    rank[preferred] = np.arange(len(names), dtype=np.int32)
    ranked = rank[event] if len(names) > 1 else event
    contexts = context = None
    if JOINED in table.column_names:
        contexts, context = _encode(table.column(JOINED))
        pairs, ranked = _pair(ranked, context, len(contexts))
    user, time_us, item, ranked = _sort_columns(user, time_us, item, ranked)
    if contexts is not None:
        ranked, context = (column[ranked] for column in pairs)
    back = np.array(preferred, dtype=np.int32)
    event = back[ranked] if len(names) > 1 else ranked
    return Shard(users, items, events, user, item, event, time_us, contexts, context)


def _pair(
    rank: npt.NDArray[np.int32], context: npt.NDArray[np.int32], contexts: int
) -> tuple[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]], npt.NDArray[np.int32]]:
    """Number the distinct (rank, context) in order; return rank and context of each, and the number of each row."""
    distinct, place = np.unique(rank.astype(np.int64) * contexts + context, return_inverse=True)
    high, low = np.divmod(distinct, max(contexts, 1))
    return (high.astype(np.int32), low.astype(np.int32)), place.astype(np.int32)


def _decode_where_mixed(tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """Bring the columns of event and context to one type: dictionaries where all are, else strings."""
    for name in ("event", JOINED):
        if name in tables[0].column_names and len({table.schema.field(name).type for table in tables}) > 1:
            tables = [_encode_column(table, name) for table in tables]
    return tables


def _encode_column(table: pa.Table, name: str) -> pa.Table:
    encoded = table.column(name).cast(pa.string()).dictionary_encode()
    return table.set_column(table.schema.get_field_index(name), name, encoded)


def _encode(column: pa.ChunkedArray) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Return the distinct strings, sorted, and each row's position among them."""
    encoded = column.combine_chunks() if column.num_chunks < 2 else column
    # Encoding strings gives all chunks one dictionary; unifying it again costs chunks times names.
    is_encoded = pa.types.is_dictionary(encoded.type)
    encoded = encoded if is_encoded else encoded.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries() if is_encoded else encoded
        names = encoded.chunk(encoded.num_chunks - 1).dictionary
        codes = np.concatenate([np.asarray(chunk.indices) for chunk in encoded.chunks])
    else:
        names, codes = encoded.dictionary, np.asarray(encoded.indices)
    order = pc.sort_indices(names)
    rank = np.empty(len(names), dtype=np.int32)
    rank[np.asarray(order)] = np.arange(len(names), dtype=np.int32)
    return names.take(order), rank[codes]


_Columns = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]


def _sort_columns(
    user: npt.NDArray[np.int32],
    time_us: npt.NDArray[np.int64],
    item: npt.NDArray[np.int32],
    rank: npt.NDArray[np.int32],
) -> _Columns:
    """Sort rows by (user, time, item, rank): as one packed integer where the four fit 63 bits, else by `_order`."""
    if not len(user):
        return user, time_us, item, rank
    start = int(time_us.min())
    offset = time_us - start
    unit = next(unit for unit in _UNITS_US if unit == 1 or not (offset % unit).any())
    offset //= unit
    widths = [int(values.max()).bit_length() for values in (rank, item, offset, user)]
    if sum(widths) > 63:
        order = _order(user, offset, item, rank, sum(widths[2:]) <= 63)
        return user[order], time_us[order], item[order], rank[order]
    packed: npt.NDArray[np.int64] = user.astype(np.int64)
    for low, width in zip((offset, item.astype(np.int64), rank.astype(np.int64)), widths[2::-1], strict=True):
        packed = (packed << width) | low
    packed.sort()
    columns = []
    for width in widths:
        columns.append(packed & ((1 << width) - 1))
        packed >>= width
    rank, item, user = (columns[at].astype(np.int32) for at in (0, 1, 3))
    return user, columns[2] * unit + start, item, rank


def _order(
    user: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    item: npt.NDArray[np.int32],
    rank: npt.NDArray[np.int32],
    fits: bool,
) -> npt.NDArray[np.int64]:
    """Order rows by user and time as one integer where the two fit 63 bits, then order the ties among themselves."""
    if not fits:
        return np.lexsort((rank, item, offset, user))
    keys = (user.astype(np.int64) << int(offset.max()).bit_length()) | offset
    order = np.argsort(keys)
    arranged = keys[order]
    is_tied = np.zeros(len(order), dtype=bool)
    equal = arranged[1:] == arranged[:-1]
    is_tied[1:] |= equal
    is_tied[:-1] |= equal
    tied = order[is_tied]
    order[is_tied] = tied[np.lexsort((rank[tied], item[tied], keys[tied]))]
    return order
