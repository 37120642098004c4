"""Looking through a store on object storage: sizes of objects, leftovers, and a CURRENT that differs from the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from recsys_cg.artifacts import MANIFEST, read_manifest
from recsys_cg.errors import ArtifactError
from recsys_cg.release.backend import Backend, Snapshot
from recsys_cg.release.bucket import StoredObject
from recsys_cg.release.findings import DAMAGED, NOTHING_LEFT, Finding
from recsys_cg.release.remote import RemoteBackend, missing_files

__all__ = ["UPLOAD_GRACE", "repair_remote"]

UPLOAD_GRACE: Final = timedelta(hours=1)
"""A release without a manifest is somebody's upload in progress until nothing was added to it for this long."""


def repair_remote(place: Backend, *, apply: bool, at: datetime | None = None) -> list[Finding]:
    """Look through a remote store; see `recsys_cg.release.repair.repair`.

    Args:
        place: a `RemoteBackend`.
        apply: mend.
        at: the time to count `UPLOAD_GRACE` from; default now.

    Raises:
        StoreError: it cannot be reached, or a log entry is damaged.
    """
    if not isinstance(place, RemoteBackend):
        raise TypeError(f"expected a remote store, got {type(place).__name__}")
    seen, releases = place.snapshot(), place.list_releases()
    faults = dict(_damaged(place, releases))
    whole = {name for name, objects in releases.items() if MANIFEST in objects} - set(faults)
    return [
        *_current(place, seen, whole, apply),
        *(Finding(f"{place.bucket.url}/releases/{name}", fault, DAMAGED) for name, fault in faults.items()),
        *_leftovers(place, releases, apply, at or datetime.now(UTC)),
        *_pointer(place, apply),
    ]


def _damaged(place: RemoteBackend, releases: Mapping[str, Mapping[str, StoredObject]]) -> Iterator[tuple[str, str]]:
    for name, objects in releases.items():
        if MANIFEST not in objects:
            continue
        try:
            missing = missing_files(read_manifest(place.peek(name), kind="release"), objects)
        except ArtifactError as error:
            missing = [str(error)]
        if missing:
            yield name, missing[0]


def _current(place: RemoteBackend, seen: Snapshot, whole: set[str], apply: bool) -> Iterator[Finding]:
    if seen.current is None or seen.current in whole:
        return
    path, fault = f"{place.bucket.url}/CURRENT", f"names {seen.current}, which is not whole"
    names = [entry.get(key) for entry in reversed(seen.moves()) for key in ("to", "from")]
    target = next((name for name in names if name in whole), None)
    if target is None:
        yield Finding(path, fault, NOTHING_LEFT, is_serious=True)
        return
    if apply:
        place.commit(seen, "repair", None, {"from": seen.current, "to": target, "reason": fault})
    yield Finding(path, fault, f"moved to {target}", is_mended=apply, is_serious=True)


def _leftovers(
    place: RemoteBackend, releases: Mapping[str, Mapping[str, StoredObject]], apply: bool, at: datetime
) -> Iterator[Finding]:
    for name, objects in releases.items():
        if MANIFEST in objects:
            continue
        changes = [entry.modified for entry in objects.values() if entry.modified is not None]
        path = f"{place.bucket.url}/releases/{name}"
        if not changes or max(changes) > at - UPLOAD_GRACE:
            yield Finding(path, "has no manifest yet", "wait for its upload, or look again in an hour")
            continue
        if apply:
            place.remove(name)
        yield Finding(path, "left by a writer that was killed", "removed", is_mended=apply)


def _pointer(place: RemoteBackend, apply: bool) -> Iterator[Finding]:
    current = place.snapshot().current
    stored = place.bucket.read("CURRENT")
    wanted = None if current is None else f"{current}\n".encode()
    if stored == wanted:
        return
    if apply and wanted is not None:
        place.bucket.write("CURRENT", wanted)
    elif apply:
        place.bucket.delete(["CURRENT"])
    yield Finding(f"{place.bucket.url}/CURRENT", "is not what the log says", "written again", is_mended=apply)
