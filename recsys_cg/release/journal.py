"""The log file of a local store: one JSON object a line, written *before* CURRENT moves.

Because an entry comes first, a publisher that is killed between the two leaves an entry that did not come true, and
never a move that nobody recorded. The next writer marks it as abandoned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import sync_directory, write_text_atomically

__all__ = ["Journal"]


class Journal:
    """The log file of one store; appending and rewriting need the store's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[dict[str, Any], ...]:
        """Return the entries, oldest first; a line that a crash cut is left out."""
        return tuple(entry for entry in map(_parse, self._lines()) if entry is not None)

    def count_torn(self) -> int:
        """Return how many lines are not whole entries."""
        return sum(_parse(line) is None for line in self._lines())

    def _lines(self) -> list[str]:
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.split("\n") if line.strip()]

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add one entry durably."""
        line = json.dumps(entry, ensure_ascii=False, default=str) + "\n"
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.path.parent)

    def rewrite(self) -> None:
        """Write the whole entries back without the torn lines, atomically."""
        lines = [line + "\n" for line in self._lines() if _parse(line) is not None]
        write_text_atomically(self.path, "".join(lines))


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) and "action" in entry else None
