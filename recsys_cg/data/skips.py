"""Skips: what a user was shown together with an item and did not take."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.impressions import latest_impressions
from recsys_cg.data.sequences import Timeline, ragged_range

__all__ = ["skipped_items"]

_CONSIDERED: Final = 256

Ints = npt.NDArray[np.int64]


def skipped_items(
    sequences: pa.Table, impressions: pa.Table, identity: npt.NDArray[np.int32], *, most: int, span_us: int = 0
) -> npt.NDArray[np.int32]:
    """Find for each training event the items that were shown with its item and that its user never took.

    The request of an event is the latest impression of its item to its user at or before its time; shown with it is
    what the same user was shown in the ``span_us`` up to that moment, of at most 256 impressions the newest. An item
    that the user met anywhere in training, or that is a known duplicate of such an item, was not skipped. Of more than
    ``most`` the first positions are kept, since they were looked at most surely, then the latest shown.

    Args:
        sequences: `recsys_cg.schema.sequences_schema`.
        impressions: `recsys_cg.data.impressions.impressions_schema`, of these users and maybe of others.
        identity: int32 [items], equal for known duplicates.
        most: items kept an event, at least 1.
        span_us: microseconds; 0 where all that a request showed carries one time.

    Returns:
        int32 [events, most], item_row in the order of preference, padded with -1; events in the order of the
        sequences. An event whose item was not shown has none.
    """
    timeline = _timeline(sequences)
    skips = np.full((len(timeline.user), most), -1, dtype=np.int32)
    shown = impressions.filter(pc.is_in(impressions["user_id"], value_set=timeline.users)).combine_chunks()
    if not len(timeline.user) or not shown.num_rows:
        return skips
    found = latest_impressions(timeline, shown)
    users = np.asarray(pc.index_in(shown["user_id"], value_set=timeline.users), dtype=np.int64)
    events = np.flatnonzero(found >= 0)
    order, starts, stops = _requests(users, np.asarray(shown["time_us"]), found[events], span_us)
    event = np.repeat(events, stops - starts)
    place = order[ragged_range(starts, stops - starts)]
    rows = np.asarray(shown["item_row"], dtype=np.int64)
    same = identity[rows[place]].astype(np.int64)
    kept = ~_was_met(timeline, identity, timeline.user[event], same)
    event, place, same = event[kept], place[kept], same[kept]
    position = np.asarray(pc.fill_null(shown["position"], np.iinfo(np.int32).max), dtype=np.int64)[place]
    preferred = np.lexsort((rows[place], -np.asarray(shown["time_us"])[place], position, event))
    event, place, same = event[preferred], place[preferred], same[preferred]
    first = _is_first(event * (int(identity.max()) + 1) + same)
    event, place = event[first], place[first]
    rank = np.arange(len(event)) - np.searchsorted(event, event)
    near = rank < most
    skips[event[near], rank[near]] = rows[place[near]]
    return skips


def _timeline(sequences: pa.Table) -> Timeline:
    def flat(name: str) -> npt.NDArray[np.generic]:
        values: npt.NDArray[np.generic] = np.asarray(sequences[name].combine_chunks().flatten())
        return values

    lengths = np.asarray(sequences["item_rows"].combine_chunks().value_lengths(), dtype=np.int64)
    return Timeline(
        users=sequences["user_id"].combine_chunks(),
        user=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        time_us=flat("times_us").astype(np.int64),
        item_row=flat("item_rows").astype(np.int32),
        event=flat("events").astype(np.int8),
        weight=flat("weights").astype(np.float32),
    )


def _requests(users: Ints, times_us: Ints, taken: Ints, span_us: int) -> tuple[Ints, Ints, Ints]:
    """Return impressions ordered by user and time, and the range among them that belongs to each of ``taken``."""
    order = np.lexsort((times_us, users))
    moments = np.unique(times_us)
    width = len(moments) + 1
    keys = users[order] * width + np.searchsorted(moments, times_us[order])
    low = users[taken] * width + np.searchsorted(moments, times_us[taken] - span_us)
    high = users[taken] * width + np.searchsorted(moments, times_us[taken])
    stops = np.searchsorted(keys, high, side="right")
    return order, np.maximum(np.searchsorted(keys, low), stops - _CONSIDERED), stops


def _was_met(
    timeline: Timeline, identity: npt.NDArray[np.int32], user: npt.NDArray[np.int32], same: Ints
) -> npt.NDArray[np.bool_]:
    width = int(identity.max()) + 1
    own = np.unique(timeline.user.astype(np.int64) * width + identity[timeline.item_row])
    met: npt.NDArray[np.bool_] = np.isin(user.astype(np.int64) * width + same, own)
    return met


def _is_first(keys: Ints) -> npt.NDArray[np.bool_]:
    """Tell which keys have not come before."""
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first
