"""Assembling a release directory: item vectors, index, ids, histories and the encoder that belongs to them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg import artifacts
from recsys_cg.config import Config
from recsys_cg.errors import IndexBuildError
from recsys_cg.progress import say
from recsys_cg.schema import ReleaseFiles
from recsys_cg.workflow.project import Project, Stage, StageKey

__all__ = ["EncoderSource", "assemble", "name_release", "previous_vectors", "settings"]

_RELEASED_COLUMNS = (
    "item_row",
    "item_id",
    "title",
    "bucket",
    "train_count",
    "last_seen_us",
    "q",
    "available_from_us",
    "available_until_us",
    "content_digest",
)


@dataclass(frozen=True)
class EncoderSource:
    """An encoder directory and its digest; a release carries a whole copy of it in ``encoder/``."""

    path: Path
    digest: str

    @classmethod
    def open(cls, path: Path) -> EncoderSource:
        """Read the digest of the encoder in ``path``."""
        return cls(path, artifacts.read_manifest(path, kind="encoder").digest)


@dataclass(frozen=True)
class _Vectors:
    vectors: NDArray[np.float32]
    history_vectors: NDArray[np.float32]


def settings(config: Config) -> dict[str, Any]:
    """Return the part of the configuration that a release depends on."""
    return {**config.section("index"), "histories": config.serving.histories}


def name_release(key: StageKey, now: datetime) -> str:
    """Return a release's name: when, and what it was made from."""
    return f"{now:%Y%m%dT%H%M%SZ}-{key.digest[:8]}"


def previous_vectors(release: Path, encoder: EncoderSource, items: pa.Table) -> tuple[NDArray[np.int64], _Vectors]:
    """Find the vectors of ``release`` that still hold: same encoder, same item, same content.

    Returns:
        For each row of ``items`` the row in ``release``, or -1 where it must be embedded; and the release's vectors.
    """
    manifest = artifacts.read_manifest(release, kind="release")
    vectors = np.load(release / ReleaseFiles.VECTORS, mmap_mode="r")
    history_vectors = np.load(release / manifest.info["history_vectors"], mmap_mode="r")
    old = pq.read_table(release / ReleaseFiles.ITEMS, columns=["item_id", "content_digest", "encoder_digest"])
    found = pc.index_in(items["item_id"], value_set=old["item_id"].combine_chunks()).combine_chunks()
    rows = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    known = np.flatnonzero(rows >= 0)
    same = pc.and_(
        pc.equal(old["content_digest"].take(pa.array(rows[known])), items["content_digest"].take(pa.array(known))),
        pc.equal(old["encoder_digest"].take(pa.array(rows[known])), encoder.digest),
    )
    rows[known[~np.asarray(same, dtype=bool)]] = -1
    return rows, _Vectors(vectors, history_vectors)


def assemble(
    project: Project,
    data: Stage,
    encoder: EncoderSource,
    directory: Path,
    *,
    name: str,
    reuse: tuple[NDArray[np.int64], _Vectors] | None = None,
) -> Mapping[str, Any]:
    """Write a whole release into ``directory`` and return its manifest's ``info``.

    Args:
        project: whose ``[index]`` and ``[serving]`` sections are read.
        data: the dataset: items with their encoded content, validation queries for tuning, histories.
        encoder: embeds the items; copied into the release.
        directory: existing and empty.
        name: the release's name.
        reuse: what `previous_vectors` found; None embeds every item.
    """
    from recsys_cg.data.dataset import Dataset

    dataset = Dataset.open(data.path)
    shutil.copytree(encoder.path, directory / ReleaseFiles.ENCODER)
    embedded = _embed(dataset.items, encoder, reuse)
    _write_vectors(directory, embedded)
    items = dataset.items.select(_RELEASED_COLUMNS)
    digests = pa.array([encoder.digest] * len(items), pa.string())
    pq.write_table(items.append_column("encoder_digest", digests), directory / ReleaseFiles.ITEMS)
    index = _build_index(project, dataset, directory, embedded)
    if project.config.serving.histories:
        from recsys_cg.serving.histories import write_histories

        write_histories(directory / ReleaseFiles.HISTORIES, dataset.iter_histories(), max_history=dataset.max_history)
    tied = embedded.history_vectors is embedded.vectors
    return {
        "release": name,
        "project": project.config.project.name,
        "encoder_digest": encoder.digest,
        "dataset_digest": data.manifest.digest,
        "items": len(items),
        "dim": int(embedded.vectors.shape[1]),
        "metric": "l2_normalised_dot",
        "history_vectors": ReleaseFiles.VECTORS if tied else ReleaseFiles.HISTORY_VECTORS,
        "events": dataset.events,
        "max_history": dataset.max_history,
        "windows": data.manifest.info["windows"],
        "reused_vectors": 0 if reuse is None else int((reuse[0] >= 0).sum()),
        "index": index,
    }


def _embed(items: pa.Table, encoder: EncoderSource, reuse: tuple[NDArray[np.int64], _Vectors] | None) -> _Vectors:
    from recsys_cg.beam.embedding import embed_items
    from recsys_cg.model.item_encoder import ItemEncoder

    factory = partial(ItemEncoder.open, encoder.path)
    if reuse is None:
        say(f"release: embedding {len(items):,} items")
        return _tie(*embed_items(items, factory))
    rows, old = reuse
    fresh = np.flatnonzero(rows < 0)
    say(f"release: embedding {len(fresh):,} new or changed items, keeping {len(items) - len(fresh):,}")
    vectors = np.asarray(old.vectors)[rows]
    history_vectors = np.asarray(old.history_vectors)[rows]
    if len(fresh):
        vectors[fresh], history_vectors[fresh] = embed_items(items.take(pa.array(fresh)), factory)
    return _tie(vectors, history_vectors)


def _tie(vectors: NDArray[np.float32], history_vectors: NDArray[np.float32]) -> _Vectors:
    """Keep one array where the two are equal: half the memory to serve."""
    if np.array_equal(vectors, history_vectors):
        return _Vectors(vectors, vectors)
    return _Vectors(vectors, history_vectors)


def _write_vectors(directory: Path, embedded: _Vectors) -> None:
    np.save(directory / ReleaseFiles.VECTORS, np.ascontiguousarray(embedded.vectors), allow_pickle=False)
    if embedded.history_vectors is not embedded.vectors:
        history = np.ascontiguousarray(embedded.history_vectors)
        np.save(directory / ReleaseFiles.HISTORY_VECTORS, history, allow_pickle=False)


def _build_index(project: Project, dataset: Any, directory: Path, embedded: _Vectors) -> Mapping[str, Any]:
    from recsys_cg.index.build import build_index

    if not len(embedded.vectors):
        raise IndexBuildError("the dataset has no item: there is nothing to index")
    queries = _tuning_queries(project, dataset, directory, embedded)
    return build_index(
        embedded.vectors,
        directory / ReleaseFiles.INDEX,
        config=project.config.index,
        queries=queries,
        buckets=dataset.items["bucket"].to_pylist(),
        seed=project.seed,
    )


def _tuning_queries(project: Project, dataset: Any, directory: Path, embedded: _Vectors) -> NDArray[np.float32]:
    """Encode a sample of the validation queries: the index is tuned on what the query tower gives, not on items."""
    from recsys_cg.serving.encoder import QueryEncoder
    from recsys_cg.serving.queries import encode_queries

    queries = dataset.queries("validation")
    wanted = min(len(queries), 2 * project.config.index.tuning_queries)
    chosen = np.sort(np.random.default_rng(project.seed).choice(len(queries), size=wanted, replace=False))
    encoder = QueryEncoder.open(directory / ReleaseFiles.ENCODER)
    return encode_queries(encoder, embedded.history_vectors, queries.take(pa.array(chosen)))
