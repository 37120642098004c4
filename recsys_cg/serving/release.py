"""A release opened for lookup: everything that one answer needs, of one geometry, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.artifacts import MANIFEST, Manifest, read_manifest, verify, verify_file
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    EncoderMismatchError,
    MetricMismatchError,
)
from recsys_cg.index.base import Retriever
from recsys_cg.index.load import open_index
from recsys_cg.schema import BUCKETS, EncoderFiles, ReleaseFiles
from recsys_cg.serving.content import ContentEncoder
from recsys_cg.serving.eligibility import Availability
from recsys_cg.serving.encoder import QueryEncoder
from recsys_cg.serving.fallback import Popularity
from recsys_cg.serving.histories import HistoryStore
from recsys_cg.serving.ids import IdIndex, take

__all__ = ["Release"]

METRIC = "l2_normalised_dot"
_COLUMNS = [
    "item_id",
    "title",
    "bucket",
    "train_count",
    "last_seen_us",
    "available_from_us",
    "available_until_us",
    "encoder_digest",
]
_NORM_TOLERANCE = 1e-3
_NORMS_CHECKED = 4096
_NEVER_US = np.iinfo(np.int64).min + 1


@dataclass(frozen=True)
class Release:
    """One release in memory. Vectors are mapped, so processes share them; nothing is written after opening.

    Attributes:
        name: the release's name, in every answer.
        path: its directory.
        manifest: as sealed.
        ids, titles: of the items, row by row; a title may be null.
        buckets: int8 [items], places in `schema.BUCKETS`.
        events: event name -> code.
        vectors: float32 [items, dim], unit norm.
        history_vectors: float32 [items, history_dim]; the same object as ``vectors`` where they are equal.
        retriever: the index.
        encoder: the query tower.
        histories: stored user histories, or None when the release carries none.
        availability, popularity: what may be answered, and what is answered when nothing is known.
    """

    name: str
    path: Path
    manifest: Manifest
    ids: IdIndex
    titles: pa.Array
    buckets: NDArray[np.int8]
    events: Mapping[str, int]
    vectors: NDArray[np.float32]
    history_vectors: NDArray[np.float32]
    retriever: Retriever
    encoder: QueryEncoder
    histories: HistoryStore | None
    availability: Availability
    popularity: Popularity

    @classmethod
    def open(cls, path: str | Path, *, verify_files: bool = True, interpreters: int = 8) -> Self:
        """Open the release directory ``path``.

        Args:
            path: a sealed directory of kind ``"release"``; it may lie anywhere.
            verify_files: compare every file's SHA-256 with the manifest first. Switch it off only for a directory
                that was just verified.
            interpreters: lookups that may encode at once.

        Raises:
            ArtifactMissingError, ArtifactCorruptError, ArtifactFormatError: a file is missing, changed, newer, or
                does not fit the others.
            EncoderMismatchError: items, encoder and manifest do not carry one encoder digest.
            MetricMismatchError: the release is of another metric, or its vectors are not of unit norm.
        """
        path = Path(path)
        manifest = (verify if verify_files else read_manifest)(path, kind="release")
        name, metric = _info(manifest, path, "release", str), _info(manifest, path, "metric", str)
        if metric != METRIC:
            raise MetricMismatchError(f"{path} is of metric {metric!r}; this version searches {METRIC!r}")
        items = _read_items(path)
        _check_encoder(path, manifest, items)
        encoder = QueryEncoder.open(path / ReleaseFiles.ENCODER, interpreters=interpreters)
        vectors = _map_vectors(path / ReleaseFiles.VECTORS, len(items), encoder.contract.dim)
        _check_norms(vectors, path)
        histories = path / ReleaseFiles.HISTORIES
        release = cls(
            name=name,
            path=path,
            manifest=manifest,
            ids=IdIndex(items.column("item_id")),
            titles=items.column("title").combine_chunks(),
            buckets=_bucket_codes(items.column("bucket")),
            events={event: code for code, event in enumerate(encoder.contract.events)},
            vectors=vectors,
            history_vectors=_map_history_vectors(path, manifest, vectors, encoder.contract.history_dim),
            retriever=open_index(path / ReleaseFiles.INDEX, vectors),
            encoder=encoder,
            histories=HistoryStore.open(histories, items=len(items)) if histories.is_dir() else None,
            availability=Availability(items.column("available_from_us"), items.column("available_until_us")),
            popularity=Popularity(
                items.column("train_count").to_numpy(),
                items.column("last_seen_us").fill_null(int(_NEVER_US)).to_numpy(),
            ),
        )
        pa.default_memory_pool().release_unused()  # what decoding the item table needed
        return release

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def content(self) -> ContentEncoder:
        """The item tower on content alone, loaded when it is first asked for.

        Raises:
            ArtifactMissingError: the release's encoder has none.
            ArtifactCorruptError: its files were changed since the release was sealed.
        """
        for name in (EncoderFiles.CONTENT_LITERT, EncoderFiles.FEATURES):
            if (self.path / ReleaseFiles.ENCODER / name).exists():
                verify_file(self.path, self.manifest, f"{ReleaseFiles.ENCODER}/{name}")
        return ContentEncoder.open(self.path / ReleaseFiles.ENCODER)

    def describe(self, rows: NDArray[np.int32]) -> tuple[list[str], list[str | None], list[str]]:
        """Return ids, titles and popularity buckets of ``rows``."""
        return self.ids.names(rows), take(self.titles, rows), [BUCKETS[code] for code in self.buckets[rows].tolist()]


def _info(manifest: Manifest, path: Path, key: str, kind: type) -> Any:
    value = manifest.info.get(key)
    if not isinstance(value, kind):
        raise ArtifactCorruptError(f"{path / MANIFEST}: info.{key} is {value!r}, expected {kind.__name__}")
    return value


def _read_items(path: Path) -> pa.Table:
    file = path / ReleaseFiles.ITEMS
    try:
        with pq.ParquetFile(file) as source:
            items = source.read(columns=_COLUMNS)
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{path} lacks {file.name}") from error
    except (pa.ArrowException, OSError) as error:
        raise ArtifactCorruptError(f"{file} cannot be read: {error}") from error
    missing = [column for column in _COLUMNS if column not in items.column_names]
    if missing:
        raise ArtifactCorruptError(f"{file} lacks the column {missing[0]}")
    for column in ("item_id", "bucket", "train_count", "encoder_digest"):
        if items.column(column).null_count:
            raise ArtifactCorruptError(f"{file}: column {column} holds null")
    strange = set(items.column("bucket").unique().to_pylist()) - set(BUCKETS)
    if strange:
        raise ArtifactCorruptError(f"{file}: {sorted(strange)[0]!r} is none of the buckets {', '.join(BUCKETS)}")
    return items


def _check_encoder(path: Path, manifest: Manifest, items: pa.Table) -> None:
    expected = _info(manifest, path, "encoder_digest", str)
    strange = [digest for digest in items.column("encoder_digest").unique().to_pylist() if digest != expected]
    if strange:
        raise EncoderMismatchError(
            f"{path} mixes encoders: its manifest names {expected[:12]}, items were embedded by {strange[0][:12]}"
        )
    folder = path / ReleaseFiles.ENCODER
    if not (folder / MANIFEST).is_file():
        return
    encoder = read_manifest(folder, kind="encoder")
    if encoder.digest != expected:
        raise EncoderMismatchError(f"{path} was embedded by encoder {expected[:12]} but carries {encoder.digest[:12]}")
    for name in (EncoderFiles.CONTRACT, EncoderFiles.QUERY_LITERT):
        carried = manifest.files.get(f"{ReleaseFiles.ENCODER}/{name}", {}).get("sha256")
        if carried != encoder.files.get(name, {}).get("sha256"):
            raise EncoderMismatchError(f"{folder / name} is not the file of encoder {expected[:12]}")


def _bucket_codes(column: pa.ChunkedArray) -> NDArray[np.int8]:
    codes = np.zeros(len(column), np.int8)
    for code, bucket in enumerate(BUCKETS):
        codes[pc.equal(column, bucket).to_numpy()] = code
    return codes


def _map_vectors(file: Path, items: int, dim: int) -> NDArray[np.float32]:
    try:
        vectors = np.load(file, mmap_mode="r") if items else np.load(file)
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{file} is missing") from error
    except (ValueError, OSError, EOFError) as error:
        raise ArtifactCorruptError(f"{file} cannot be read: {error}") from error
    if vectors.dtype != np.float32 or vectors.shape != (items, dim) or not vectors.flags.c_contiguous:
        raise ArtifactCorruptError(f"{file} is {vectors.dtype} {vectors.shape}, expected float32 {(items, dim)}")
    plain: NDArray[np.float32] = vectors.view(np.ndarray)
    return plain


def _check_norms(vectors: NDArray[np.float32], path: Path) -> None:
    """Check evenly spaced rows: a release of another normalisation differs everywhere."""
    sample = vectors[:: max(1, len(vectors) // _NORMS_CHECKED)]
    norms = np.sqrt(np.square(sample, dtype=np.float64).sum(axis=1))
    wrong = np.flatnonzero(~(np.abs(norms - 1.0) <= _NORM_TOLERANCE))
    if len(wrong):
        raise MetricMismatchError(
            f"{path}: vectors are not of unit norm, e.g. {norms[wrong[0]]:.4g}; rebuild the index"
        )


def _map_history_vectors(
    path: Path, manifest: Manifest, vectors: NDArray[np.float32], history_dim: int
) -> NDArray[np.float32]:
    name = _info(manifest, path, "history_vectors", str)
    if name == ReleaseFiles.HISTORY_VECTORS:
        return _map_vectors(path / name, len(vectors), history_dim)
    if name != ReleaseFiles.VECTORS or vectors.shape[1] != history_dim:
        raise ArtifactCorruptError(
            f"{path / MANIFEST}: info.history_vectors is {name!r} for history vectors of length {history_dim}"
        )
    return vectors
