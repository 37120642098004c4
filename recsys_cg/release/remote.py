"""A store on object storage.

::

    s3://bucket/store/
      log/00000001.json     one entry each; the log is the state
      CURRENT               text: a copy of what the log says, for people
      releases/<name>/      a release; its manifest.json was put last, and its report is in report/
      refused/<name>/       the report of a release that a gate refused, and the reasons

Object storage has no rename and no lock, so here the log decides: CURRENT is where its newest move went. An entry
gets the next free number and is created only if that number is free. Of two writers that saw the same log one wins,
and the other looks again before anything of its own has come true. A release counts once its manifest is there.

To be read, a release is copied to the cache, verified there and renamed into place, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from recsys_cg.artifacts import MANIFEST, Manifest, read_manifest, verify
from recsys_cg.errors import ArtifactCorruptError, ArtifactError, ReleaseNotFoundError, StoreError
from recsys_cg.release.admission import place_report
from recsys_cg.release.backend import MOVES, OvertakenError, Snapshot, new_entry
from recsys_cg.release.bucket import Bucket, StoredObject
from recsys_cg.release.contents import check_vectors, open_release
from recsys_cg.release.files import PARTIAL, move_into_place, remove_directory
from recsys_cg.release.names import is_name
from recsys_cg.schema import ReleaseFiles, ReportFiles

__all__ = ["RemoteBackend", "missing_files"]

_REPORT: Final = f"{ReleaseFiles.REPORT}/"
_CACHED = 3
"""Releases kept in the cache."""


class RemoteBackend:
    """The folder of an object store.

    Args:
        url: e.g. ``s3://bucket/store``.
        cache: where copies go; default ``$XDG_CACHE_HOME/recsys_cg/stores/<digest of the URL>``.
    """

    def __init__(self, url: str, cache: Path | None) -> None:
        self.bucket = Bucket(url)
        self.cache = cache or _default_cache(self.bucket.url)
        self._known: dict[str, dict[str, Any]] = {}

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nothing holds others off here; `commit` finds out."""
        yield

    def snapshot(self) -> Snapshot:
        """Return the log and where its newest move went; entries never change, so each is fetched once."""
        names = sorted(self.bucket.find("log"))
        for path, content in self.bucket.read_many(f"log/{n}" for n in names if n not in self._known).items():
            try:
                entry = json.loads(content)
                self._known[path.removeprefix("log/")] = {"action": str(entry["action"]), **entry}
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(f"{self.bucket.url}/{path} is damaged: {error}") from error
        entries = tuple(self._known[name] for name in names)
        moved = next((entry["to"] for entry in reversed(entries) if entry["action"] in MOVES), None)
        return Snapshot(entries, moved)

    def current(self) -> str | None:
        """Return where the newest move went: one listing, and one request for each entry that is new."""
        return self.snapshot().current

    def names(self) -> list[str]:
        """Return the releases whose manifest is there."""
        return sorted(name for name, objects in self.list_releases().items() if MANIFEST in objects)

    def list_releases(self) -> dict[str, dict[str, StoredObject]]:
        """Return release name -> objects below it, also of releases that are not whole."""
        found: dict[str, dict[str, StoredObject]] = {}
        for path, entry in self.bucket.find("releases").items():
            name, _, inner = path.partition("/")
            if inner and is_name(name):
                found.setdefault(name, {})[inner] = entry
        return found

    def peek(self, name: str) -> Path:
        """Fetch manifest and report.json of a release, and nothing else."""
        target = self.cache / "peeks" / name
        (target / ReleaseFiles.REPORT).mkdir(parents=True, exist_ok=True)
        for file in (MANIFEST, _REPORT + ReportFiles.JSON):
            content = self.bucket.read(f"releases/{name}/{file}")
            if content is None:
                (target / file).unlink(missing_ok=True)
            else:
                (target / file).write_bytes(content)
        return target

    def fetch(self, name: str, *, anew: bool = False) -> Path:
        """Copy a release to the cache and verify it, unless it is there already."""
        final = self.cache / "releases" / name
        if final.is_dir() and not anew:
            return final
        objects = self.bucket.find(f"releases/{name}")
        if MANIFEST not in objects:
            known = ", ".join(self.names()) or "none"
            raise ReleaseNotFoundError(f"{self.bucket.url} has no release {name}; it has: {known}")
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{PARTIAL}{name}-", dir=final.parent))
        try:
            self.bucket.download(f"releases/{name}", objects, temporary)
            verify(temporary, kind="release")
            if final.is_dir():
                remove_directory(final)
            move_into_place(temporary, final)
        except OSError:
            if not final.is_dir():  # another process was faster: its copy is as good
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._trim_cache(final)
        return final

    def _trim_cache(self, newest: Path) -> None:
        copies = [path for path in newest.parent.iterdir() if is_name(path.name) and path != newest]
        for path in sorted(copies, key=lambda path: path.stat().st_mtime, reverse=True)[_CACHED - 1 :]:
            remove_directory(path)

    def place(self, release: Path, report: Path, name: str) -> None:
        """Verify a release and upload it, its manifest last."""
        manifest = read_manifest(release, kind="release")
        check_vectors(open_release(release).vectors)
        if self.bucket.read(f"releases/{name}/{MANIFEST}") is not None:
            self.check_same(name, manifest)
        else:
            self.bucket.upload(release, manifest.files, f"releases/{name}")
        with _sealed(report) as sealed:
            self._upload_report(sealed, f"releases/{name}/{ReleaseFiles.REPORT}")
        missing = missing_files(manifest, self.bucket.find(f"releases/{name}"))
        if missing:
            raise ArtifactCorruptError(f"{self.bucket.url}/releases/{name} did not arrive whole: {missing[0]}")
        if not self.bucket.create(f"releases/{name}/{MANIFEST}", (release / MANIFEST).read_bytes()):
            self.check_same(name, manifest)

    def _upload_report(self, sealed: Path, prefix: str) -> None:
        stored, digest = self.bucket.read(f"{prefix}/{MANIFEST}"), read_manifest(sealed).digest
        if stored is not None and self._digest_of(stored) == digest:
            return
        self.bucket.upload(sealed, read_manifest(sealed).files, prefix)
        self.bucket.upload(sealed, [MANIFEST], prefix)

    @staticmethod
    def _digest_of(stored: bytes) -> str:
        with tempfile.TemporaryDirectory(prefix="recsys-cg-manifest-") as scratch:
            (Path(scratch) / MANIFEST).write_bytes(stored)
            try:
                return read_manifest(Path(scratch)).digest
            except ArtifactError:
                return ""

    def check_same(self, name: str, manifest: Manifest) -> None:
        """Compare the digest of the stored manifest, and the sizes of the objects that it names."""
        stored = read_manifest(self.peek(name), kind="release")
        if stored.digest != manifest.digest:
            where = f"{self.bucket.url}/releases/{name}"
            raise StoreError(f"{where} exists and holds another release of this name; give the new one another name")
        missing = missing_files(stored, self.bucket.find(f"releases/{name}"))
        if missing:
            raise ArtifactCorruptError(f"{self.bucket.url}/releases/{name} is not whole: {missing[0]}")

    def keep_refusal(self, name: str, report: Path, extra: Mapping[str, str]) -> Path:
        """Upload a refused release's report; return the copy of it that stays in the cache."""
        final = self.cache / "refused" / name
        place_report(report, final, extra=extra)
        self._upload_report(final, f"refused/{name}")
        return final

    def commit(self, seen: Snapshot, action: str, actor: str | None, what: Mapping[str, Any]) -> None:
        """Create the next entry of the log; then copy a move to CURRENT."""
        content = json.dumps(new_entry(action, actor, what), ensure_ascii=False, default=str).encode()
        if not self.bucket.create(f"log/{len(seen.entries) + 1:08d}.json", content):
            raise OvertakenError
        if action in MOVES:
            self.bucket.write("CURRENT", f"{what['to']}\n".encode())

    def remove(self, name: str) -> None:
        """Delete a release, its manifest first: from then on it is no release."""
        self.bucket.delete([f"releases/{name}/{MANIFEST}"])
        self.bucket.delete(f"releases/{name}/{inner}" for inner in self.bucket.find(f"releases/{name}"))

    def refusals(self) -> list[str]:
        """Return the names below ``refused/``."""
        return sorted({path.partition("/")[0] for path in self.bucket.find("refused")})

    def forget_refusal(self, name: str) -> None:
        """Delete a refused release's report, here and in the cache."""
        self.bucket.delete(f"refused/{name}/{inner}" for inner in self.bucket.find(f"refused/{name}"))
        shutil.rmtree(self.cache / "refused" / name, ignore_errors=True)


def missing_files(manifest: Manifest, objects: Mapping[str, StoredObject]) -> list[str]:
    """Return one sentence for each file of ``manifest`` that is not there in its size."""
    found = []
    for file, entry in manifest.files.items():
        stored = objects.get(file)
        if stored is None:
            found.append(f"{file} is missing")
        elif stored.size != entry["bytes"]:
            found.append(f"{file} has {stored.size} bytes, its manifest says {entry['bytes']}")
    return found


@contextmanager
def _sealed(report: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="recsys-cg-report-") as scratch:
        final = Path(scratch) / "report"
        place_report(report, final)
        yield final


def _default_cache(url: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "recsys_cg" / "stores" / hashlib.sha256(url.encode()).hexdigest()[:16]
