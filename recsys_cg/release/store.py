"""The release store: publish, roll back, list, pin and retain releases, on a local directory or on object storage.

`recsys_cg.release.local` and `recsys_cg.release.remote` say how each keeps its promises. Both keep these: a reader
sees whole, verified releases only; a publish goes in only while the release it was judged against is still current;
each change is in the log, with who, when and why; killed at any point, a writer leaves a consistent store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from recsys_cg.artifacts import read_manifest, verify
from recsys_cg.errors import ArtifactError, ReleaseNotFoundError, StoreError
from recsys_cg.release.admission import check_report, read_report
from recsys_cg.release.backend import Backend, OvertakenError, Snapshot
from recsys_cg.release.local import LocalBackend
from recsys_cg.release.names import check_name
from recsys_cg.release.reading import headline
from recsys_cg.schema import ReleaseFiles

__all__ = ["ReleaseSummary", "Store"]

KIND = "release"
_ATTEMPTS = 20
_T = TypeVar("_T")


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
    """A release store.

    Attributes:
        path: the directory as a Path, or the URL as text.
        backend: where it lives.

    Args:
        path: a directory, made by the first write; or a URL that fsspec understands, e.g. ``s3://bucket/store``.
        lock_timeout_s: how long a writer of a local store waits for another one.
        cache: where releases of a remote store are copied to be read; default: below the user's cache directory.

    Raises:
        EnvironmentMismatchError: the package that speaks the URL's protocol is not installed.
        StoreError: no such protocol.
    """

    def __init__(self, path: str | Path, *, lock_timeout_s: float = 60.0, cache: Path | None = None) -> None:
        text = str(path)
        self.path: str | Path
        self.backend: Backend
        if "://" in text and not text.startswith(("file://", "local://")):
            from recsys_cg.release.remote import RemoteBackend  # noqa: PLC0415 - only remote stores pay for fsspec

            self.path, self.backend = text.rstrip("/"), RemoteBackend(text, cache)
        else:
            self.path = Path(unquote(urlsplit(text).path)) if "://" in text else Path(path)
            self.backend = LocalBackend(self.path, lock_timeout_s)

    # Reading

    def current(self) -> str | None:
        """Return the name of the release that is served, or None before the first publish.

        Raises:
            StoreError: it cannot be known: CURRENT is damaged, or the store cannot be reached.
        """
        return self.backend.current()

    def predecessor(self) -> str | None:
        """Return the release that was current when the current one was last published, or None."""
        return _predecessor(self.backend.snapshot())

    def path_of(self, name: str) -> Path:
        """Return a local directory with the release ``name``.

        In a local store it is the release itself, not verified. From a remote store it is a copy, verified when it was
        made and used again afterwards.

        Raises:
            StoreError: ``name`` cannot name a release.
            ReleaseNotFoundError: no such release.
        """
        return self.backend.fetch(check_name(name))

    def report_of(self, name: str) -> dict[str, Any]:
        """Return the report.json of the release ``name``.

        Raises:
            StoreError, ReleaseNotFoundError: as `path_of`.
            ArtifactError: the report is missing or damaged.
        """
        known = self.backend.names()
        if check_name(name) not in known:
            raise ReleaseNotFoundError(f"{self.path} has no release {name}; it has: {', '.join(known) or 'none'}")
        return read_report(self.backend.peek(name) / ReleaseFiles.REPORT)

    def releases(self) -> list[ReleaseSummary]:
        """Return all releases, newest first; a damaged one is listed with its fault."""
        seen = self.backend.snapshot()
        predecessor, pins = _predecessor(seen), seen.pins()
        summaries = [
            ReleaseSummary(
                name=name,
                is_current=name == seen.current,
                is_predecessor=name == predecessor,
                is_pinned=name in pins,
                **_describe(self.backend.peek(name)),
            )
            for name in self.backend.names()
        ]
        return sorted(summaries, key=lambda summary: (summary.created, summary.name), reverse=True)

    def pins(self) -> dict[str, dict[str, Any]]:
        """Return pinned release -> ``{"time", "by", "reason"}``."""
        return self.backend.snapshot().pins()

    def log(self) -> list[Mapping[str, Any]]:
        """Return the log, oldest entry first."""
        return list(self.backend.snapshot().entries)

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
        judged = read_report(report)
        check_report(judged, name)
        forced = judged.get("forced")

        def attempt(seen: Snapshot) -> str:
            if seen.current == name:
                self.backend.check_same(name, manifest)
                return name
            self._expect(expected_current, seen)
            self.backend.place(release, report, name)
            what = {"from": seen.current, "to": name} | ({"forced": forced} if forced else {})
            self.backend.commit(seen, "publish", actor, what)
            return name

        return self._change(attempt)

    def rollback(self, to: str | None = None, *, reason: str = "", actor: str | None = None) -> str:
        """Make ``to``, or else the predecessor, CURRENT after verifying every byte of it; return its name.

        Rolled back twice, the store goes back two releases: the predecessor of a release is what was current when
        it was published.

        Raises:
            StoreError: nothing is published, or there is no predecessor.
            ReleaseNotFoundError: the release is not in the store.
            ArtifactError: it is damaged. CURRENT is untouched in each case.
        """

        def attempt(seen: Snapshot) -> str:
            target = to if to is not None else _predecessor(seen)
            if target is None:
                state = f"{seen.current} has no predecessor" if seen.current else "nothing was published yet"
                raise StoreError(f"{self.path}: {state}; name the release to roll back to")
            verify(self.backend.fetch(check_name(target), anew=True), kind=KIND)
            if target != seen.current:
                what = {"from": seen.current, "to": target, "reason": reason}
                self.backend.commit(seen, "rollback", actor, what)
            return target

        return self._change(attempt)

    def refuse(self, name: str, report: Path, reasons: Sequence[str], *, actor: str | None = None) -> Path:
        """Keep the report of a refused release under ``refused/``; return a local directory with it.

        CURRENT is untouched. A second refusal of the same name replaces the first report; the log keeps both.
        """
        read_report(report)
        extra = {"reasons.json": json.dumps({"release": check_name(name), "reasons": list(reasons)}, indent=1)}

        def attempt(seen: Snapshot) -> Path:
            where = self.backend.keep_refusal(name, report, extra)
            self.backend.commit(seen, "refuse", actor, {"release": name, "reasons": list(reasons)})
            return where

        return self._change(attempt)

    def pin(self, name: str, *, reason: str = "", actor: str | None = None) -> None:
        """Keep the release ``name`` whatever retention says, until `unpin`."""

        def attempt(seen: Snapshot) -> None:
            if name not in self.backend.names():
                raise ReleaseNotFoundError(f"{self.path} has no release {name} to pin")
            self.backend.commit(seen, "pin", actor, {"release": name, "reason": reason})

        check_name(name)
        self._change(attempt)

    def unpin(self, name: str, *, actor: str | None = None) -> None:
        """Give the release ``name`` back to retention; unpinning what is not pinned is a StoreError."""

        def attempt(seen: Snapshot) -> None:
            pins = seen.pins()
            if name not in pins:
                raise StoreError(f"{name} is not pinned; pinned are: {', '.join(sorted(pins)) or 'none'}")
            self.backend.commit(seen, "unpin", actor, {"release": name})

        check_name(name)
        self._change(attempt)

    def prune(self, keep: int, *, actor: str | None = None) -> list[str]:
        """Delete the oldest releases beyond ``keep`` (at least 2); return the names deleted, oldest first.

        CURRENT, its predecessor and pinned releases stay whatever their age, and count towards ``keep``.
        """
        if keep < 2:
            raise StoreError(f"keep = {keep}: at least 2, so that a rollback stays possible")
        deleted: list[str] = []

        def attempt(seen: Snapshot) -> bool:
            summaries = self.releases()
            protected = [s for s in summaries if s.is_current or s.is_predecessor or s.is_pinned]
            others = [s for s in summaries if s not in protected]
            doomed = others[max(keep - len(protected), 0) :]
            if not doomed:
                return False
            name = doomed[-1].name
            self.backend.commit(seen, "prune", actor, {"release": name})
            self.backend.remove(name)
            deleted.append(name)
            return True

        while self._change(attempt):
            pass
        return deleted

    def prune_refusals(self, keep: int, *, actor: str | None = None) -> list[str]:
        """Delete the reports of refused releases beyond the ``keep`` (at least 1) refused last; return their names.

        The log keeps every refusal with its reasons. A report of which the log does not know when it was refused
        counts as the oldest.
        """
        if keep < 1:
            raise StoreError(f"keep = {keep}: at least 1, so that the last refusal can be looked into")
        deleted: list[str] = []

        def attempt(seen: Snapshot) -> bool:
            refused = [str(entry["release"]) for entry in seen.entries if entry["action"] == "refuse"]
            latest = {name: place for place, name in enumerate(refused)}
            kept = sorted(self.backend.refusals(), key=lambda name: (latest.get(name, -1), name))
            if len(kept) <= keep:
                return False
            self.backend.commit(seen, "prune", actor, {"refused": kept[0]})
            self.backend.forget_refusal(kept[0])
            deleted.append(kept[0])
            return True

        while self._change(attempt):
            pass
        return deleted

    def _change(self, attempt: Callable[[Snapshot], _T]) -> _T:
        """Let ``attempt`` decide on a snapshot and commit; look again when another writer was faster."""
        for _ in range(_ATTEMPTS):
            with self.backend.exclusive():
                try:
                    return attempt(self.backend.snapshot())
                except OvertakenError:
                    continue
        raise StoreError(f"{self.path}: other writers were faster {_ATTEMPTS} times in a row; try again")

    def _expect(self, expected: str | None, seen: Snapshot) -> None:
        if seen.current == expected:
            return
        move = seen.last_move_to(seen.current)
        who = f"{move['by']} moved it there at {move['time']}" if move else "the log does not say who moved it"
        raise StoreError(
            f"{self.path}: CURRENT is {seen.current or 'empty'}, not {expected or 'empty'} as when this release was "
            f"judged; {who}. Judge the release against {seen.current or 'an empty store'} and publish again"
        )


def _predecessor(seen: Snapshot) -> str | None:
    return seen.predecessor_of(seen.current) if seen.current else None


def _describe(path: Path) -> dict[str, Any]:
    try:
        created = read_manifest(path, kind=KIND).created
    except ArtifactError as error:
        return {"created": "", "fault": str(error)}
    try:
        return {"created": created, "headline": headline(read_report(path / ReleaseFiles.REPORT))}
    except ArtifactError as error:
        return {"created": created, "fault": str(error)}
