"""Build an index over item vectors: refuse bad input, choose a backend, tune it, prove it, write it down."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.config import IndexConfig
from recsys_cg.errors import EnvironmentMismatchError, IndexBuildError
from recsys_cg.extensions import is_extension
from recsys_cg.index.base import Vectors
from recsys_cg.index.load import INDEX_FILE, METRIC, TREE, open_index
from recsys_cg.index.outside import build_outside
from recsys_cg.index.recall import recall_by_bucket, summarise
from recsys_cg.index.requests import check_queries
from recsys_cg.index.scann import ScannRetriever
from recsys_cg.index.scann_library import VERSION, import_scann
from recsys_cg.index.selection import LEAST_QUERIES, Selection, select_tree
from recsys_cg.index.tree import LEAST_ITEMS, save_tree
from recsys_cg.index.tuning import OperatingPoint
from recsys_cg.index.vectors import check_vectors
from recsys_cg.progress import say

__all__ = ["build_index"]

_DETERMINISM = (
    "exact search: the same vectors and queries give the same rows and scores",
    "ScaNN takes no seed: a rebuild over the same vectors may find other neighbours at the margin of its recall; "
    "one saved index gives one answer",
)
_SMOKE_QUERIES = 16


def build_index(
    vectors: Vectors,
    directory: Path,
    *,
    config: IndexConfig,
    queries: Vectors,
    buckets: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Build, tune and write the index of ``vectors`` into ``directory``, and return what it reached.

    ScaNN is used where it reaches ``config.target_recall`` on queries that tuning has not seen; otherwise, and
    for small catalogues, exact search, and ``"why"`` says so. Either way the directory is complete once
    ``index.json`` is there; the vectors themselves are stored by the caller and given to `open_index`.

    Args:
        vectors: float32 [items, dim] in C order, unit norm; may be a memory map. No item is fine.
        directory: created if needed; must hold nothing.
        config: the ``[index]`` section.
        queries: float32 [queries, dim] of unit norm from the query tower, held out from training; split into
            queries to tune on and queries to verify on. Fewer than 64 of them mean exact search.
        buckets: popularity bucket of each item, to report recall by bucket; None leaves that out.
        seed: decides the split of the queries.

    Returns:
        ``{"kind", "parameters", "recall_vs_exact": {"k", "mean", "ci95", "queries", "by_bucket"}, "bytes",
        "seconds", "build_cpu_s", "tuning_cpu_s", "why"}``, JSON-able; for ScaNN also ``"operating_points"``, the
        settings tried that none other beats in both recall and time.

    Raises:
        IndexBuildError: broken vectors (the message names rows), a directory in use, buckets of another length.
        SearchError: broken queries; MetricMismatchError where they are not of unit norm.
    """
    started = time.perf_counter()
    check_vectors(vectors)
    checked = check_queries(queries, vectors.shape[1])
    if buckets is not None and len(buckets) != len(vectors):
        raise IndexBuildError(f"{len(buckets)} buckets for {len(vectors)} vectors")
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise IndexBuildError(f"{directory} is not empty; an index is written into a directory of its own")
    why = _why_exact(len(vectors), len(checked), config)
    chosen: Selection | None = None
    if why is None and is_extension(config.kind):
        info, files = build_outside(vectors, directory, config=config, queries=checked, buckets=buckets, seed=seed)
        return _finish(directory, info, files, vectors, started)
    if why is None:
        say(f"index: tuning ScaNN over {len(vectors):,} vectors for recall@{config.k} >= {config.target_recall}")
        chosen, why = select_tree(vectors, checked, config=config, seed=seed)
    if chosen is None:
        info = _describe_exact(config, min(config.k, len(vectors)), why)
        files = {}
    else:
        info = _describe_tree(chosen, buckets, why)
        files = save_tree(chosen.tuned.candidate.native, directory / TREE)
    info = _finish(directory, info, files, vectors, started)
    if chosen is not None:
        _smoke_test(chosen, directory, vectors)
    return info


def _finish(
    directory: Path, info: dict[str, Any], files: dict[str, Any], vectors: Vectors, started: float
) -> dict[str, Any]:
    info["bytes"] = sum(entry["bytes"] for entry in files.values())
    info["seconds"] = time.perf_counter() - started
    _write(directory, info, files, vectors)
    say(f"index: {info['kind']}, {info['why']}")
    return info


def _why_exact(items: int, queries: int, config: IndexConfig) -> str | None:  # noqa: PLR0911 - a list of reasons
    """Return why exact search is used, or None where ScaNN, or the backend from outside, is to be tried."""
    if config.kind == "exact":
        return "exact search: index.kind = 'exact'"
    if config.kind == "auto" and items < config.exact_below:
        return f"exact search: {items:,} items are fewer than index.exact_below = {config.exact_below:,}"
    if is_extension(config.kind) and items and queries:
        return None
    if items < max(LEAST_ITEMS, 2 * config.k):
        return f"exact search: {items:,} items are too few for a tree with lists of {config.k}"
    if queries < LEAST_QUERIES:
        return f"exact search: {queries} tuning queries are too few to prove a recall; {LEAST_QUERIES} are the least"
    try:
        import_scann()
    except EnvironmentMismatchError as error:
        return f"exact search: {error}"
    return None


def _describe_exact(config: IndexConfig, k: int, why: str) -> dict[str, Any]:
    recall = {"k": k, "mean": 1.0, "ci95": [1.0, 1.0], "queries": 0, "by_bucket": {}}
    return {
        "kind": "exact",
        "parameters": {"target_recall": config.target_recall},
        "recall_vs_exact": recall,
        "build_cpu_s": 0.0,
        "tuning_cpu_s": 0.0,
        "why": why,
    }


def _describe_tree(chosen: Selection, buckets: Sequence[str] | None, why: str) -> dict[str, Any]:
    tuned = chosen.tuned
    by_bucket = {} if buckets is None else recall_by_bucket(chosen.truth, chosen.rows, chosen.recall, buckets)
    return {
        "kind": "scann",
        "parameters": {
            "leaves": tuned.parameters.leaves,
            "leaves_to_search": tuned.parameters.leaves_to_search,
            "reorder": tuned.parameters.reorder,
            "k": tuned.parameters.k,
            "target_recall": chosen.target,
            "tuning_recall": tuned.recall,
            "tuning_queries": chosen.tuning_queries,
            "attempts": chosen.attempts,
        },
        "recall_vs_exact": {"k": tuned.parameters.k, **summarise(chosen.recall), "by_bucket": by_bucket},
        "operating_points": [
            _describe_point(point, chosen=point.parameters == tuned.parameters) for point in tuned.frontier
        ],
        "build_cpu_s": tuned.candidate.build_seconds,
        "tuning_cpu_s": chosen.cpu_seconds - tuned.candidate.build_seconds,
        "why": why,
    }


def _describe_point(point: OperatingPoint, *, chosen: bool) -> dict[str, Any]:
    """Return one setting of the frontier: recall on the tuning queries against the time of a single query."""
    return {
        "leaves": point.parameters.leaves,
        "leaves_to_search": point.parameters.leaves_to_search,
        "reorder": point.parameters.reorder,
        "recall": point.recall,
        "microseconds": point.microseconds,
        "chosen": chosen,
    }


def _write(directory: Path, info: dict[str, Any], files: dict[str, Any], vectors: Vectors) -> None:
    tree = info["kind"] == "scann"
    document = {
        "schema": 1,
        "size": int(vectors.shape[0]),
        "dim": int(vectors.shape[1]),
        "metric": METRIC,
        "determinism": _DETERMINISM[tree],
        "scann": VERSION if tree else None,
        "files": files,
        **info,
    }
    write_text_atomically(directory / INDEX_FILE, json.dumps(document, indent=2) + "\n")


def _smoke_test(chosen: Selection, directory: Path, vectors: Vectors) -> None:
    """Load what was written and compare its answers with those of the tree in memory."""
    queries = chosen.truth.queries[:_SMOKE_QUERIES]
    tuned = chosen.tuned
    loaded = open_index(directory, vectors)
    built = ScannRetriever(tuned.candidate.native, vectors, tuned.parameters)
    if not np.array_equal(
        loaded.search(queries, tuned.parameters.k).rows, built.search(queries, tuned.parameters.k).rows
    ):
        shutil.rmtree(directory)
        raise IndexBuildError(
            "the index that was written answers otherwise than the one that was built; build it again"
        )
