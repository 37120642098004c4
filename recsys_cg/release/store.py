"""The release store on a local file system.

::

    store/
      CURRENT               text: the name of the release that is served
      log.jsonl             who moved what, when and why; see `recsys_cg.release.journal`
      pins.json             releases that retention must keep
      releases/<name>/      a release, verified; its report in report/
      refused/<name>/       the report of a release that a gate refused, and the reasons

Readers take no lock. They see the old CURRENT or the new one, and a release is renamed into ``releases/`` only when
every byte of it is on disk and verified. Writers hold ``.lock``. Killed anywhere, a writer leaves a consistent store
and at most a directory or file named ``.partial-*``, which `Store.repair` removes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import read_manifest, verify, write_text_atomically
from recsys_cg.errors import ArtifactError, ReleaseNotFoundError, StoreError
from recsys_cg.release.admission import check_report, check_same, place_release, place_report, read_report
from recsys_cg.release.files import PARTIAL, hold_lock, remove_directory
from recsys_cg.release.journal import Journal, name_actor
from recsys_cg.release.names import check_name, is_name
from recsys_cg.release.reading import headline
from recsys_cg.schema import ReleaseFiles

__all__ = ["ReleaseSummary", "Store"]

KIND = "release"


@dataclass(frozen=True)
class ReleaseSummary:
    """One release in a list.

    Attributes:
        name: the release's name.
        created: RFC 3339 time of its manifest, UTC; empty when the manifest cannot be read.
        is_current: CURRENT names it.
        is_predecessor: `Store.rollback` would go to it.
        is_pinned: retention keeps it.
        headline: figure name -> value from its report; None where the report has no such figure.
        fault: why it cannot be trusted, or empty. Only the manifest was looked at, not every byte.
    """

    name: str
    created: str
    is_current: bool = False
    is_predecessor: bool = False
    is_pinned: bool = False
    headline: Mapping[str, float | None] = field(default_factory=dict)
    fault: str = ""


class Store:
    """Publish, roll back, list and retain releases; see the module for the layout.

    Args:
        path: the store's directory; made by the first write.
        lock_timeout_s: how long a writer waits for another one.
    """

    def __init__(self, path: str | Path, *, lock_timeout_s: float = 60.0) -> None:
        if "://" in str(path):
            raise StoreError(f"{path}: a store is a directory of a local or mounted file system, not a URL")
        self.path = Path(path)
        self.lock_timeout_s = lock_timeout_s
        self.journal = Journal(self.path / "log.jsonl")

    @property
    def releases_path(self) -> Path:
        """Directory that holds one directory a release."""
        return self.path / "releases"

    @property
    def refused_path(self) -> Path:
        """Directory that holds the reports of refused releases."""
        return self.path / "refused"

    # Reading

    def current(self) -> str | None:
        """Return the name of the release that is served, or None before the first publish.

        Raises:
            StoreError: CURRENT does not hold a release name.
        """
        try:
            text = (self.path / "CURRENT").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.path / 'CURRENT'} cannot be read: {error}") from error
        if not is_name(text):
            raise StoreError(f"{self.path / 'CURRENT'} holds {text[:40]!r}, which is no release name; run doctor")
        return text

    def predecessor(self) -> str | None:
        """Return the release that was current when the current one was last published, or None."""
        current = self.current()
        return self.journal.predecessor(current) if current else None

    def path_of(self, name: str) -> Path:
        """Return the directory of the release ``name``; its files are not verified.

        Raises:
            StoreError: ``name`` cannot name a release.
            ReleaseNotFoundError: no such release.
        """
        path = self.releases_path / check_name(name)
        if not path.is_dir():
            known = ", ".join(self._names()) or "none"
            raise ReleaseNotFoundError(f"{self.path} has no release {name}; it has: {known}")
        return path

    def report_of(self, name: str) -> dict[str, Any]:
        """Return the report.json of the release ``name``.

        Raises:
            StoreError, ReleaseNotFoundError: as `path_of`.
            ArtifactError: the report is missing or damaged.
        """
        return read_report(self.path_of(name) / ReleaseFiles.REPORT)

    def releases(self) -> list[ReleaseSummary]:
        """Return all releases, newest first; a damaged one is listed with its fault."""
        current, predecessor, pins = self.current(), self.predecessor(), self.pins()
        summaries = [
            ReleaseSummary(
                name=name,
                is_current=name == current,
                is_predecessor=name == predecessor,
                is_pinned=name in pins,
                **self._describe(name),
            )
            for name in self._names()
        ]
        return sorted(summaries, key=lambda summary: (summary.created, summary.name), reverse=True)

    def pins(self) -> dict[str, dict[str, Any]]:
        """Return pinned release -> ``{"time", "by", "reason"}``."""
        path = self.path / "pins.json"
        try:
            pins = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise StoreError(f"{path} is damaged ({error}); mend or remove it by hand") from error
        if not isinstance(pins, dict):
            raise StoreError(f"{path} is damaged: it holds no mapping; mend or remove it by hand")
        return pins

    def log(self) -> list[dict[str, Any]]:
        """Return the log, oldest entry first."""
        return self.journal.read()

    # Writing

    def publish(self, release: Path, report: Path, *, expected_current: str | None, actor: str | None = None) -> str:
        """Copy a release and its report into the store, verify the copy, and make it CURRENT; return its name.

        Compare and set: the release was judged against the one that was current then, so it goes in only while
        that one still is. Publishing what is current already changes nothing.

        Args:
            release: a sealed directory of kind ``"release"``; hard-linked where the file system can, so its files
                must not be written in place afterwards.
            report: a directory with report.json of this release, which says ``"published": true``.
            expected_current: what `current` returned when the release was judged; None for an empty store.
            actor: who does it, for the log; default: user and host of this process.

        Raises:
            StoreError: CURRENT is not ``expected_current`` (says who moved it); the lock is held too long; another
                release of this name is there; the report is of another release.
            GateRefusedError: the report does not say that it may be published.
            ArtifactError: release or report is incomplete or damaged, or encoder and vectors do not belong together.
            NonFiniteError, MetricMismatchError: a vector is not finite, or not of unit norm. No reason overrides this.

        CURRENT is untouched in each case.
        """
        manifest = read_manifest(release, kind=KIND)
        name = check_name(str(manifest.info.get("release", "")))
        check_report(read_report(report), name)
        with self._writing():
            if self.current() == name:
                check_same(self.path_of(name), manifest)
                return name
            self._expect(expected_current)
            place_release(release, report, self.releases_path / name)
            self._move("publish", name, actor=actor)
        return name

    def rollback(self, to: str | None = None, *, reason: str = "", actor: str | None = None) -> str:
        """Make ``to``, or else the predecessor, CURRENT after verifying every byte of it; return its name.

        Rolled back twice, the store goes back two releases: the predecessor of a release is what was current when
        it was published.

        Raises:
            StoreError: nothing is published, or there is no predecessor.
            ReleaseNotFoundError: the release is not in the store.
            ArtifactError: it is damaged. CURRENT is untouched in each case.
        """
        with self._writing():
            current = self.current()
            target = to if to is not None else self.predecessor()
            if target is None:
                state = f"{current} has no predecessor" if current else "nothing was published yet"
                raise StoreError(f"{self.path}: {state}; name the release to roll back to")
            verify(self.path_of(target), kind=KIND)
            if target != current:
                self._move("rollback", target, actor=actor, reason=reason)
        return target

    def refuse(self, name: str, report: Path, reasons: Sequence[str], *, actor: str | None = None) -> Path:
        """Keep the report of a refused release under ``refused/``; return where. CURRENT is untouched.

        A second refusal of the same name replaces the first report; the log keeps both.
        """
        final = self.refused_path / check_name(name)
        read_report(report)
        with self._writing():
            extra = {"reasons.json": json.dumps({"release": name, "reasons": list(reasons)}, indent=1)}
            place_report(report, final, extra=extra)
            self.journal.append("refuse", actor=actor, release=name, reasons=list(reasons))
        return final

    def pin(self, name: str, *, reason: str = "", actor: str | None = None) -> None:
        """Keep the release ``name`` whatever retention says, until `unpin`."""
        with self._writing():
            self.path_of(name)
            entry = self.journal.append("pin", actor=actor, release=name, reason=reason)
            pin = {"time": entry["time"], "by": entry["by"], "reason": reason}
            self.write_pins({**self.pins(), name: pin})

    def unpin(self, name: str, *, actor: str | None = None) -> None:
        """Give the release ``name`` back to retention; unpinning what is not pinned is a StoreError."""
        with self._writing():
            pins = self.pins()
            if pins.pop(check_name(name), None) is None:
                raise StoreError(f"{name} is not pinned; pinned are: {', '.join(sorted(pins)) or 'none'}")
            self.journal.append("unpin", actor=actor, release=name)
            self.write_pins(pins)

    def prune(self, keep: int, *, actor: str | None = None) -> list[str]:
        """Delete the oldest releases beyond ``keep`` (at least 2); return the names deleted, oldest first.

        CURRENT, its predecessor and pinned releases stay whatever their age, and count towards ``keep``.
        """
        if keep < 2:
            raise StoreError(f"keep = {keep}: at least 2, so that a rollback stays possible")
        with self._writing():
            summaries = self.releases()
            protected = [s for s in summaries if s.is_current or s.is_predecessor or s.is_pinned]
            others = [s for s in summaries if s not in protected]
            doomed = [summary.name for summary in reversed(others[max(keep - len(protected), 0) :])]
            for name in doomed:
                self.journal.append("prune", actor=actor, release=name)
                remove_directory(self.releases_path / name)
        return doomed

    # Inside

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with hold_lock(self.path, self.lock_timeout_s):
            current = self.current()
            unfinished = self.journal.unfinished_move(current)
            if unfinished is not None:
                self.journal.append("abandoned", to=unfinished.get("to"), current=current)
            yield

    def _expect(self, expected: str | None) -> None:
        current = self.current()
        if current == expected:
            return
        move = self.journal.last_move_to(current)
        who = f"{move['by']} moved it there at {move['time']}" if move else "the log does not say who moved it"
        raise StoreError(
            f"{self.path}: CURRENT is {current or 'empty'}, not {expected or 'empty'} as when this release was "
            f"judged; {who}. Judge the release against {current or 'an empty store'} and publish again"
        )

    def _move(self, action: str, to: str, *, actor: str | None, **what: Any) -> None:
        self.journal.append(action, actor=actor or name_actor(), **{"from": self.current(), "to": to}, **what)
        write_text_atomically(self.path / "CURRENT", f"{to}\n")

    def write_pins(self, pins: Mapping[str, Any]) -> None:
        """Replace all pins; the caller holds the lock."""
        write_text_atomically(self.path / "pins.json", json.dumps(pins, indent=1, ensure_ascii=False) + "\n")

    def _names(self) -> list[str]:
        if not self.releases_path.is_dir():
            return []
        with os.scandir(self.releases_path) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(PARTIAL) and is_name(e.name))

    def _describe(self, name: str) -> dict[str, Any]:
        path = self.releases_path / name
        try:
            created = read_manifest(path, kind=KIND).created
        except ArtifactError as error:
            return {"created": "", "fault": str(error)}
        try:
            return {"created": created, "headline": headline(read_report(path / ReleaseFiles.REPORT))}
        except ArtifactError as error:
            return {"created": created, "fault": str(error)}
