"""A folder of an object store (S3, or anything that fsspec reaches), with the few operations that a store needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec

from recsys_cg.errors import EnvironmentMismatchError, RecsysError, StoreError

__all__ = ["Bucket", "StoredObject"]


@dataclass(frozen=True)
class StoredObject:
    """Size in bytes and time of the last change (None where the file system does not tell) of one object."""

    size: int
    modified: datetime | None


class Bucket:
    """Objects below one URL. Every failure of the network or the service becomes a StoreError that names the URL.

    Args:
        url: e.g. ``s3://bucket/folder``; credentials and endpoint come from the environment, as fsspec reads them.

    Raises:
        EnvironmentMismatchError: the package that speaks the protocol is not installed.
        StoreError: no such protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            self._fs, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            mend = "pip install 'recsys-cg[s3]'" if url.startswith(("s3:", "s3a:")) else str(error)
            raise EnvironmentMismatchError(f"{url} needs a package that is not installed: {mend}") from error
        except ValueError as error:
            raise StoreError(f"{url}: {error}") from error
        self._root = root.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object, or None where there is none."""
        with self._reaching():
            try:
                content: bytes = self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            return content

    def read_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return name -> bytes of objects that must be there, fetched side by side where the service allows it."""
        wanted = {self._path(name): name for name in names}
        if not wanted:
            return {}
        with self._reaching():
            found: dict[str, bytes] = self._fs.cat(list(wanted))
            return {wanted[path]: content for path, content in found.items()}

    def write(self, name: str, content: bytes) -> None:
        """Put an object, replacing an older one in one step."""
        with self._reaching():
            self._fs.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Put an object unless there is one of this name; return whether it was put.

        Of several writers one wins where the service has conditional writes (S3: If-None-Match). Elsewhere fsspec
        looks first and writes then, which leaves a gap between the two.
        """
        with self._reaching():
            try:
                self._fs.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
        return True

    def find(self, prefix: str) -> dict[str, StoredObject]:
        """Return the objects below the folder ``prefix`` (empty: all), by name relative to it."""
        folder = f"{self._path(prefix)}/" if prefix else f"{self._root}/"
        with self._reaching():
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(folder.rstrip("/"), detail=True)
            except FileNotFoundError:
                return {}
        return {
            path.lstrip("/").removeprefix(folder.lstrip("/")): StoredObject(int(entry["size"]), _modified(entry))
            for path, entry in found.items()
            if path.lstrip("/").startswith(folder.lstrip("/"))
        }

    def upload(self, directory: Path, names: Iterable[str], prefix: str) -> None:
        """Copy files of a directory to objects below ``prefix``."""
        pairs = [(str(directory / name), self._path(f"{prefix}/{name}")) for name in names]
        if pairs:
            with self._reaching():
                self._fs.put([source for source, _ in pairs], [target for _, target in pairs])

    def download(self, prefix: str, names: Iterable[str], directory: Path) -> None:
        """Copy objects below ``prefix`` to files of a directory."""
        pairs = [(self._path(f"{prefix}/{name}"), directory / name) for name in names]
        for _, target in pairs:
            target.parent.mkdir(parents=True, exist_ok=True)
        if pairs:
            with self._reaching():
                self._fs.get([source for source, _ in pairs], [str(target) for _, target in pairs])

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already are no fault."""
        for name in names:
            with self._reaching():
                try:
                    self._fs.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except RecsysError:
            raise
        except Exception as error:
            raise StoreError(f"{self.url} cannot be used: {type(error).__name__}: {error}") from error


def _modified(entry: Mapping[str, Any]) -> datetime | None:
    for key in ("LastModified", "last_modified", "mtime", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
    return None
