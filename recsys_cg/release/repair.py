"""Finding and mending what killed writers, and damage from outside, left in a store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from recsys_cg.artifacts import verify
from recsys_cg.errors import ArtifactError, StoreError
from recsys_cg.release.backend import Snapshot
from recsys_cg.release.files import PARTIAL, hold_lock
from recsys_cg.release.findings import DAMAGED, NOTHING_LEFT, Finding
from recsys_cg.release.local import LocalBackend
from recsys_cg.release.names import is_name
from recsys_cg.release.store import Store

__all__ = ["Finding", "repair"]


def repair(store: Store, *, apply: bool = True) -> list[Finding]:
    """Look through the whole store and mend what can be mended; return what was found.

    Leftovers of killed writers are removed and cut log lines dropped. When CURRENT is damaged, or names a release that
    is not there or not whole, it goes to the newest release that was current before and is whole. Damaged releases
    are reported and kept: deleting them is a person's decision. A local store is compared byte for byte; of a remote
    one the sizes of the objects are compared, see `recsys_cg.release.remote_repair`.

    Args:
        store: a store; one that was never written has nothing to find.
        apply: mend; False only reports.

    Raises:
        StoreError: a writer holds the store too long, or it cannot be reached.
    """
    place = store.backend
    if not isinstance(place, LocalBackend):
        from recsys_cg.release.remote_repair import repair_remote  # noqa: PLC0415 - only remote stores need it

        return repair_remote(place, apply=apply)
    if not place.path.is_dir():
        return []
    with hold_lock(place.path, place.lock_timeout_s):
        faults = dict(_damaged_releases(place))
        return [
            *_current(place, {path.name for path in faults}, apply),
            *(Finding(str(path), fault, DAMAGED) for path, fault in faults.items()),
            *_log(place, apply),
            *_leftovers(place, apply),
        ]


def _leftovers(place: LocalBackend, apply: bool) -> Iterator[Finding]:
    patterns = {place.path: PARTIAL, place.refused: PARTIAL, place.releases: PARTIAL}
    found = [path for folder, prefix in patterns.items() for path in sorted(folder.glob(f"{prefix}*"))]
    found += sorted(place.releases.glob(f"*/{PARTIAL}*"))
    for path in found:
        if apply:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        yield Finding(str(path), "left by a writer that was killed", "removed", is_mended=apply)


def _log(place: LocalBackend, apply: bool) -> Iterator[Finding]:
    path = str(place.journal.path)
    torn = place.journal.count_torn()
    if torn:
        if apply:
            place.journal.rewrite()
        yield Finding(path, f"{torn} line(s) were cut by a crash", "dropped", is_mended=apply)
    try:
        unfinished = place.abandon_unfinished() if apply else place.snapshot().unfinished_move()
    except StoreError:  # a damaged CURRENT: reported by _current
        return
    if unfinished is not None:
        problem = f"{unfinished.get('by')} was stopped before CURRENT moved to {unfinished.get('to')}"
        yield Finding(path, problem, "marked as abandoned in the log; publish again", is_mended=apply)


def _damaged_releases(place: LocalBackend) -> Iterator[tuple[Path, str]]:
    if not place.releases.is_dir():
        return
    for path in sorted(place.releases.iterdir()):
        if path.name.startswith(PARTIAL):
            continue
        try:
            verify(path, kind="release")
        except ArtifactError as error:
            yield path, str(error)


def _current(place: LocalBackend, damaged: set[str], apply: bool) -> Iterator[Finding]:
    path = str(place.pointer)
    try:
        seen = place.snapshot()
        fault = _fault_of(place, seen, damaged)
    except StoreError as error:
        seen, fault = Snapshot(place.journal.read(), None), str(error)
    if fault is None:
        return
    target = _last_good(place, seen, damaged)
    if target is None:
        yield Finding(path, fault, NOTHING_LEFT, is_serious=True)
        return
    if apply:
        place.commit(seen, "repair", None, {"from": seen.current, "to": target, "reason": fault})
    yield Finding(path, fault, f"moved to {target}", is_mended=apply, is_serious=True)


def _fault_of(place: LocalBackend, seen: Snapshot, damaged: set[str]) -> str | None:
    if seen.current is None:
        # One move alone may be a first publish that was killed before it wrote CURRENT: see _log.
        return "is missing, though releases were published" if len(seen.moves()) > 1 else None
    if seen.current in damaged:
        return f"names {seen.current}, which is damaged"
    if seen.current not in place.names():
        return f"names {seen.current}, which is not in the store"
    return None


def _last_good(place: LocalBackend, seen: Snapshot, damaged: set[str]) -> str | None:
    whole = set(place.names()) - damaged - {seen.current}
    for entry in reversed(seen.moves()):
        for name in (entry.get("to"), entry.get("from")):
            if isinstance(name, str) and is_name(name) and name in whole:
                return name
    return None
