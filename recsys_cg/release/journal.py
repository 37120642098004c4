"""The store's log: one JSON object a line, written *before* CURRENT moves.

Because an entry comes first, a publisher that is killed between the two leaves an entry that did not come true, and
never a move that nobody recorded. Such an entry is harmless: `Journal.predecessor` asks about the release that
CURRENT names, and an entry that did not come true speaks of another one. The next writer marks it as abandoned.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.release.files import sync_directory

__all__ = ["MOVES", "Journal", "name_actor"]

MOVES = frozenset({"publish", "rollback", "repair"})
"""Actions that move CURRENT from ``entry["from"]`` to ``entry["to"]``."""


def name_actor() -> str:
    """Return ``user@host`` of this process, for the log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = f"uid {os.getuid()}"
    return f"{user}@{platform.node()}"


class Journal:
    """The log file of one store; appending needs the store's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Return the entries, oldest first; a line that a crash cut is left out."""
        return [entry for entry in map(_parse, self._lines()) if entry is not None]

    def count_torn(self) -> int:
        """Return how many lines are not whole entries."""
        return sum(_parse(line) is None for line in self._lines())

    def _lines(self) -> list[str]:
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.split("\n") if line.strip()]

    def append(self, action: str, *, actor: str | None = None, **what: Any) -> dict[str, Any]:
        """Add one entry durably and return it; ``None`` values of ``what`` are kept, they mean "no release"."""
        entry = {"time": _now(), "action": action, **what, "by": actor or name_actor()}
        line = json.dumps(entry, ensure_ascii=False, default=str) + "\n"
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.path.parent)
        return entry

    def rewrite(self) -> None:
        """Write the whole entries back without the torn lines, atomically."""
        lines = [line + "\n" for line in self._lines() if _parse(line) is not None]
        write_text_atomically(self.path, "".join(lines))

    def moves(self) -> list[dict[str, Any]]:
        """Return the moves of CURRENT, oldest first, without those that `Store` found abandoned."""
        found: list[dict[str, Any]] = []
        for entry in self.read():
            if entry["action"] in MOVES:
                found.append(entry)
            elif entry["action"] == "abandoned" and found:
                found.pop()
        return found

    def predecessor(self, name: str) -> str | None:
        """Return the release that was current when ``name`` was last published, or None."""
        for entry in reversed(self.moves()):
            if entry["action"] == "publish" and entry.get("to") == name:
                before = entry.get("from")
                return before if isinstance(before, str) else None
        return None

    def last_move_to(self, name: str | None) -> Mapping[str, Any] | None:
        """Return the newest entry that moved CURRENT to ``name``."""
        return next((entry for entry in reversed(self.moves()) if entry.get("to") == name), None)

    def unfinished_move(self, current: str | None) -> Mapping[str, Any] | None:
        """Return the newest move when it did not come true, that is, when CURRENT is not what it moved to."""
        moves = self.moves()
        return moves[-1] if moves and moves[-1].get("to") != current else None


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) and "action" in entry else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
