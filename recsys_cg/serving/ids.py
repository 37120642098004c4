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

    Ids stay in Arrow; beside them stand their hashes, sorted, with their rows: 12 bytes an item where a dict of
    strings takes over 100. A hit is confirmed against the id itself, so equal hashes of different ids do no harm.

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
        self._hashes = hashes[order]
        self._rows = order.astype(np.int32)
        self._shared = self._find_shared()

    def __len__(self) -> int:
        return len(self._ids)

    def _find_shared(self) -> dict[str, int]:
        """Return the rows of the ids whose hash is not theirs alone; in practice empty."""
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
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
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        found = np.where(self._hashes[places] == hashes, self._rows[places], np.int32(-1))
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
