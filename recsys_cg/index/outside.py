"""An index backend from outside the package: built, proved against exact search, opened by its name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from recsys_cg.config import IndexConfig
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, ConfigError, IndexBuildError
from recsys_cg.extensions import call_extension, load_extension
from recsys_cg.index.base import Retriever, Vectors
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.index.recall import find_truth, recall_by_bucket, recall_by_query, summarise
from recsys_cg.progress import say

__all__ = ["OWN", "Backend", "build_outside", "open_outside"]

OWN = "own"
"""Folder of an index directory in which such a backend keeps its files."""


class Backend(Protocol):
    """An index from outside the package, which ``index.kind`` names as ``package.module:Name``.

    Its retriever keeps the contract of `recsys_cg.index.base`, and has the backend's name as its ``kind``.
    """

    @classmethod
    def build(cls, vectors: Vectors, directory: Path, *, queries: Vectors, k: int, seed: int, **options: Any) -> str:
        """Write what `open` needs into ``directory``, beside which the vectors are kept; say in one sentence why so.

        Args:
            vectors: float32 [items, dim] of unit norm, at least one; may be a memory map.
            directory: exists and is empty.
            queries: float32 [queries, dim] of unit norm, to tune on.
            k: list length at which the recall is asked for.
            seed: of whatever is drawn.
            options: ``index.options`` of the project file.
        """

    @classmethod
    def open(cls, directory: Path, vectors: Vectors, *, threads: int) -> Retriever:
        """Return the retriever of what `build` wrote, wherever ``directory`` lies now."""


def build_outside(
    vectors: Vectors,
    directory: Path,
    *,
    config: IndexConfig,
    queries: Vectors,
    buckets: Sequence[str] | None,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the backend that ``config.kind`` names build, open what it wrote, and measure it against exact search.

    Args:
        vectors: float32 [items, dim], checked, at least one.
        directory: the index directory; the backend writes into its folder `OWN`.
        config: the ``[index]`` section.
        queries: float32 [queries, dim], checked, at least one.
        buckets: of the items, or None.
        seed: for the backend.

    Returns:
        What index.json says of it, and its files.

    Raises:
        ConfigError: the backend cannot be imported, or refuses its options.
        IndexBuildError: it reaches less than ``config.target_recall``, or is not the retriever of these vectors.
    """
    backend = _load(config.kind)
    (directory / OWN).mkdir()
    started = time.process_time()
    given: dict[str, Any] = {"queries": queries, "k": config.k, "seed": seed}
    place = (vectors, directory / OWN)
    why = str(call_extension(backend.build, config.kind, config.options, *place, key="index.kind", **given))
    seconds = time.process_time() - started
    retriever = backend.open(directory / OWN, vectors, threads=1)
    if (retriever.size, retriever.dim) != vectors.shape:
        raise IndexBuildError(f"{config.kind} opened an index of {retriever.size} x {retriever.dim} vectors")
    truth = find_truth(vectors, queries, config.k)
    rows = retriever.search(queries, truth.k).rows
    scores = np.where(rows >= 0, np.einsum("qkd,qd->qk", vectors[rows], queries), -np.inf).astype(np.float32)
    recall = recall_by_query(truth, scores)
    if recall.mean() < config.target_recall:
        raise IndexBuildError(
            f"{config.kind} found {recall.mean():.4f} of exact search's first {truth.k}, below index.target_recall = "
            f"{config.target_recall}: give it other index.options, or lower the target"
        )
    info = {
        "kind": config.kind,
        "parameters": {"target_recall": config.target_recall, "options": config.options},
        "recall_vs_exact": {
            "k": truth.k,
            **summarise(recall),
            "by_bucket": {} if buckets is None else recall_by_bucket(truth, rows, recall, buckets),
        },
        "build_cpu_s": seconds,
        "tuning_cpu_s": 0.0,
        "why": why,
    }
    return info, _describe(directory / OWN)


def open_outside(
    directory: Path, vectors: Vectors, *, kind: str, recorded: Mapping[str, Any], threads: int
) -> Retriever:
    """Open what `build_outside` wrote. Where the backend is not installed, exact search answers, and ``why`` says so.

    Raises:
        ArtifactMissingError: a recorded file is not there.
        ArtifactCorruptError: a file has another size, or was not recorded.
    """
    present = _describe(directory / OWN)
    if missing := sorted(set(recorded) - set(present)):
        raise ArtifactMissingError(f"{directory / OWN} lacks {', '.join(missing)}; build the index again")
    if present != dict(recorded):
        raise ArtifactCorruptError(f"{directory / OWN} holds {present}, recorded as {dict(recorded)}")
    try:
        backend = _load(kind)
    except ConfigError as error:
        say(f"index: searching exactly, many times slower: {error}")
        return ExactRetriever(vectors, f"exact search: {error}")
    return backend.open(directory / OWN, vectors, threads=threads)


def _load(kind: str) -> type[Backend]:
    backend: type[Backend] = load_extension(kind, key="index.kind", methods=("build", "open"))
    return backend


def _describe(directory: Path) -> dict[str, dict[str, int]]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): {"bytes": path.stat().st_size} for path in files}
