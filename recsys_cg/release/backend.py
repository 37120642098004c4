"""What a release store asks of the place it lives in, and what is read from its log."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from recsys_cg.artifacts import Manifest

__all__ = ["MOVES", "Backend", "OvertakenError", "Snapshot", "new_entry"]

MOVES = frozenset({"publish", "rollback", "repair"})
"""Actions that move CURRENT from ``entry["from"]`` to ``entry["to"]``."""


class OvertakenError(Exception):
    """Another writer changed the store since the snapshot: look again and decide anew."""


@dataclass(frozen=True)
class Snapshot:
    """A store at one moment.

    Attributes:
        entries: the log, oldest first.
        current: the release that is served, or None.
    """

    entries: tuple[Mapping[str, Any], ...]
    current: str | None

    def moves(self) -> list[Mapping[str, Any]]:
        """Return the moves of CURRENT, oldest first, without those that are marked as abandoned."""
        found: list[Mapping[str, Any]] = []
        for entry in self.entries:
            if entry["action"] in MOVES:
                found.append(entry)
            elif entry["action"] == "abandoned" and found:
                found.pop()
        return found

    def predecessor_of(self, name: str) -> str | None:
        """Return the release that was current when ``name`` was last published, or None."""
        for entry in reversed(self.moves()):
            if entry["action"] == "publish" and entry.get("to") == name:
                before = entry.get("from")
                return before if isinstance(before, str) else None
        return None

    def last_move_to(self, name: str | None) -> Mapping[str, Any] | None:
        """Return the newest entry that moved CURRENT to ``name``."""
        return next((entry for entry in reversed(self.moves()) if entry.get("to") == name), None)

    def unfinished_move(self) -> Mapping[str, Any] | None:
        """Return the newest move when it did not come true, that is, when CURRENT is not what it moved to."""
        moves = self.moves()
        return moves[-1] if moves and moves[-1].get("to") != self.current else None

    def pins(self) -> dict[str, dict[str, Any]]:
        """Return pinned release -> ``{"time", "by", "reason"}``."""
        pins: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            name = str(entry.get("release"))
            if entry["action"] == "pin":
                pins[name] = {key: entry.get(key) for key in ("time", "by", "reason")}
            elif entry["action"] == "unpin":
                pins.pop(name, None)
        return pins


def new_entry(action: str, actor: str | None, what: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log entry of this moment; ``actor`` defaults to ``user@host`` of this process."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": time, "action": action, **what, "by": actor or _name_actor()}


def _name_actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = f"uid {os.getuid()}"
    return f"{user}@{platform.node()}"


class Backend(Protocol):
    """Where a store lives. Readers may call anything but what changes it at any time."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Hold off other writers as far as the place allows it; `commit` is what makes sure."""

    def current(self) -> str | None:
        """Return the release that is served, or None; cheap enough to be asked every second."""

    def snapshot(self) -> Snapshot:
        """Return log and CURRENT."""

    def names(self) -> list[str]:
        """Return the names of the whole releases."""

    def peek(self, name: str) -> Path:
        """Return a directory that holds the manifest of a release and ``report/report.json``, if they are there."""

    def fetch(self, name: str, *, anew: bool = False) -> Path:
        """Return a local directory with the whole release; ``anew``: do not trust an earlier copy.

        Raises:
            ReleaseNotFoundError: no such release.
        """

    def place(self, release: Path, report: Path, name: str) -> None:
        """Bring a verified release with its report in, whole or not at all; one that is there already is compared.

        Raises:
            StoreError: another release of this name is there.
            ArtifactError, NonFiniteError, MetricMismatchError: it cannot be trusted.
        """

    def check_same(self, name: str, manifest: Manifest) -> None:
        """Refuse with a StoreError when the release ``name`` is not the one of ``manifest``."""

    def keep_refusal(self, name: str, report: Path, extra: Mapping[str, str]) -> Path:
        """Keep the report of a refused release, with further files name -> text; return a local copy."""

    def commit(self, seen: Snapshot, action: str, actor: str | None, what: Mapping[str, Any]) -> None:
        """Add an entry to the log and, when it is a move, make it come true.

        Raises:
            OvertakenError: the store is not as ``seen`` any more; nothing was changed.
        """

    def remove(self, name: str) -> None:
        """Delete a release; no reader ever finds half of it."""

    def refusals(self) -> list[str]:
        """Return the names of the refused releases whose reports are kept."""

    def forget_refusal(self, name: str) -> None:
        """Delete the report of a refused release."""
