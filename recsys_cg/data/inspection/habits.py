"""What a log's rows say of how people act: do they come back to items, do they take many at once."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["propose_settings"]

_COMING_BACK: Final = 0.05
_IN_BASKETS: Final = 0.5
_BASKET: Final = 3
_LARGE_BASKET: Final = 10


def propose_settings(table: pa.Table, user: str, item: str, time: str) -> dict[str, tuple[Any, str]]:
    """Return ``section.key`` -> (value, why) where the rows ask for another setting than the default.

    Rows of one user, item and time count once.

    Args:
        table: the rows looked at.
        user: name of the user's column, plain values.
        item: name of the item's column.
        time: name of the time's column.
    """
    events = table.select([user, item, time]).drop_null().group_by([user, item, time]).aggregate([])
    if not events.num_rows:
        return {}
    settings: dict[str, tuple[Any, str]] = {}
    pairs = events.group_by([user, item]).aggregate([]).num_rows
    again = 1.0 - pairs / events.num_rows
    if again >= _COMING_BACK:
        settings["evaluation.filter_seen"] = (False, f"{again:.0%} of the rows looked at come back to an item")
    sizes = events.group_by([user, time]).aggregate([([], "count_all")])["count_all"]
    baskets = sizes.filter(pc.greater_equal(sizes, _BASKET))
    together = (pc.sum(baskets).as_py() or 0) / events.num_rows
    if together >= _IN_BASKETS:
        why = f"{together:.0%} of the rows looked at lie in baskets: one user and time, {_BASKET} items or more"
        settings["training.ties_in_order"] = (1.0, why)
        mean = pc.mean(baskets).as_py()
        if mean >= _LARGE_BASKET:
            settings["dataset.max_history"] = (200, f"baskets of {mean:.0f} items in the mean: several of them")
            settings["training.row_length"] = (256, "events a packed row: a history as long as that")
    return settings
