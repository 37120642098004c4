"""Training input: users' sequences packed end to end into rows of equal length, integers and times only.

Users are shuffled every epoch as a function of (seed, epoch) and laid end to end, so a row holds the end of one user,
some whole users and the start of another; segments keep them apart. The query of a target is the last event of the
same user at a *strictly earlier* time: events of one time are predicted from the same place and never from one
another. A user's first events are predicted from the empty history. An event whose earlier events fell into the row
before is a candidate and a history item, but no target in that epoch; every other event is a target once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.errors import DataError
from recsys_cg.model.frameworks import tf

__all__ = [
    "Sequences",
    "batch_signature",
    "fitting_rows",
    "pack_batch",
    "split_batch",
    "steps_per_epoch",
    "stream_epoch",
]

Batch = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sequences:
    """All training events, user after user.

    Attributes:
        items: int32 [events], item_row.
        codes: int32 [events], event code.
        gaps_s: float32 [events], seconds to the user's next event; 0 at the last one.
        weights: float32 [events], weight of the event as a target.
        before: int64 [events], place of the user's last event at a strictly earlier time, -1 where there is none.
        starts: int64 [users + 1], places where users start.
        skips: int32 [events, per_query], what was shown with each event's item and skipped, -1 in padding
            (`recsys_cg.data.skips`); None where no source of negatives asks for it.
        context: int32 [events, features], context codes of the query that each event answers; None without.
    """

    items: NDArray[np.int32]
    codes: NDArray[np.int32]
    gaps_s: NDArray[np.float32]
    weights: NDArray[np.float32]
    before: NDArray[np.int64]
    starts: NDArray[np.int64]
    skips: NDArray[np.int32] | None = None
    context: NDArray[np.int32] | None = None

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.starts) - 1

    @property
    def events(self) -> int:
        """Number of events."""
        return len(self.items)

    def context_counts(self, sizes: Sequence[int]) -> list[NDArray[np.int64]]:
        """Return of each context feature, of so many codes, how many events have each code."""
        columns = () if self.context is None else self.context.T
        return [np.bincount(codes, minlength=size) for codes, size in zip(columns, sizes, strict=True)]

    @classmethod
    def from_tables(cls, tables: Iterable[pa.Table], context: Sequence[str] = ()) -> Sequences:
        """Read tables of `recsys_cg.schema.sequences_schema`, one a shard.

        Args:
            tables: the tables.
            context: columns of context codes, in the order of the query tower.

        Raises:
            DataError: there is no event.
        """
        parts = [_flatten(table, context) for table in tables if table.num_rows]
        if not parts or not any(len(part[0]) for part in parts):
            raise DataError("the dataset holds no training sequence; widen its training window or relax its filters")
        columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        items, times, codes, weights, lengths, *asked = columns
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(
            items=items.astype(np.int32),
            codes=codes.astype(np.int32),
            gaps_s=_gaps_to_next(times, starts),
            weights=weights.astype(np.float32),
            before=_last_before(times, starts),
            starts=starts,
            context=np.stack(asked, axis=1).astype(np.int32) if context else None,
        )


def _flatten(table: pa.Table, context: Sequence[str]) -> tuple[NDArray[Any], ...]:
    def values(name: str) -> NDArray[Any]:
        return np.asarray(table[name].combine_chunks().flatten())

    lengths = np.asarray(table["item_rows"].combine_chunks().value_lengths())
    flat = (values(name) for name in ("item_rows", "times_us", "events", "weights"))
    return *flat, lengths, *(values(name) for name in context)


def _gaps_to_next(times_us: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    gaps = np.zeros(len(times_us), dtype=np.float32)
    gaps[:-1] = np.diff(times_us) / 1e6
    last = starts[1:][np.diff(starts) > 0] - 1
    gaps[last] = 0.0
    return gaps


def _last_before(times_us: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    places = np.arange(len(times_us), dtype=np.int64)
    first_of_user = np.zeros(len(times_us), dtype=bool)
    first_of_user[starts[:-1][np.diff(starts) > 0]] = True
    changes = first_of_user.copy()
    changes[1:] |= np.diff(times_us) != 0
    group_start = np.maximum.accumulate(np.where(changes, places, 0))
    before: NDArray[np.int64] = np.where(first_of_user[group_start], -1, group_start - 1)
    return before


def pack_batch(sequences: Sequences, places: NDArray[np.int64], *, shape: tuple[int, int]) -> Batch:
    """Lay events into rows.

    Args:
        sequences: the events.
        places: which events, in order, users whole and contiguous except at the ends; at most rows * length of them.
        shape: (rows, length).

    Returns:
        ``items``, ``event`` int32, ``gap_s``, ``weight`` float32 and ``segment`` int32, all [rows, length]; segment
        numbers the users of the batch from 0 and is -1 in padding, ``weight`` is 0 where an event is no target;
        ``query`` int32 [rows * length], flat position of each target's query, rows * length for the empty history,
        0 where there is none; ``own_segment``, ``own_item`` int32 [pairs], every item of the whole training history
        of each user of the batch; where the sequences have skips ``skipped`` int32 [rows * length, per_query], -1 in
        padding and where an event is no target; with context ``context`` int32 [rows, length, features], that of the
        query that each event answers.
    """
    rows, length = shape
    size = rows * length
    count = len(places)
    users, segment = np.unique(np.searchsorted(sequences.starts, places, side="right") - 1, return_inverse=True)
    query, is_target = _query_positions(sequences.before[places], places, length=length, size=size)
    own_segment, own_item = _whole_histories(sequences, users)

    def padded(values: NDArray[Any], fill: float, dtype: Any) -> NDArray[Any]:
        flat = np.full(size, fill, dtype=dtype)
        flat[:count] = values
        return flat

    batch = {
        "items": padded(sequences.items[places], 0, np.int32).reshape(shape),
        "event": padded(sequences.codes[places], 0, np.int32).reshape(shape),
        "gap_s": padded(sequences.gaps_s[places], 0.0, np.float32).reshape(shape),
        "weight": padded(np.where(is_target, sequences.weights[places], 0.0), 0.0, np.float32).reshape(shape),
        "segment": padded(segment, -1, np.int32).reshape(shape),
        "query": padded(query, 0, np.int32),
        "own_segment": own_segment,
        "own_item": own_item,
    }
    if sequences.skips is not None:
        batch["skipped"] = np.full((size, sequences.skips.shape[1]), -1, dtype=np.int32)
        batch["skipped"][:count][is_target] = sequences.skips[places[is_target]]
    if sequences.context is not None:
        asked = np.zeros((size, sequences.context.shape[1]), dtype=np.int32)
        asked[:count] = sequences.context[places]
        batch["context"] = asked.reshape(*shape, -1)
    return batch


def _query_positions(
    before: NDArray[np.int64], places: NDArray[np.int64], *, length: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    position = np.arange(len(places))
    query = position - (places - before)
    is_first = before < 0
    same_row = (query >= 0) & (query // length == position // length)
    is_target = is_first | same_row
    return np.where(is_first, size, np.where(same_row, query, 0)), is_target


def _whole_histories(sequences: Sequences, users: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    lengths = sequences.starts[users + 1] - sequences.starts[users]
    segment = np.repeat(np.arange(len(users), dtype=np.int32), lengths)
    shift = np.repeat(sequences.starts[users] - (np.cumsum(lengths) - lengths), lengths)
    return segment, sequences.items[np.arange(len(segment)) + shift]


def fitting_rows(events: int, *, length: int, replicas: int = 1) -> int:
    """Return rows a step, 4 to 32, for at least 400 steps an epoch of ``events`` where 4 rows allow it.

    Small steps learn more from a small log, large ones cost less an event. A multiple of ``replicas``.
    """
    rows = min(max(events // (400 * length), 4), 32)
    return -(-rows // replicas) * replicas


def steps_per_epoch(sequences: Sequences, *, shape: tuple[int, int]) -> int:
    """Return how many batches of (rows, length) hold every event once."""
    return -(-sequences.events // (shape[0] * shape[1]))


def stream_epoch(sequences: Sequences, *, shape: tuple[int, int], seed: int, epoch: int) -> Iterator[Batch]:
    """Yield the batches of one epoch, a pure function of the arguments."""
    order = np.random.default_rng([seed, epoch]).permutation(sequences.users)
    lengths = np.diff(sequences.starts)[order]
    ends = np.cumsum(lengths)
    size = shape[0] * shape[1]
    for start in range(0, sequences.events, size):
        stop = min(start + size, sequences.events)
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        shift = sequences.starts[order[first : last + 1]] - (ends - lengths)[first : last + 1]
        laid = np.arange(start, stop)
        user = np.searchsorted(ends[first : last + 1], laid, side="right")
        yield pack_batch(sequences, laid + shift[user], shape=shape)


def split_batch(batch: Batch, part: int, parts: int) -> Batch:
    """Return the rows of replica ``part`` of ``parts``; the number of rows is a multiple of ``parts``."""
    rows, length = batch["items"].shape
    size = rows // parts
    taken = slice(part * size, (part + 1) * size)
    flat = slice(taken.start * length, taken.stop * length)
    query = batch["query"][flat]
    is_target = batch["weight"].reshape(-1)[flat] > 0
    local = np.where(query == rows * length, size * length, np.where(is_target, query - flat.start, 0))
    grids = ("items", "event", "gap_s", "weight", "segment", *(["context"] if "context" in batch else []))
    split = {name: batch[name][taken] for name in grids}
    owners = {name: batch[name] for name in ("own_segment", "own_item")}
    skips = {name: batch[name][flat] for name in ("skipped",) if name in batch}
    return {**split, **owners, **skips, "query": local.astype(np.int32)}


def batch_signature(
    shape: tuple[int, int], *, skips: NDArray[np.int32] | None = None, context: NDArray[np.int32] | None = None
) -> dict[str, Any]:
    """Return the tf.TensorSpec of each entry of a batch of ``shape``, of sequences with ``skips`` and ``context``."""
    size = shape[0] * shape[1]
    grid = {"items": tf.int32, "event": tf.int32, "gap_s": tf.float32, "weight": tf.float32, "segment": tf.int32}
    signature = {name: tf.TensorSpec(shape, dtype) for name, dtype in grid.items()}
    signature["query"] = tf.TensorSpec([size], tf.int32)
    signature["own_segment"] = tf.TensorSpec([None], tf.int32)
    signature["own_item"] = tf.TensorSpec([None], tf.int32)
    if skips is not None:
        signature["skipped"] = tf.TensorSpec([size, skips.shape[1]], tf.int32)
    if context is not None:
        signature["context"] = tf.TensorSpec([*shape, context.shape[1]], tf.int32)
    return signature
