"""What the store does to a local file system: lock, copy by hard link, make durable, remove without a half state."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from recsys_cg.artifacts import lock_file, sync_directory
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, StoreError

__all__ = ["PARTIAL", "copy_files", "hold_lock", "move_into_place", "remove_directory"]

PARTIAL = ".partial-"
"""Prefix of everything that is not yet, or no longer, part of the store."""

_LOCK = ".lock"
_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def hold_lock(directory: Path, timeout_s: float) -> Iterator[None]:
    """Hold the store alone; the kernel frees it when the process ends, however it ends.

    Raises:
        StoreError: another process held it for ``timeout_s`` seconds; the message names that process.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def busy(holder: str) -> StoreError:
        return StoreError(f"{directory} is held by {holder} for over {timeout_s:g} s; try again")

    with lock_file(directory / _LOCK, busy=busy, timeout_s=timeout_s):
        yield


def copy_files(source: Path, target: Path, names: Iterable[str], *, link: bool = False) -> None:
    """Bring ``names`` from ``source`` to ``target`` and sync them to disk.

    Args:
        source: where the files are.
        target: where they go; an existing directory.
        names: relative paths.
        link: share the bytes by hard links where the file system can. The files must then never be written in place.

    Raises:
        ArtifactMissingError: a file is not there.
        ArtifactCorruptError: a name leads out of ``source``.
    """
    folders = {target}
    for name in names:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts or not parts:
            raise ArtifactCorruptError(f"{source} names the file {name!r}, which leads out of it")
        destination = target.joinpath(*parts)
        destination.parent.mkdir(parents=True, exist_ok=True)
        folders.update(target.joinpath(*parts[:depth]) for depth in range(1, len(parts)))
        _bring(source.joinpath(*parts), destination, link)
    for folder in sorted(folders, reverse=True):
        sync_directory(folder)


def _bring(source: Path, destination: Path, link: bool) -> None:
    try:
        real = source.resolve(strict=True)
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{source} is not there") from error
    if not (link and _link(real, destination)):
        shutil.copyfile(real, destination)
    with destination.open("rb") as file:
        os.fsync(file.fileno())


def _link(source: Path, destination: Path) -> bool:
    try:
        destination.hardlink_to(source)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
        return False
    return True


def move_into_place(temporary: Path, final: Path) -> None:
    """Rename ``temporary`` to ``final``, which must not exist, durably."""
    sync_directory(temporary)
    temporary.rename(final)
    sync_directory(final.parent)


def remove_directory(directory: Path) -> None:
    """Remove ``directory`` so that no reader finds half of it under its name, also when killed on the way."""
    doomed = directory.with_name(f"{PARTIAL}{directory.name}-removed-{os.getpid()}")
    shutil.rmtree(doomed, ignore_errors=True)
    directory.rename(doomed)
    sync_directory(directory.parent)
    shutil.rmtree(doomed)
