"""Item ids to rows and back, in a few bytes an item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.errors import ArtifactCorruptError

__all__ = ["IdIndex", "take"]

_BLOCK = 65_536


class IdIndex:
    """The row of each item id, and the id of each row.

    Ids stay in Arrow; beside them stand their hashes, sorted, with their rows, and where the hashes of each leading
    bits begin: 16 bytes an item where a dict of strings takes over 100. Looking there instead of halving the range
    touches memory twice instead of ten times. A hit is confirmed against the id itself, so equal hashes of different
    ids do no harm.

    Args:
        ids: the item ids in row order, without null.

    Raises:
        ArtifactCorruptError: an id is there twice.
    """

    def __init__(self, ids: pa.ChunkedArray) -> None:
        self._ids = ids.combine_chunks()
        count = len(self._ids)
        hashes = np.empty(count, np.int64)
        for start in range(0, count, _BLOCK):
            names = self._ids.slice(start, _BLOCK).to_pylist()
            hashes[start : start + len(names)] = [hash(name) for name in names]
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        bits = max(1, count.bit_length() - 1)
        self._shift, self._middle = 64 - bits, 1 << (bits - 1)
        buckets = np.bincount((hashes >> self._shift) + self._middle, minlength=1 << bits)
        self._starts = (np.cumsum(buckets) - buckets).astype(np.int32)
        self._steps = np.arange(buckets.max(initial=1))
        padding = len(self._steps)
        self._hashes = np.concatenate([hashes, np.zeros(padding, np.int64)])
        self._rows = np.concatenate([order, np.full(padding, -1)]).astype(np.int32)
        self._shared = self._find_shared()

    def __len__(self) -> int:
        return len(self._ids)

    def _find_shared(self) -> dict[str, int]:
        """Return the rows of the ids whose hash is not theirs alone; in practice empty."""
        hashes = self._hashes[: len(self)]
        equal = np.flatnonzero(hashes[1:] == hashes[:-1])
        rows = self._rows[np.unique(np.concatenate([equal, equal + 1]))]
        shared: dict[str, int] = {}
        for name, row in zip(self.names(rows), rows.tolist(), strict=True):
            if name in shared:
                raise ArtifactCorruptError(f"item id {name!r} is there twice: rows {shared[name]} and {row}")
            shared[name] = row
        return shared

    def rows(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Return int32 [len(names)], the row of each name and -1 where there is no such item."""
        if not len(names) or not len(self._ids):
            return np.full(len(names), -1, np.int32)
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        places = self._starts.take((hashes >> self._shift) + self._middle)
        equal = self._hashes.take(places[:, None] + self._steps) == hashes[:, None]
        column = equal.argmax(axis=1)
        found: NDArray[np.int32] = self._rows.take(places + column)
        found[~equal[np.arange(len(names)), column]] = -1
        hits = np.flatnonzero(found >= 0)
        asked = list(names) if len(hits) == len(names) else [names[place] for place in hits.tolist()]
        confirmed = self.names(found[hits])
        if confirmed != asked:
            for place, name, item in zip(hits.tolist(), asked, confirmed, strict=True):
                if name != item:
                    found[place] = self._shared.get(name, -1)
        return found

    def names(self, rows: NDArray[np.integer]) -> list[str]:
        """Return the ids of ``rows``, each in [0, len)."""
        taken: list[str] = take(self._ids, rows)
        return taken


def take(values: pa.Array, rows: NDArray[np.integer]) -> list[Any]:
    """Return the ``rows`` of ``values`` as a list; the indices reach Arrow without a copy or a look at their type."""
    indices = np.ascontiguousarray(rows, np.int32)
    taken = values.take(pa.Array.from_buffers(pa.int32(), len(indices), [None, pa.py_buffer(indices)]))
    found: list[Any] = taken.to_pylist()
    return found
