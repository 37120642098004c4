"""Open an index that `recsys_cg.index.build` wrote, beside the vectors it was built on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactFormatError,
    ArtifactMissingError,
    EnvironmentMismatchError,
    MetricMismatchError,
)
from recsys_cg.extensions import is_extension
from recsys_cg.index.base import Retriever, Vectors
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.index.outside import open_outside
from recsys_cg.index.scann import ScannRetriever, TreeParameters
from recsys_cg.index.tree import load_tree
from recsys_cg.progress import say

__all__ = ["INDEX_FILE", "METRIC", "TREE", "open_index"]

INDEX_FILE = "index.json"
TREE = "scann"
METRIC = "dot product of unit vectors"
_SCHEMA = 1


def open_index(directory: Path, vectors: Vectors, *, threads: int = 1) -> Retriever:
    """Return the retriever of ``directory``, without loading TensorFlow.

    Where ScaNN is recorded but cannot be imported here, exact search answers in its place and ``why`` says so.
    Names and shapes are checked; digests are the caller's to check first (`recsys_cg.artifacts.verify`).

    Args:
        directory: what `recsys_cg.index.build.build_index` wrote, wherever it lies now.
        vectors: float32 [items, dim], the vectors it was built on; a memory map is searched without copying.
        threads: native threads of a batch search, at least 1.

    Raises:
        ArtifactMissingError: no ``index.json``, or a file of the tree is not there.
        ArtifactCorruptError: not what was written: unreadable, or of other sizes or shapes than recorded.
        ArtifactFormatError: written by a newer version.
        MetricMismatchError: an index of another metric.
    """
    document = _read(directory / INDEX_FILE)
    if list(vectors.shape) != [document["size"], document["dim"]] or vectors.dtype != np.float32:
        raise ArtifactCorruptError(
            f"{directory} indexes float32 [{document['size']}, {document['dim']}]; "
            f"the vectors beside it are {vectors.dtype} {list(vectors.shape)}"
        )
    if document["metric"] != METRIC:
        raise MetricMismatchError(f"{directory} is an index of {document['metric']!r}; this version serves {METRIC!r}")
    if document["kind"] == "exact":
        return ExactRetriever(vectors, document["why"])
    if is_extension(document["kind"]):
        return open_outside(directory, vectors, kind=document["kind"], recorded=document["files"], threads=threads)
    parameters = _parameters(document, directory)
    try:
        native = load_tree(directory / TREE, document["files"])
    except EnvironmentMismatchError as error:
        say(f"index: searching exactly, many times slower: {error}")
        return ExactRetriever(vectors, f"exact search in place of ScaNN: {error}")
    return ScannRetriever(native, vectors, parameters, threads=threads, why=document["why"])


def _parameters(document: dict[str, Any], directory: Path) -> TreeParameters:
    tuned = document["parameters"]
    names = ("leaves", "leaves_to_search", "reorder", "k")
    values = [tuned.get(name) for name in names]
    if not all(isinstance(value, int) and value >= 1 for value in values):
        raise ArtifactCorruptError(f"{directory / INDEX_FILE} has parameters {dict(zip(names, values, strict=True))}")
    return TreeParameters(*values)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{path} is not there; build the index first") from error
    except ValueError as error:
        raise ArtifactCorruptError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise ArtifactCorruptError(f"{path} does not describe an index")
    if document["schema"] > _SCHEMA:
        raise ArtifactFormatError(f"{path} has schema {document['schema']}; this version reads up to {_SCHEMA}")
    wanted = {"kind", "size", "dim", "metric", "why", "parameters", "files"}
    if missing := sorted(wanted - set(document)):
        raise ArtifactCorruptError(f"{path} lacks {', '.join(missing)}")
    return document
