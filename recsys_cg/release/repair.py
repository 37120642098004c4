"""Finding and mending what killed writers, and damage from outside, left in a store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recsys_cg.artifacts import verify, write_text_atomically
from recsys_cg.errors import ArtifactError, StoreError
from recsys_cg.release.files import PARTIAL, hold_lock
from recsys_cg.release.names import is_name
from recsys_cg.release.store import Store

__all__ = ["Finding", "repair"]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        path: the file or directory.
        problem: what is wrong with it.
        mend: what was done, or with ``apply=False`` would be done, or what a person must do.
        is_mended: it was done.
        is_serious: readers are served nothing, or something that cannot be trusted.
    """

    path: Path
    problem: str
    mend: str
    is_mended: bool = False
    is_serious: bool = False


def repair(store: Store, *, apply: bool = True) -> list[Finding]:
    """Look through the whole store, byte for byte, and mend what can be mended; return what was found.

    Leftovers of killed writers are removed, cut log lines and pins of deleted releases dropped. When CURRENT is
    damaged, or names a release that is not there or not whole, it goes to the newest release that was current
    before and verifies. Damaged releases are reported and kept: deleting them is a person's decision.

    Args:
        store: a store; one that was never written has nothing to find.
        apply: mend; False only reports.

    Raises:
        StoreError: a writer holds the store too long.
    """
    if not store.path.is_dir():
        return []
    with hold_lock(store.path, store.lock_timeout_s):
        faults = dict(_damaged_releases(store))
        advice = "publish it again under another name, or delete it when nobody needs it"
        return [
            *_current(store, {path.name for path in faults}, apply),
            *(Finding(path, fault, advice) for path, fault in faults.items()),
            *_log(store, apply),
            *_leftovers(store, apply),
            *_pins(store, apply),
        ]


def _leftovers(store: Store, apply: bool) -> Iterator[Finding]:
    folders = [store.path, store.releases_path, store.refused_path]
    for path in (path for folder in folders for path in sorted(folder.glob(f"{PARTIAL}*"))):
        if apply:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield Finding(path, "left by a writer that was killed", "removed", is_mended=apply)
    for path in sorted(store.releases_path.glob(f"*/{PARTIAL}*")):
        if apply:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield Finding(path, "left by a writer that was killed", "removed", is_mended=apply)


def _log(store: Store, apply: bool) -> Iterator[Finding]:
    journal = store.journal
    torn = journal.count_torn()
    if torn:
        if apply:
            journal.rewrite()
        yield Finding(journal.path, f"{torn} line(s) were cut by a crash", "dropped", is_mended=apply)
    try:
        unfinished = journal.unfinished_move(store.current())
    except StoreError:  # a damaged CURRENT: reported by _current
        return
    if unfinished is not None:
        if apply:
            journal.append("abandoned", to=unfinished.get("to"), current=store.current())
        yield Finding(
            journal.path,
            f"{unfinished.get('by')} was stopped before CURRENT moved to {unfinished.get('to')}",
            "marked as abandoned in the log; publish again",
            is_mended=apply,
        )


def _damaged_releases(store: Store) -> Iterator[tuple[Path, str]]:
    if not store.releases_path.is_dir():
        return
    for path in sorted(store.releases_path.iterdir()):
        if path.name.startswith(PARTIAL):
            continue
        try:
            verify(path, kind="release")
        except ArtifactError as error:
            yield path, str(error)


def _current(store: Store, damaged: set[str], apply: bool) -> Iterator[Finding]:
    path = store.path / "CURRENT"
    try:
        current = store.current()
        fault = _fault_of(store, current, damaged)
    except StoreError as error:
        current, fault = None, str(error)
    if fault is None:
        return
    target = _last_good(store, current, damaged)
    if target is None:
        yield Finding(path, fault, "publish a release: no earlier one can be trusted", is_serious=True)
        return
    if apply:
        store.journal.append("repair", **{"from": current, "to": target}, reason=fault)
        write_text_atomically(path, f"{target}\n")
    yield Finding(path, fault, f"moved to {target}", is_mended=apply, is_serious=True)


def _fault_of(store: Store, current: str | None, damaged: set[str]) -> str | None:
    if current is None:
        # One move alone may be a first publish that was killed before it wrote CURRENT: see _log.
        return "is missing, though releases were published" if len(store.journal.moves()) > 1 else None
    if current in damaged:
        return f"names {current}, which is damaged"
    if not (store.releases_path / current).is_dir():
        return f"names {current}, which is not in the store"
    return None


def _last_good(store: Store, current: str | None, damaged: set[str]) -> str | None:
    for entry in reversed(store.journal.moves()):
        for name in (entry.get("to"), entry.get("from")):
            if not isinstance(name, str) or not is_name(name) or name == current or name in damaged:
                continue
            if (store.releases_path / name).is_dir():
                return name
    return None


def _pins(store: Store, apply: bool) -> Iterator[Finding]:
    path = store.path / "pins.json"
    try:
        pins = store.pins()
    except StoreError as error:
        yield Finding(path, str(error), "mend or remove it by hand")
        return
    lost = [name for name in pins if not is_name(name) or not (store.releases_path / name).is_dir()]
    if lost:
        if apply:
            store.write_pins({name: pin for name, pin in pins.items() if name not in lost})
        yield Finding(path, f"pins {', '.join(lost)}, not in the store", "dropped", is_mended=apply)
