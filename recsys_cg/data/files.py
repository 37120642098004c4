"""Find the files of a source: a file, a folder, a glob, here or behind an fsspec URL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from recsys_cg.errors import EnvironmentMismatchError, RecsysError, SourceError

__all__ = ["SourceFile", "fingerprint", "list_files", "open_bytes"]

_FORMATS: Final = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".avro": "avro",
    ".inter": "recbole",
    ".item": "recbole",
    ".user": "recbole",
}
_COMPRESSIONS: Final = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_PARTITION: Final = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_COMPRESSIBLE: Final = ("csv", "tsv", "jsonl", "recbole")


@dataclass(frozen=True)
class SourceFile:
    """One file of a source.

    Attributes:
        path: as fsspec opens it: a local path, or a URL.
        format: ``csv``, ``tsv``, ``jsonl``, ``parquet``, ``avro`` or ``recbole``.
        compression: ``gzip``, ``zstd`` or None.
        partition: columns that folder names hold (``day=2026-01-31/``), as ``(name, value)``.
        bytes: size on storage.
        delimiter: sign between the fields of CSV or TSV; None: comma or tab.
        columns: names of the columns of CSV or TSV without a header line; empty: the first line names them.
    """

    path: str
    format: str
    compression: str | None = None
    partition: tuple[tuple[str, str], ...] = ()
    bytes: int = 0
    delimiter: str | None = None
    columns: tuple[str, ...] = ()


def list_files(
    path: str,
    format: str = "auto",  # noqa: A002 - the config's word
    *,
    delimiter: str | None = None,
    columns: Sequence[str] = (),
) -> list[SourceFile]:
    """List the files of ``path``, sorted by name.

    A folder is searched to any depth; names that begin with ``.`` or ``_`` are passed over, as are, with
    ``format = "auto"``, files of unknown extension. ``*``, ``?`` and ``[...]`` form a glob.

    Args:
        path: local path, glob, folder or fsspec URL.
        format: one format for all files, or ``auto``: by extension, under ``.gz`` or ``.zst`` where compressed.
        delimiter: of CSV or TSV; None: comma or tab.
        columns: names of the columns of CSV or TSV without a header line.

    Raises:
        SourceError: nothing is there, a file is empty, the extension is unknown, formats are mixed, or the format is
            told apart by what is no option of it.
        EnvironmentMismatchError: the package for the URL's protocol is not installed.
    """
    filesystem, root, protocol = _filesystem(path)
    with _translate_storage(path):
        names, base = _expand(filesystem, root, path)
        sizes = [int(filesystem.size(name) or 0) for name in names]
    is_one = names == [root]
    files = []
    for name, size in zip(names, sizes, strict=True):
        kind, compression = _sniff(name, format)
        if kind is None:
            if is_one or base is None:
                raise SourceError(f"{path}: {_unknown_format(name)}")
            continue
        partition = _partition_of(name, base)
        shown = f"{protocol}://{name.lstrip('/')}" if protocol else name
        if size == 0:
            raise SourceError(f"{shown}: the file is empty (0 bytes)")
        files.append(SourceFile(shown, kind, compression, partition, size, delimiter, tuple(columns)))
    if (delimiter is not None or columns) and (other := {file.format for file in files} - {"csv", "tsv"}):
        raise SourceError(f"{path}: delimiter and columns are for csv and tsv, and the format is {min(other)}")
    return _check_formats(path, files)


def _check_formats(path: str, files: list[SourceFile]) -> list[SourceFile]:
    if not files:
        raise SourceError(f"{path}: the folder holds no file of a known format ({', '.join(sorted(_FORMATS))})")
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        raise SourceError(f"{path}: formats are mixed ({', '.join(formats)}); give format or a narrower glob")
    return files


def _filesystem(path: str) -> tuple[Any, str, str]:
    protocol = path.split("://", 1)[0] if "://" in path else ""
    try:
        filesystem, root = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise EnvironmentMismatchError(f"{path}: reading {protocol}:// needs another package: {error}") from error
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error
    return filesystem, root, "" if protocol in ("", "file", "local") else protocol


@contextmanager
def _translate_storage(path: str) -> Iterator[None]:
    """Storage libraries raise errors of their own, e.g. for missing credentials: they become ours, with the path."""
    try:
        yield
    except RecsysError:
        raise
    except Exception as error:
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or repr(error)
        raise SourceError(f"{path}: cannot be read: {detail}") from error


def _expand(filesystem: Any, root: str, path: str) -> tuple[list[str], str | None]:
    if filesystem.isfile(root):
        return [root], None
    if filesystem.isdir(root):
        found, base = filesystem.find(root), root
    elif any(sign in root for sign in "*?["):
        found, base = [name for name in filesystem.glob(root) if filesystem.isfile(name)], None
        if not found:
            raise SourceError(f"{path}: no file matches")
    else:
        raise SourceError(f"{path}: no such file or folder")
    return sorted(name for name in found if not _is_hidden(name, base)), base


def _is_hidden(name: str, base: str | None) -> bool:
    below = name[len(base) :] if base is not None else PurePosixPath(name).name
    return any(part.startswith((".", "_")) for part in PurePosixPath(below.lstrip("/")).parts)


def _sniff(name: str, format: str) -> tuple[str | None, str | None]:  # noqa: A002
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression is not None:
        suffixes.pop()
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if format != "auto":
        kind = format
    return kind, compression if kind in _COMPRESSIBLE else None


def _unknown_format(name: str) -> str:
    return (
        f"cannot tell the format of {PurePosixPath(name).name}; give format = csv, tsv, jsonl, parquet, avro or recbole"
    )


def _partition_of(name: str, base: str | None) -> tuple[tuple[str, str], ...]:
    parts = PurePosixPath(name).parts[:-1] if base is None else PurePosixPath(name[len(base) :].lstrip("/")).parts[:-1]
    matches = (_PARTITION.match(part) for part in parts)
    return tuple((match[1], unquote(match[2])) for match in matches if match)


def open_bytes(file: SourceFile) -> pa.NativeFile:
    """Open ``file`` for reading raw bytes, seekable, not decompressed.

    Raises:
        SourceError: it cannot be opened.
    """
    with _translate_storage(file.path):
        if "://" not in file.path:
            return pa.OSFile(file.path, "rb")
        return pa.PythonFile(fsspec.open(file.path, "rb").open(), mode="r")


def fingerprint(path: str, format: str = "auto") -> str:  # noqa: A002
    """Return a digest that changes when the source does.

    Local files are digested by content; files behind a URL by what the storage says of them (size, ETag or time).
    A file's name below the source counts, so does its partition; the place of the source does not.

    Raises:
        SourceError: as `list_files`.
    """
    files = list_files(path, format)
    digest = hashlib.sha256()
    for number, file in enumerate(files):
        digest.update(f"{number}|{PurePosixPath(file.path).name}|{file.format}|{file.partition}|{file.bytes}|".encode())
        digest.update(_digest_of(file).encode())
    return digest.hexdigest()


def _digest_of(file: SourceFile) -> str:
    with _translate_storage(file.path):
        if "://" not in file.path:
            with open(file.path, "rb") as stream:  # noqa: PTH123 - fsspec's paths are strings
                return hashlib.file_digest(stream, "sha256").hexdigest()
        filesystem, root, _ = _filesystem(file.path)
        return str(filesystem.checksum(root))
