"""Where the files of a shard lie, and how they are written.

Engines may work on a bundle twice, even at the same time. Every file is written under a name of its own below the job's
scratch folder, which is of the same file system, and renamed when whole: whoever is last wins, with equal bytes.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["PARQUET", "SCRATCH", "part_path", "write_directory_whole", "write_part", "write_whole"]

PARQUET: Final[dict[str, Any]] = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
"""Lists of integers without dictionaries: measured 25% faster to write and a third smaller under zstd."""

SCRATCH: Final = ".scratch"
"""Name of the folder in the output directory that holds what the job leaves between its steps."""


def part_path(directory: Path, folder: str, shard: int) -> Path:
    """Return the file of ``shard`` in ``folder``."""
    return directory / folder / f"part-{shard:05d}.parquet"


@contextmanager
def write_part(directory: Path, folder: str, shard: int) -> Iterator[Path]:
    """Give a file to write to, which becomes that of ``shard`` in ``folder`` when the block ends without an error."""
    path = part_path(directory, folder, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path, directory / SCRATCH) as temporary:
        yield temporary


@contextmanager
def write_whole(path: Path, scratch: Path) -> Iterator[Path]:
    """Give a file below ``scratch`` to write to, which is renamed to ``path`` when the block ends without an error."""
    temporary = _temporary(scratch)
    yield temporary
    temporary.replace(path)


@contextmanager
def write_directory_whole(path: Path, scratch: Path) -> Iterator[Path]:
    """Like `write_whole` for a directory; one that is there already was written by an equal bundle and stays."""
    temporary = _temporary(scratch)
    yield temporary
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.rename(path)
    except OSError:
        if not path.is_dir():
            raise
        shutil.rmtree(temporary)


def _temporary(scratch: Path) -> Path:
    folder = scratch / "unfinished"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / uuid.uuid4().hex
