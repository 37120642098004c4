"""What a release directory holds, and opening one that can be trusted.

A release holds one encoder and the vectors that this encoder made. Its digest stands in the release's manifest,
beside every item, and in the encoder's own manifest where that was copied with it; `open_release` refuses a directory
in which they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.artifacts import MANIFEST, Manifest, read_manifest, verify
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    EncoderMismatchError,
    MetricMismatchError,
    NonFiniteError,
)
from recsys_cg.schema import ReleaseFiles

__all__ = [
    "ReleaseContents",
    "check_vectors",
    "measure_vectors",
    "open_release",
    "release_items_schema",
]

NORM_TOLERANCE: Final = 1e-4
"""Largest difference of a vector's norm from 1; float32 rounding stays below 1e-6 at 1024 dimensions."""

_CHUNK_ROWS = 65_536

release_items_schema: Final = pa.schema(
    [
        pa.field("item_row", pa.int32(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("train_count", pa.int64(), nullable=False),
        pa.field("last_seen_us", pa.int64()),
        pa.field("q", pa.float64(), nullable=False),
        pa.field("available_from_us", pa.int64()),
        pa.field("available_until_us", pa.int64()),
        pa.field("content_digest", pa.string(), nullable=False),
        pa.field("encoder_digest", pa.string(), nullable=False),
    ]
)
"""items.parquet of a release: row r describes row r of vectors.npy; ``encoder_digest`` says who embedded it."""


@dataclass(frozen=True)
class ReleaseContents:
    """An opened release.

    Attributes:
        path: its directory.
        manifest: its manifest.
        items: one row an item, with the columns of `release_items_schema` that were asked for.
        vectors: float32 [items, dim], unit norm, memory-mapped.
        history_vectors: float32 [items, history_dim], memory-mapped; the same object as ``vectors`` when equal.
    """

    path: Path
    manifest: Manifest
    items: pa.Table
    vectors: NDArray[np.float32]
    history_vectors: NDArray[np.float32]

    @property
    def name(self) -> str:
        """The release's name."""
        return str(self.manifest.info["release"])


def measure_vectors(vectors: NDArray[np.floating]) -> dict[str, Any]:
    """Return ``{"count", "dim", "not_finite", "max_norm_error"}`` of [items, dim] vectors, in blocks of rows.

    ``not_finite`` counts rows with a NaN or an infinity; ``max_norm_error`` is the largest ``| |x| - 1 |`` of the
    other rows, 0.0 when there are none.
    """
    bad, worst = 0, 0.0
    for start in range(0, len(vectors), _CHUNK_ROWS):
        block = np.asarray(vectors[start : start + _CHUNK_ROWS], dtype=np.float64)
        finite = np.isfinite(block).all(axis=1)
        bad += int((~finite).sum())
        errors = np.abs(np.sqrt(np.square(block[finite]).sum(axis=1)) - 1.0)
        worst = max(worst, float(errors.max(initial=0.0)))
    return {"count": len(vectors), "dim": int(vectors.shape[1]), "not_finite": bad, "max_norm_error": worst}


def check_vectors(vectors: NDArray[np.floating]) -> dict[str, Any]:
    """Return `measure_vectors` of vectors that may be published.

    Raises:
        NonFiniteError: a row holds a NaN or an infinity.
        MetricMismatchError: a row is not of unit norm.
    """
    measured = measure_vectors(vectors)
    if measured["not_finite"]:
        raise NonFiniteError(f"{measured['not_finite']} of {len(vectors)} item vectors hold a NaN or an infinity")
    if measured["max_norm_error"] > NORM_TOLERANCE:
        raise MetricMismatchError(
            f"item vectors are not of unit norm: off by up to {measured['max_norm_error']:.3g}; "
            "pass them through recsys_cg.geometry.l2_normalise"
        )
    return measured


def open_release(path: Path, *, check_bytes: bool = True, columns: Sequence[str] | None = None) -> ReleaseContents:
    """Open a release after checking that it is whole and of one piece.

    Args:
        path: the release's directory, wherever it was moved.
        check_bytes: compare every file with its SHA-256; False trusts the bytes and checks the rest.
        columns: of the item table that are wanted; None: all of them.

    Raises:
        ArtifactMissingError, ArtifactCorruptError, ArtifactFormatError: as `recsys_cg.artifacts.verify`; or the parts
            do not fit each other.
        EncoderMismatchError: encoder, manifest and items do not name one encoder.
    """
    manifest = (verify if check_bytes else read_manifest)(path, kind="release")
    wanted = release_items_schema.names if columns is None else [*columns, "item_row", "encoder_digest"]
    items = _read_items(path, list(dict.fromkeys(wanted)))
    _check_encoder(path, manifest, items)
    if columns is not None:
        items = items.select(columns)
    vectors = _map(path / ReleaseFiles.VECTORS, items.num_rows)
    dim = manifest.info.get("dim", vectors.shape[1])
    if vectors.shape[1] != dim:
        raise ArtifactCorruptError(f"{path} holds vectors of {vectors.shape[1]} dimensions, not {dim}")
    history = _map_history(path, manifest, vectors)
    return ReleaseContents(path=path, manifest=manifest, items=items, vectors=vectors, history_vectors=history)


def _read_items(path: Path, columns: list[str]) -> pa.Table:
    file = path / ReleaseFiles.ITEMS
    try:
        with pq.ParquetFile(file, read_dictionary=["encoder_digest"]) as source:
            items = _read_columns(source, columns)
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{path} lacks {file.name}") from error
    except (OSError, pa.ArrowException) as error:
        raise ArtifactCorruptError(f"{file} cannot be read: {error}") from error
    missing = [name for name in columns if name not in items.column_names]
    if missing:
        raise ArtifactCorruptError(f"{file} lacks the columns {', '.join(missing)}")
    required = [field.name for field in release_items_schema if not field.nullable and field.name in columns]
    for column in required:
        if items.column(column).null_count:
            raise ArtifactCorruptError(f"{file}: column {column} holds null")
    if not np.array_equal(items["item_row"].to_numpy(), np.arange(items.num_rows)):
        raise ArtifactCorruptError(f"{file}: item_row does not count from 0 in order")
    return items


def _read_columns(source: pq.ParquetFile, columns: list[str]) -> pa.Table:
    """Read the columns one by one in this thread; those that are not there are left out.

    Read together, by several threads, 9 MB of items leave another 60 MB behind that the allocator never gives back.
    """
    present = [name for name in columns if name in source.schema_arrow.names]
    parts = [source.read(columns=[name], use_threads=False).column(name) for name in present]
    return pa.table(parts, names=present)


def _check_encoder(path: Path, manifest: Manifest, items: pa.Table) -> None:
    declared = str(manifest.info.get("encoder_digest"))
    others = sorted(set(items["encoder_digest"].unique().to_pylist()) - {declared})
    if others:
        raise EncoderMismatchError(
            f"{path} mixes encoders: its manifest names {declared[:12]}, items were embedded by {others[0][:12]}; "
            "rebuild the index"
        )
    if (path / ReleaseFiles.ENCODER / MANIFEST).is_file():
        _check_witness(path, manifest, read_manifest(path / ReleaseFiles.ENCODER, kind="encoder"))


def _check_witness(path: Path, manifest: Manifest, encoder: Manifest) -> None:
    declared = str(manifest.info.get("encoder_digest"))
    if encoder.digest != declared:
        raise EncoderMismatchError(
            f"{path} holds encoder {encoder.digest[:12]}, but its vectors are of encoder {declared[:12]}"
        )
    prefix = f"{ReleaseFiles.ENCODER}/"
    for name, entry in manifest.files.items():
        inner = name.removeprefix(prefix)
        if name.startswith(prefix) and inner != MANIFEST and not _same_file(encoder.files.get(inner), entry):
            raise EncoderMismatchError(f"{path}/{name} is not the file of encoder {encoder.digest[:12]}")


def _same_file(recorded: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> bool:
    return recorded is not None and recorded["sha256"] == entry["sha256"]


def _map_history(path: Path, manifest: Manifest, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    stored = manifest.info.get("history_vectors", ReleaseFiles.VECTORS)
    if stored == ReleaseFiles.VECTORS:
        return vectors
    if stored != ReleaseFiles.HISTORY_VECTORS:
        raise ArtifactCorruptError(f"{path / MANIFEST}: info.history_vectors is {stored!r}")
    return _map(path / ReleaseFiles.HISTORY_VECTORS, len(vectors))


def _map(path: Path, rows: int) -> NDArray[np.float32]:
    try:
        vectors = np.load(path, mmap_mode="r" if rows else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{path} is missing") from error
    except (OSError, ValueError, EOFError) as error:
        raise ArtifactCorruptError(f"{path} cannot be read: {error}") from error
    fits = vectors.dtype == np.float32 and vectors.ndim == 2 and len(vectors) == rows
    if not fits or not vectors.flags.c_contiguous:
        raise ArtifactCorruptError(
            f"{path} holds {vectors.dtype} {vectors.shape}, not float32 [{rows}, dim] row by row"
        )
    checked: NDArray[np.float32] = vectors.view(np.ndarray)
    return checked
