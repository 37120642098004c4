"""User histories in an embedded key-value file (LMDB) that a release carries.

One value a user, little-endian: ``uint32 events, uint32 others``, then ``int64[events]`` times in microseconds,
``int32[events]`` rows, ``int8[events]`` event codes, oldest first, then ``int32[others]`` the distinct rows met before
these events and not among them. Readers map the file read-only and take no lock, so it may lie in a directory that
nobody may write, and worker processes share its pages.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, EnvironmentMismatchError
from recsys_cg.serving.inputs import History

try:
    import lmdb
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("stored histories need LMDB: pip install 'recsys-cg[serve]'") from error

__all__ = ["HistoryStore", "StoredHistory", "write_histories"]

_HEADER = struct.Struct("<II")
_EVENT_BYTES = 8 + 4 + 1
_LONGEST_KEY = 500
_FIRST_MAP_BYTES = 1 << 26
_USERS_A_TRANSACTION = 20_000


@dataclass(frozen=True)
class StoredHistory:
    """What a release knows of a user.

    Attributes:
        history: the last events, oldest first.
        seen: int32, every distinct row that the user met.
    """

    history: History
    seen: NDArray[np.int32]


def _key(user_id: str) -> bytes:
    """Return the LMDB key of a user: the id itself, or a digest behind a byte that no UTF-8 text starts with."""
    raw = user_id.encode("utf-8", "surrogatepass")
    return raw if 0 < len(raw) <= _LONGEST_KEY else b"\xff" + hashlib.sha256(raw).digest()


def write_histories(
    directory: Path,
    sequences: Iterable[pa.Table],
    *,
    max_history: int,
    row_map: NDArray[np.int32] | None = None,
) -> int:
    """Write the histories of all users; return how many users were written.

    Args:
        directory: where ``data.mdb`` is written; made when it is not there.
        sequences: tables of `schema.sequences_schema`, each user once over all of them, e.g.
            ``Dataset.iter_sequences()``.
        max_history: events kept of each user, the last ones; of older ones only the rows are kept.
        row_map: int32 [dataset items], the release row of each item_row, -1 where the release has no such item;
            None when they are equal. A user of whom nothing is left is not written.

    Raises:
        ArtifactCorruptError: a row lies outside ``row_map``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = 0
    environment = lmdb.open(str(directory), map_size=_FIRST_MAP_BYTES, lock=False, sync=False, subdir=True)
    try:
        for table in sequences:
            values = _pack_table(table, max_history, row_map)
            while batch := [pair for _, pair in zip(range(_USERS_A_TRANSACTION), values, strict=False)]:
                _put(environment, batch)
                written += len(batch)
        environment.sync(True)
    finally:
        environment.close()
    return written


def _put(environment: Any, batch: Sequence[tuple[bytes, bytes]]) -> None:
    while True:
        try:
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(batch)
            return
        except lmdb.MapFullError:
            environment.set_mapsize(environment.info()["map_size"] * 2)


def _pack_table(table: pa.Table, max_history: int, row_map: NDArray[np.int32] | None) -> Iterator[tuple[bytes, bytes]]:
    for batch in table.combine_chunks().to_batches():
        users = batch.column("user_id").to_pylist()
        rows, times, events = (batch.column(name) for name in ("item_rows", "times_us", "events"))
        offsets = rows.offsets.to_numpy()
        flat_rows = _map_rows(rows.values.to_numpy(zero_copy_only=False), row_map)
        flat_times, flat_events = times.values.to_numpy(), events.values.to_numpy()
        for place, user in enumerate(users):
            span = slice(offsets[place], offsets[place + 1])
            value = _pack(flat_rows[span], flat_times[span], flat_events[span], max_history)
            if value:
                yield _key(user), value


def _map_rows(rows: NDArray[np.int32], row_map: NDArray[np.int32] | None) -> NDArray[np.int32]:
    if row_map is None or not len(rows):
        return rows
    if rows.min() < 0 or rows.max() >= len(row_map):
        raise ArtifactCorruptError(f"sequences name item_row {rows.max()}, the catalogue has {len(row_map)} items")
    return row_map[rows]


def _pack(rows: NDArray[np.int32], times: NDArray[np.int64], events: NDArray[np.int8], max_history: int) -> bytes:
    known = rows >= 0
    if not known.all():
        rows, times, events = rows[known], times[known], events[known]
    if not len(rows):
        return b""
    older = np.setdiff1d(rows[:-max_history], rows[-max_history:])
    rows, times, events = rows[-max_history:], times[-max_history:], events[-max_history:]
    header = _HEADER.pack(len(rows), len(older))
    arrays = (times.astype("<i8"), rows.astype("<i4"), events.astype("<i1"), older.astype("<i4"))
    return header + b"".join(array.tobytes() for array in arrays)


class _Environment:
    """An open LMDB file. LMDB must not be opened twice in a process: see `_open_shared`."""

    def __init__(self, directory: Path) -> None:
        self.handle = lmdb.open(
            str(directory), readonly=True, lock=False, readahead=False, create=False, subdir=True, max_spare_txns=8
        )


_environments: WeakValueDictionary[tuple[str, int, int], _Environment] = WeakValueDictionary()
_environments_lock = threading.Lock()


def _open_shared(directory: Path) -> _Environment:
    path = directory.resolve()
    status = (path / "data.mdb").stat()
    key = (str(path), status.st_dev, status.st_ino)
    with _environments_lock:
        found = _environments.get(key)
        if found is None:
            found = _environments[key] = _Environment(path)
        return found


class HistoryStore:
    """Read-only access to stored histories; safe to use from many threads."""

    def __init__(self, environment: _Environment, source: Path, items: int) -> None:
        self._environment = environment
        self._source = source
        self._items = items

    @classmethod
    def open(cls, directory: Path, *, items: int) -> Self:
        """Open ``directory/data.mdb``.

        Args:
            directory: as written by `write_histories`.
            items: number of items of the release; a stored row beyond it is corruption.

        Raises:
            ArtifactMissingError: there is no such file.
            ArtifactCorruptError: it is no LMDB file.
        """
        try:
            return cls(_open_shared(directory), directory, items)
        except FileNotFoundError as error:
            raise ArtifactMissingError(f"{directory} holds no histories: data.mdb is missing") from error
        except (lmdb.Error, OSError) as error:
            raise ArtifactCorruptError(f"{directory} cannot be opened as LMDB: {error}") from error

    def __len__(self) -> int:
        return int(self._environment.handle.stat()["entries"])

    def get(self, user_id: str) -> StoredHistory | None:
        """Return what is stored of ``user_id``, or None.

        Raises:
            ArtifactCorruptError: the stored value does not hold together.
        """
        try:
            with self._environment.handle.begin(buffers=False) as transaction:
                value = transaction.get(_key(user_id))
        except lmdb.Error as error:
            raise ArtifactCorruptError(f"{self._source} cannot be read: {error}") from error
        return None if value is None else self._unpack(value, user_id)

    def _unpack(self, value: bytes, user_id: str) -> StoredHistory:
        count, others = _HEADER.unpack_from(value) if len(value) >= _HEADER.size else (0, 0)
        if len(value) != _HEADER.size + count * _EVENT_BYTES + others * 4 or not count:
            raise ArtifactCorruptError(f"{self._source}: the history of user {user_id!r} has {len(value)} bytes")
        start = _HEADER.size
        times = np.frombuffer(value, "<i8", count, start)
        rows = np.frombuffer(value, "<i4", count, start + 8 * count)
        events = np.frombuffer(value, "<i1", count, start + 12 * count)
        older = np.frombuffer(value, "<i4", others, start + 13 * count)
        seen = np.unique(np.concatenate([rows, older])).astype(np.int32)
        if seen[0] < 0 or seen[-1] >= self._items:
            raise ArtifactCorruptError(f"{self._source}: user {user_id!r} has row {seen[-1]} of {self._items} items")
        history = History(rows.astype(np.int32), times.astype(np.int64), events.astype(np.int32))
        return StoredHistory(history, seen)
