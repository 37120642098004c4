"""A store on a local file system.

::

    store/
      CURRENT               text: the name of the release that is served
      log.jsonl             who moved what, when and why; see `recsys_cg.release.journal`
      releases/<name>/      a release, verified; its report in report/
      refused/<name>/       the report of a release that a gate refused, and the reasons

Readers take no lock. They see the old CURRENT or the new one, and a release is renamed into ``releases/`` only when
every byte of it is on disk and verified. Writers hold ``.lock``. Killed anywhere, a writer leaves a consistent store
and at most a directory or file named ``.partial-*``, which `recsys_cg.release.repair` removes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import Manifest, write_text_atomically
from recsys_cg.errors import ReleaseNotFoundError, StoreError
from recsys_cg.release.admission import check_same, place_release, place_report
from recsys_cg.release.backend import MOVES, Snapshot, new_entry
from recsys_cg.release.files import PARTIAL, hold_lock, remove_directory
from recsys_cg.release.journal import Journal
from recsys_cg.release.names import is_name

__all__ = ["LocalBackend"]


class LocalBackend:
    """The directory of a store; made by the first write.

    Args:
        path: the directory.
        lock_timeout_s: how long a writer waits for another one.
    """

    def __init__(self, path: Path, lock_timeout_s: float) -> None:
        self.path = path
        self.lock_timeout_s = lock_timeout_s
        self.pointer = path / "CURRENT"
        self.journal = Journal(path / "log.jsonl")
        self.releases = path / "releases"
        self.refused = path / "refused"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the store's lock; first mark a move that a killed writer did not finish."""
        with hold_lock(self.path, self.lock_timeout_s):
            self.abandon_unfinished()
            yield

    def abandon_unfinished(self) -> Mapping[str, Any] | None:
        """Mark a move that did not come true, and return it."""
        seen = self.snapshot()
        unfinished = seen.unfinished_move()
        if unfinished is not None:
            self.journal.append(new_entry("abandoned", None, {"to": unfinished.get("to"), "current": seen.current}))
        return unfinished

    def snapshot(self) -> Snapshot:
        """Return log and CURRENT."""
        return Snapshot(self.journal.read(), self.current())

    def current(self) -> str | None:
        """Return what CURRENT names, or None before the first publish.

        Raises:
            StoreError: CURRENT does not hold a release name.
        """
        try:
            text = self.pointer.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its bytes are no text"
            raise StoreError(f"{self.pointer} cannot be read: {reason}; doctor --store says what to do") from error
        if not is_name(text):
            raise StoreError(
                f"{self.pointer} holds {text[:40]!r}, which is no release name; doctor --store says what to do"
            )
        return text

    def names(self) -> list[str]:
        """Return the names of the directories in ``releases/``."""
        return _names_in(self.releases)

    def peek(self, name: str) -> Path:
        """Return the directory of a release."""
        return self.releases / name

    def fetch(self, name: str, *, anew: bool = False) -> Path:  # noqa: ARG002 - there is only the one copy
        """Return the directory of a release that is there."""
        path = self.releases / name
        if not path.is_dir():
            known = ", ".join(self.names()) or "none"
            raise ReleaseNotFoundError(f"{self.path} has no release {name}; it has: {known}")
        return path

    def place(self, release: Path, report: Path, name: str) -> None:
        """Bring a release in by hard links where the file system can, else by copy."""
        place_release(release, report, self.releases / name)

    def check_same(self, name: str, manifest: Manifest) -> None:
        """Verify the stored release and compare its digest."""
        check_same(self.fetch(name), manifest)

    def keep_refusal(self, name: str, report: Path, extra: Mapping[str, str]) -> Path:
        """Keep a refused release's report in ``refused/``."""
        place_report(report, self.refused / name, extra=extra)
        return self.refused / name

    def commit(self, seen: Snapshot, action: str, actor: str | None, what: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Append to the log, then replace CURRENT; the lock keeps the store as ``seen``."""
        self.journal.append(new_entry(action, actor, what))
        if action in MOVES:
            write_text_atomically(self.pointer, f"{what['to']}\n")

    def remove(self, name: str) -> None:
        """Rename a release away, then delete it."""
        remove_directory(self.releases / name)

    def refusals(self) -> list[str]:
        """Return the names of the directories in ``refused/``."""
        return _names_in(self.refused)

    def forget_refusal(self, name: str) -> None:
        """Rename a refused release's report away, then delete it."""
        remove_directory(self.refused / name)


def _names_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(PARTIAL) and is_name(e.name))
