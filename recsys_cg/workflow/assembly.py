"""Assembling a release directory: item vectors, index, ids, histories and the encoder that belongs to them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg import artifacts
from recsys_cg.config import Config
from recsys_cg.errors import IndexBuildError
from recsys_cg.progress import say
from recsys_cg.schema import EncoderFiles, ReleaseFiles
from recsys_cg.workflow.project import Project, Stage, StageKey

if TYPE_CHECKING:
    from recsys_cg.data.context import ContextSet
    from recsys_cg.data.dataset import Dataset
    from recsys_cg.serving.encoder import EncoderContract, QueryEncoder

__all__ = [
    "EncoderSource",
    "assemble",
    "name_release",
    "previous_vectors",
    "recode_events",
    "settings",
    "translate_queries",
]

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
    seen = config.evaluation.filter_seen
    return {**config.section("index"), "histories": config.serving.histories, "filter_seen": seen}


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
    fold: bool = False,
) -> Mapping[str, Any]:
    """Write a whole release into ``directory`` and return its manifest's ``info``.

    Args:
        project: whose ``[index]`` and ``[serving]`` sections are read.
        data: the dataset: items with their encoded content, validation queries for tuning, histories. Where it has a
            catalogue, items that are not in it serve in histories and are never candidates.
        encoder: embeds the items; copied into the release.
        directory: existing and empty.
        name: the release's name.
        reuse: what `previous_vectors` found; None embeds every item.
        fold: give items that the encoder never met vectors from the queries of those who chose them, where it reads
            no content (`recsys_cg.workflow.folding`).
    """
    from recsys_cg.data.dataset import Dataset
    from recsys_cg.index.vectors import refuse_duplicate_ids
    from recsys_cg.serving.encoder import QueryEncoder

    dataset = Dataset.open(data.path)
    refuse_duplicate_ids(dataset.items["item_id"].to_pylist())
    shutil.copytree(encoder.path, directory / ReleaseFiles.ENCODER)
    query_encoder = QueryEncoder.open(directory / ReleaseFiles.ENCODER)
    contract = query_encoder.contract
    embedded = _embed(dataset.items, encoder, reuse)
    folded = np.empty(0, np.int64)
    if fold:
        embedded, folded = _fold_in(dataset, encoder, query_encoder, embedded, seed=project.seed)
    _write_vectors(directory, embedded)
    items = _released_items(dataset.items, encoder.digest, has_catalogue=project.config.items is not None)
    pq.write_table(items, directory / ReleaseFiles.ITEMS)
    queries = _tuning_queries(project, dataset, query_encoder, embedded)
    index = _build_index(project, items, directory, embedded, queries)
    trends = _fit_trends(project.config, dataset, query_encoder, embedded, directory)
    if project.config.serving.histories:
        from recsys_cg.serving.histories import write_histories

        tables = (recode_events(t, "events", dataset.events, contract.events) for t in dataset.iter_histories())
        write_histories(directory / ReleaseFiles.HISTORIES, tables, max_history=contract.max_history)
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
        "events": list(contract.events),
        "max_history": contract.max_history,
        "filter_seen": project.config.evaluation.filter_seen,
        "windows": data.manifest.info["windows"],
        "reused_vectors": 0 if reuse is None else int((np.delete(reuse[0], folded) >= 0).sum()),
        "folded_in": len(folded),
        "index": index,
        **({} if trends is None else {"trends": trends}),
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


def _fold_in(
    dataset: Dataset, encoder: EncoderSource, query_encoder: QueryEncoder, embedded: _Vectors, *, seed: int
) -> tuple[_Vectors, NDArray[np.int64]]:
    """Return the vectors with those of items that the encoder never met replaced, and the rows of these."""
    from recsys_cg.data.content import FeatureSet
    from recsys_cg.serving.queries import encode_queries
    from recsys_cg.workflow.folding import fold_in

    contract = query_encoder.contract
    text = (encoder.path / EncoderFiles.FEATURES).read_text(encoding="utf-8")
    if FeatureSet.from_json(text).features or embedded.vectors.shape != embedded.history_vectors.shape:
        return embedded, np.empty(0, np.int64)
    learned = pq.read_table(encoder.path / EncoderFiles.ITEM_IDS)["item_id"].combine_chunks()
    is_known = np.asarray(pc.is_in(dataset.items["item_id"], value_set=learned), dtype=bool)

    def encode(queries: pa.Table) -> NDArray[np.float32]:
        recoded = recode_events(queries, "history_events", dataset.events, contract.events)
        return encode_queries(query_encoder, embedded.history_vectors, recoded)

    found = fold_in(
        dataset.items["train_count"].to_numpy(),
        is_known,
        embedded.vectors,
        dataset.iter_sequences(),
        encode,
        max_history=contract.max_history,
        seed=seed,
    )
    if found is None:
        return embedded, np.empty(0, np.int64)
    say(f"release: {len(found.rows):,} items that the encoder never met got vectors from their choices")
    vectors, history_vectors = np.array(embedded.vectors), np.array(embedded.history_vectors)
    length = np.median(np.linalg.norm(history_vectors[is_known], axis=1))
    vectors[found.rows], history_vectors[found.rows] = found.vectors, found.vectors * length
    return _tie(vectors, history_vectors), found.rows


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


def _released_items(items: pa.Table, encoder_digest: str, *, has_catalogue: bool) -> pa.Table:
    if has_catalogue:
        until = pc.if_else(items["in_catalogue"], items["available_until_us"], pa.scalar(0, pa.int64()))
        items = items.set_column(items.schema.get_field_index("available_until_us"), "available_until_us", until)
    digests = pa.array([encoder_digest] * len(items), pa.string())
    return items.select(_RELEASED_COLUMNS).append_column("encoder_digest", digests)


def _build_index(
    project: Project, items: pa.Table, directory: Path, embedded: _Vectors, queries: NDArray[np.float32]
) -> Mapping[str, Any]:
    from recsys_cg.index.build import build_index

    if not len(items):
        raise IndexBuildError("the dataset has no item: there is nothing to index")
    return build_index(
        embedded.vectors,
        directory / ReleaseFiles.INDEX,
        config=project.config.index,
        queries=queries,
        buckets=items["bucket"].to_pylist(),
        seed=project.seed,
    )


def _fit_trends(
    config: Config, dataset: Dataset, encoder: QueryEncoder, embedded: _Vectors, directory: Path
) -> Mapping[str, Any] | None:
    from recsys_cg.index.load import open_index
    from recsys_cg.serving.queries import encode_queries
    from recsys_cg.workflow.trends import fit_trends

    contract, vectors = encoder.contract, embedded.vectors
    asked: list[tuple[pa.Table, NDArray[np.float32]]] = []

    def encode(queries: pa.Table) -> NDArray[np.float32]:
        if not asked or asked[0][0] is not queries:  # every bonus is tried on the same batch
            known = translate_queries(queries, dataset.events, dataset.context, contract)
            asked[:] = [(queries, encode_queries(encoder, embedded.history_vectors, known))]
        return asked[0][1]

    load = partial(open_index, directory / ReleaseFiles.INDEX, vectors)
    return fit_trends(config, dataset, encode, load, vectors=vectors, repeats=contract.repeats(vectors))


def _tuning_queries(
    project: Project, dataset: Dataset, encoder: QueryEncoder, embedded: _Vectors
) -> NDArray[np.float32]:
    """Encode a sample of the validation queries: the index is tuned on what the query tower gives, not on items."""
    from recsys_cg.serving.queries import encode_queries

    queries = dataset.queries("validation")
    wanted = min(len(queries), 2 * project.config.index.tuning_queries)
    chosen = np.sort(np.random.default_rng(project.seed).choice(len(queries), size=wanted, replace=False))
    sample = recode_events(queries.take(pa.array(chosen)), "history_events", dataset.events, encoder.contract.events)
    return encode_queries(encoder, embedded.history_vectors, sample)


def translate_queries(
    queries: pa.Table, events: Sequence[str], context: ContextSet, contract: EncoderContract
) -> pa.Table:
    """Return queries with the codes of an encoder in place of those of a dataset's ``events`` and ``context``."""
    return recode_events(context.translate(queries, contract.context), "history_events", events, contract.events)


def recode_events(table: pa.Table, column: str, names: Sequence[str], wanted: Sequence[str]) -> pa.Table:
    """Return ``table`` with the event codes of a list column changed from places in ``names`` to places in ``wanted``.

    An event that ``wanted`` lacks becomes its first, as in a lookup.
    """
    if tuple(names) == tuple(wanted):
        return table
    code = {name: place for place, name in enumerate(wanted)}
    mapping = np.array([code.get(name, 0) for name in names], dtype=np.int8)
    lists = table.column(column).combine_chunks()
    values = mapping[lists.flatten().to_numpy()] if len(names) else np.empty(0, np.int8)
    offsets = pa.array(np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int32))
    recoded = pa.ListArray.from_arrays(offsets, pa.array(values, pa.int8()))
    return table.set_column(table.schema.get_field_index(column), table.schema.field(column), recoded)
