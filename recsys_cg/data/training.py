"""Which events are training examples: those of the training window, of items and users that are frequent enough."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.shards import Shard

__all__ = ["select_training"]


def select_training(
    shard: Shard, validation_from_us: int, *, frequent: pa.Array | None, min_user_events: int
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Select the training events of a shard.

    ``min_item_events`` is judged first, over all training events (hence ``frequent``, which knows all shards), then
    ``min_user_events`` over what is left of each user; neither is judged again. Only training is thinned: events of
    the validation and test windows, and the histories of their queries, keep every item and user, because the
    service will meet them all.

    Args:
        shard: events of every window.
        validation_from_us: end of the training window.
        frequent: items with at least ``min_item_events`` training events; None: all.
        min_user_events: least number of events of a user.

    Returns:
        bool ``[n]``, and the training-window events left out by reason.
    """
    is_training = shard.time_us < validation_from_us
    left_out = {}
    if frequent is not None:
        known = np.asarray(pc.is_in(shard.items, value_set=frequent), dtype=bool)
        rare = is_training & ~known[shard.item]
        left_out["min_item_events"] = int(rare.sum())
        is_training &= ~rare
    if min_user_events > 1:
        counts = np.bincount(shard.user[is_training], minlength=len(shard.users))
        rare = is_training & (counts[shard.user] < min_user_events)
        left_out["min_user_events"] = int(rare.sum())
        is_training &= ~rare
    return is_training, {reason: count for reason, count in left_out.items() if count}
