"""The audit of mined negatives: how many of them were wanted after all, and a table that a person can judge them by.

A mined item is what the model would show and the user had not met. Some of these are wanted: items that the user met
later. The log tells of those only, so their share is a lower bound of the share of false negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.model.mining import Anchors, Search

__all__ = ["Audit", "Later", "audit_mined", "share_interval"]

_ANCHORS: Final = 50
_SHOWN: Final = 10
_HISTORY: Final = 5
_NORMAL_975: Final = 1.959964

_SCHEMA: Final = pa.schema(
    [
        ("anchor_titles", pa.string()),
        ("mined_item_id", pa.string()),
        ("mined_title", pa.string()),
        ("score", pa.float64()),
        ("rank", pa.int64()),
        ("later_interacted", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Later:
    """What the users of the training sequences met in the validation window.

    Attributes:
        starts: int64 [users + 1], where the items of each user begin, users in the order of the sequences.
        items: int32 [values], item_row.
    """

    starts: NDArray[np.int64]
    items: NDArray[np.int32]

    @classmethod
    def from_tables(cls, sequences: Iterable[pa.Table], queries: pa.Table) -> Later:
        """Read the users of ``sequences`` and the targets of the validation ``queries``, matched by user_id."""
        users = pa.concat_tables([table.select(["user_id"]) for table in sequences])["user_id"].combine_chunks()
        asked = pc.index_in(queries["user_id"].combine_chunks(), value_set=users)
        targets = queries["targets"].combine_chunks()
        user = np.repeat(np.asarray(pc.fill_null(asked, -1), dtype=np.int64), np.asarray(targets.value_lengths()))
        order = np.argsort(user, kind="stable")
        starts = np.searchsorted(user[order], np.arange(len(users) + 1))
        return cls(starts, np.asarray(targets.flatten(), dtype=np.int32)[order])

    def of(self, user: int) -> NDArray[np.int32]:
        """Return the items of one user."""
        met: NDArray[np.int32] = self.items[self.starts[user] : self.starts[user + 1]]
        return met


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        anchors: queries searched.
        sampled: mined (query, item) pairs examined: every rank of the band, of every query.
        later_interacted: those whose user met the item after the query, in the training or the validation window.
        interval: 95% confidence interval of their share; None where nothing was examined.
        table: some of the pairs, for a person to read.
    """

    anchors: int
    sampled: int
    later_interacted: int
    interval: tuple[float, float] | None
    table: pa.Table

    @property
    def record(self) -> dict[str, Any]:
        """The figures, as training.json holds them."""
        return {
            "anchors": self.anchors,
            "sampled": self.sampled,
            "later_interacted": self.later_interacted,
            "false_negative_share": self.later_interacted / self.sampled if self.sampled else None,
            "ci95": None if self.interval is None else list(self.interval),
        }


def audit_mined(search: Search, later: Later, names: tuple[Sequence[str], Sequence[str | None]]) -> Audit:
    """Mine once more, with the model as it is, and look up what the users met later.

    Args:
        search: what is mined.
        later: what the users met in the validation window; it is looked at here and nowhere in training.
        names: item_id and title of each item; an item without a title goes by its id.
    """
    labels = _Labels(names[0], [title or item_id for item_id, title in zip(*names, strict=True)])
    found: list[NDArray[np.int64]] = []
    rows: list[dict[str, Any]] = []
    for anchors in search.run():
        wanted = anchors.met_later(later.of)
        found.append(np.stack([(anchors.items >= 0).sum(axis=1), wanted.sum(axis=1)], axis=1))
        step = max(1, anchors.total // _ANCHORS)
        for place in range(-anchors.start % step, len(anchors.items), step):
            if (anchors.start + place) // step < _ANCHORS:
                rows += _describe(search, anchors, place, wanted[place], labels)
    counts = np.concatenate(found) if found else np.zeros((0, 2), np.int64)
    return Audit(
        anchors=len(counts),
        sampled=int(counts[:, 0].sum()),
        later_interacted=int(counts[:, 1].sum()),
        interval=share_interval(counts[:, 0], counts[:, 1]),
        table=pa.Table.from_pylist(rows, schema=_SCHEMA),
    )


@dataclass(frozen=True)
class _Labels:
    ids: Sequence[str]
    titles: Sequence[str]


def _describe(
    search: Search, anchors: Anchors, place: int, wanted: NDArray[np.bool_], labels: _Labels
) -> list[dict[str, Any]]:
    """Return rows for some mined items of one query, evenly spread over the band."""
    there = np.flatnonzero(anchors.items[place] >= 0)
    chosen = there[np.unique(np.linspace(0, len(there) - 1, _SHOWN).astype(np.int64))] if len(there) else there
    history = " | ".join(labels.titles[item] for item in anchors.histories[place][-_HISTORY:])
    return [
        {
            "anchor_titles": history,
            "mined_item_id": labels.ids[item],
            "mined_title": labels.titles[item],
            "score": round(float(search.vectors[item] @ anchors.encoded[place]), 4),
            "rank": search.band[0] + int(rank),
            "later_interacted": bool(wanted[rank]),
        }
        for rank, item in zip(chosen, anchors.items[place, chosen], strict=True)
    ]


def share_interval(sizes: NDArray[np.integer], hits: NDArray[np.integer]) -> tuple[float, float] | None:
    """Return Wilson's 95% interval of ``sum(hits) / sum(sizes)`` when hits come in clusters, one a query.

    Pairs of one query are alike, so their number n overstates what is known. It is divided by the design effect, the
    variance of the ratio between clusters over ``p (1 - p) / n`` (Korn and Graubard 1998); where no pair or every pair
    is a hit, or there is one cluster, it is the number of clusters.

    Args:
        sizes: integers [clusters], pairs in each.
        hits: integers [clusters], at most ``sizes``.

    Returns:
        (low, high) in [0, 1]; None where there is no pair.

    Example:
        >>> share_interval(np.array([10, 10]), np.array([0, 0]))
        (0.0, 0.65762)
    """
    wide, met = np.asarray(sizes, dtype=np.float64), np.asarray(hits, dtype=np.float64)
    number, clusters = wide.sum(), int((wide > 0).sum())
    if number == 0:
        return None
    share = met.sum() / number
    effective = float(clusters)
    if 0.0 < share < 1.0 and clusters > 1:
        variance = clusters / (clusters - 1) * np.square(met - share * wide).sum() / number**2
        effective = min(number, share * (1.0 - share) / variance) if variance > 0 else number
    squared = _NORMAL_975**2 / effective
    middle = (share + squared / 2) / (1.0 + squared)
    half = _NORMAL_975 * np.sqrt(share * (1.0 - share) / effective + squared / (4 * effective)) / (1.0 + squared)
    return round(max(0.0, float(middle - half)), 6), round(min(1.0, float(middle + half)), 6)
