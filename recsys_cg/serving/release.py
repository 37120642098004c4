"""A release opened for lookup: everything that one answer needs, of one geometry, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.artifacts import MANIFEST, Manifest, verify_file
from recsys_cg.errors import ArtifactCorruptError, MetricMismatchError
from recsys_cg.index.base import Retriever
from recsys_cg.index.load import open_index
from recsys_cg.release.contents import ReleaseContents, open_release
from recsys_cg.repeats import Repeats
from recsys_cg.schema import BUCKETS, EncoderFiles, ReleaseFiles
from recsys_cg.serving.content import ContentEncoder
from recsys_cg.serving.eligibility import Availability
from recsys_cg.serving.encoder import QueryEncoder
from recsys_cg.serving.fallback import Popularity
from recsys_cg.serving.histories import HistoryStore
from recsys_cg.serving.ids import IdIndex, take
from recsys_cg.serving.memory import return_unused
from recsys_cg.serving.trending import TrendRule, read_trend_rule

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
        contents = open_release(path, check_bytes=verify_files, columns=_COLUMNS)
        manifest, items, vectors = contents.manifest, contents.items, contents.vectors
        name = _check_info(manifest, path)
        _check_buckets(items, path)
        encoder = QueryEncoder.open(path / ReleaseFiles.ENCODER, interpreters=interpreters)
        _check_widths(contents, encoder)
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
            history_vectors=contents.history_vectors,
            retriever=open_index(path / ReleaseFiles.INDEX, vectors),
            encoder=encoder,
            histories=HistoryStore.open(histories, items=len(items)) if histories.is_dir() else None,
            availability=Availability(items.column("available_from_us"), items.column("available_until_us")),
            popularity=Popularity(
                items.column("train_count").to_numpy(),
                items.column("last_seen_us").fill_null(int(_NEVER_US)).to_numpy(),
            ),
        )
        release.trends  # noqa: B018 - what cannot be is refused now, not by the first lookup
        return_unused()
        return release

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def filters_seen(self) -> bool:
        """Whether what a user met is left out where a request does not say; as the release was measured."""
        return self.manifest.info.get("filter_seen") is not False

    @cached_property
    def repeats(self) -> Repeats | None:
        """How items of the history are ranked where they are candidates; None: as any other."""
        return self.encoder.contract.repeats(self.vectors)

    @cached_property
    def trends(self) -> TrendRule | None:
        """How what was asked for of late is ranked; None: as any other.

        Raises:
            ArtifactCorruptError: the manifest says so in a way that cannot be.
        """
        return read_trend_rule(self.manifest.info.get("trends"), self.path / MANIFEST)

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


def _check_info(manifest: Manifest, path: Path) -> str:
    """Return the release's name; refuse another metric."""
    name, metric = (manifest.info.get(key) for key in ("release", "metric"))
    for key, value in (("release", name), ("metric", metric)):
        if not isinstance(value, str):
            raise ArtifactCorruptError(f"{path / MANIFEST}: info.{key} is {value!r}, expected text")
    if metric != METRIC:
        raise MetricMismatchError(f"{path} is of metric {metric!r}; this version searches {METRIC!r}")
    return str(name)


def _check_buckets(items: pa.Table, path: Path) -> None:
    strange = set(items.column("bucket").unique().to_pylist()) - set(BUCKETS)
    if strange:
        raise ArtifactCorruptError(
            f"{path / ReleaseFiles.ITEMS}: {sorted(strange)[0]!r} is none of the buckets {', '.join(BUCKETS)}"
        )


def _check_widths(contents: ReleaseContents, encoder: QueryEncoder) -> None:
    """Refuse vectors that are not as wide as the query tower reads and writes them."""
    declared = encoder.contract
    for name, vectors, width in (
        ("vectors", contents.vectors, declared.dim),
        ("history vectors", contents.history_vectors, declared.history_dim),
    ):
        if vectors.shape[1] != width:
            raise ArtifactCorruptError(
                f"{contents.path} holds {name} of length {vectors.shape[1]}; its encoder's have {width}"
            )


def _bucket_codes(column: pa.ChunkedArray) -> NDArray[np.int8]:
    codes = np.zeros(len(column), np.int8)
    for code, bucket in enumerate(BUCKETS):
        codes[pc.equal(column, bucket).to_numpy()] = code
    return codes


def _check_norms(vectors: NDArray[np.float32], path: Path) -> None:
    """Check evenly spaced rows: a release of another normalisation differs everywhere."""
    sample = vectors[:: max(1, len(vectors) // _NORMS_CHECKED)]
    norms = np.sqrt(np.square(sample, dtype=np.float64).sum(axis=1))
    wrong = np.flatnonzero(~(np.abs(norms - 1.0) <= _NORM_TOLERANCE))
    if len(wrong):
        raise MetricMismatchError(
            f"{path}: vectors are not of unit norm, e.g. {norms[wrong[0]]:.4g}; rebuild the index"
        )
