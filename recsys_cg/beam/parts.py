"""Where the files of a shard lie, and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

__all__ = ["PARQUET", "part_path"]

PARQUET: Final[dict[str, Any]] = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
"""Lists of integers without dictionaries: measured 25% faster to write and a third smaller under zstd."""


def part_path(directory: Path, folder: str, shard: int) -> Path:
    """Return the file of ``shard`` in ``folder``, whose directory is made."""
    path = directory / folder / f"part-{shard:05d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
