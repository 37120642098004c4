"""Stage directories: written under a temporary name, sealed by a manifest, renamed when whole.

A directory *is* an artifact when it holds ``manifest.json``. The manifest names every other file with its size
and SHA-256, so a reader can tell a whole artifact from a torn one, and a changed byte from the byte that was
written. A stage's directory is named after the digest of its inputs and its part of the configuration: a re-run
finds it and skips the work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactFormatError,
    ArtifactMissingError,
    ConfigError,
    WorkdirBusyError,
)

__all__ = [
    "FORMAT",
    "MANIFEST",
    "Manifest",
    "digest_json",
    "find_leftovers",
    "lock_file",
    "lock_workdir",
    "read_manifest",
    "remove_leftovers",
    "seal",
    "sync_directory",
    "verify",
    "verify_file",
    "write_atomically",
    "write_stage",
    "write_text_atomically",
]

FORMAT = 1
MANIFEST = "manifest.json"
_TEMPORARY = ".partial-"
_POLL_S = 0.02
_RECORDED_PACKAGES = (
    "recsys-cg",
    "numpy",
    "pandas",
    "pyarrow",
    "apache-beam",
    "tensorflow",
    "tf-keras",
    "tensorflow-recommenders",
    "scann",
    "ai-edge-litert",
)


@dataclass(frozen=True)
class Manifest:
    """What a stage directory says of itself.

    Attributes:
        kind: the stage, e.g. ``"dataset"``, ``"encoder"``, ``"release"``, ``"evaluation"``.
        key: hex digest of inputs and configuration; the name of the directory.
        inputs: name of each input -> its digest.
        config: the part of the configuration that this stage read.
        info: what the stage wants others to know (row counts, encoder digest, file names, ...).
        files: relative path -> ``{"bytes": int, "sha256": hex}`` for every file but the manifest.
        created: RFC 3339 time of sealing, UTC.
        seconds: wall time of the stage.
        seed: the stage's random seed, or None where nothing is drawn.
        software: package -> version at the time of writing.
        format: the artifact format; a reader refuses a newer one.
        sealed: hex SHA-256 over all of the above, so that a changed manifest is noticed as a changed file is; empty
            in manifests of versions that did not write it.
    """

    kind: str
    key: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    created: str = ""
    seconds: float = 0.0
    seed: int | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT
    sealed: str = ""

    @property
    def digest(self) -> str:
        """Hex SHA-256 over the contents (kind and file digests), independent of time and place."""
        contents = {path: entry["sha256"] for path, entry in self.files.items()}
        return digest_json({"kind": self.kind, "files": contents})


def digest_json(value: Any) -> str:
    """Return the hex SHA-256 of ``value`` as canonical JSON (sorted keys, no white space)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_files(directory: Path) -> list[str]:
    found = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return sorted(name for name in found if name != MANIFEST)


def _software() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _RECORDED_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` so that a reader of ``path`` sees either the old bytes or the new ones, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{_TEMPORARY}{path.name}-{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error  # the reader knows no temporary name
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the entries of ``directory`` durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(
    directory: Path,
    *,
    kind: str,
    key: str,
    inputs: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    info: Mapping[str, Any] | None = None,
    seconds: float = 0.0,
    seed: int | None = None,
) -> Manifest:
    """Digest every file below ``directory`` and write the manifest that makes it an artifact."""
    files = {
        name: {"bytes": (directory / name).stat().st_size, "sha256": _sha256(directory / name)}
        for name in _list_files(directory)
    }
    manifest = Manifest(
        kind=kind,
        key=key,
        inputs=dict(inputs or {}),
        config=dict(config or {}),
        info=dict(info or {}),
        files=files,
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        seconds=round(seconds, 3),
        seed=seed,
        software=_software(),
    )
    raw = json.loads(json.dumps(vars(manifest), default=str))
    manifest = replace(manifest, sealed=_seal_of(raw))
    text = json.dumps(raw | {"sealed": manifest.sealed}, indent=1, ensure_ascii=False)
    write_text_atomically(directory / MANIFEST, text + "\n")
    return manifest


def _seal_of(raw: Mapping[str, Any]) -> str:
    return digest_json({name: value for name, value in raw.items() if name != "sealed"})


def read_manifest(directory: Path, *, kind: str | None = None) -> Manifest:
    """Read the manifest of ``directory`` without touching the files it names.

    Raises:
        ArtifactMissingError: there is no manifest, so this is no (whole) artifact.
        ArtifactCorruptError: the manifest is not valid JSON, lacks a field, or was changed.
        ArtifactFormatError: it was written in a newer format.
        ArtifactError: it is of another kind than ``kind``.
    """
    path = directory / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArtifactMissingError(f"{directory} is not a whole artifact: it has no {MANIFEST}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ArtifactCorruptError(f"{path} is damaged: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise ArtifactCorruptError(f"{path} is damaged: it has no format number")
    if raw["format"] > FORMAT:
        raise ArtifactFormatError(
            f"{directory} has format {raw['format']}; this version of recsys-cg reads up to {FORMAT}: upgrade it"
        )
    if raw.get("sealed") and raw["sealed"] != _seal_of(raw):
        raise ArtifactCorruptError(f"{path} was changed after it was written (its seal differs)")
    try:
        manifest = Manifest(**raw)
    except TypeError as error:
        raise ArtifactCorruptError(f"{path} is damaged: {error}") from error
    _check_fields(path, manifest)
    if kind is not None and manifest.kind != kind:
        raise ArtifactError(f"{directory} holds a {manifest.kind}, not a {kind}")
    return manifest


def _check_fields(path: Path, manifest: Manifest) -> None:
    for name in ("info", "files"):
        if not isinstance(getattr(manifest, name), dict):
            raise ArtifactCorruptError(f"{path} is damaged: its {name} is no object")
    for name, entry in manifest.files.items():
        if not isinstance(entry, dict) or not {"bytes", "sha256"} <= entry.keys():
            raise ArtifactCorruptError(f"{path} is damaged: its entry of {name} has no bytes and sha256")


def verify(directory: Path, *, kind: str | None = None) -> Manifest:
    """Read the manifest and compare every file's size and SHA-256 with it.

    Raises:
        ArtifactMissingError: a named file is not there.
        ArtifactCorruptError: a file's bytes differ. Files that the manifest does not name are not looked at.
        ArtifactFormatError, ArtifactError: as `read_manifest`.
    """
    manifest = read_manifest(directory, kind=kind)
    for name in manifest.files:
        verify_file(directory, manifest, name)
    return manifest


def verify_file(directory: Path, manifest: Manifest, name: str) -> None:
    """Compare the size and SHA-256 of one file with the manifest.

    Raises:
        ArtifactMissingError: the file is not there.
        ArtifactCorruptError: its bytes differ, or the manifest does not name it.
    """
    path, entry = directory / name, manifest.files.get(name)
    if entry is None:
        raise ArtifactCorruptError(f"{path} is not named by the manifest")
    if not path.is_file():
        raise ArtifactMissingError(f"{directory} lacks {name}, which its manifest names")
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise ArtifactCorruptError(f"{path} has {size} bytes, its manifest says {entry['bytes']}")
    if _sha256(path) != entry["sha256"]:
        raise ArtifactCorruptError(f"{path} was changed after it was written (SHA-256 differs from the manifest)")


@contextmanager
def write_atomically(final: Path) -> Iterator[Path]:
    """Give a temporary sibling directory to fill; rename it to ``final`` when the block ends well.

    When the block raises, the temporary directory is removed. When the process is killed, it stays under a name
    that no reader takes for an artifact and that `remove_leftovers` removes.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f"{_TEMPORARY}{final.name}-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        if final.is_dir():
            shutil.rmtree(final)
        else:
            final.unlink(missing_ok=True)
        temporary.replace(final)
        sync_directory(final.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def write_stage(
    final: Path,
    *,
    kind: str,
    key: str,
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    seed: int | None = None,
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Like `write_atomically`, but sealed: gives the directory and an ``info`` mapping that goes into the manifest."""
    started = time.monotonic()
    info: dict[str, Any] = {}
    with write_atomically(final) as temporary:
        yield temporary, info
        seconds = time.monotonic() - started
        seal(temporary, kind=kind, key=key, inputs=inputs, config=config, info=info, seconds=seconds, seed=seed)


def find_leftovers(parent: Path) -> list[Path]:
    """Return what writers that were killed, or still write, have directly below ``parent``."""
    return sorted(parent.glob(f"{_TEMPORARY}*")) if parent.is_dir() else []


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove what killed writers left directly below ``parent``; return the paths removed."""
    removed = find_leftovers(parent)
    for path in removed:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return removed


@contextmanager
def lock_workdir(workdir: Path) -> Iterator[None]:
    """Hold ``workdir`` alone; the kernel frees it when the process ends, however it ends.

    Raises:
        WorkdirBusyError: another process holds it; the message names that process.
        ConfigError: a file is where the directory should be.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"--workdir {workdir}: a file is in the way; choose another directory") from error

    def busy(holder: str) -> WorkdirBusyError:
        return WorkdirBusyError(f"{workdir} is in use by {holder}; wait for it or choose another --workdir")

    with lock_file(workdir / ".lock", busy=busy):
        yield


@contextmanager
def lock_file(path: Path, *, busy: Callable[[str], Exception], timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the file ``path`` alone, with this process's name in it; the kernel frees it when the process ends.

    Args:
        path: made when it is not there; its directory exists.
        busy: returns what to raise when another process, which it is told the name of, holds the file too long.
        timeout_s: how long to wait for that process.
    """
    deadline = time.monotonic() + timeout_s
    with path.open("a+", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    raise busy(file.read().strip() or "another process") from error
            time.sleep(_POLL_S)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
