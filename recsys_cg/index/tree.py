"""ScaNN trees on disk and in memory: build, save relocatably, and load only what has the recorded shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, IndexBuildError
from recsys_cg.index.base import Vectors
from recsys_cg.index.scann_library import import_scann

__all__ = ["LEAST_ITEMS", "build_tree", "describe_files", "load_tree", "propose_leaves", "save_tree"]

LEAST_ITEMS = 100
"""Fewer vectors than this are never given to a tree: hashing needs 16, and there is nothing to save."""

_PICKLED_IDS = "scann_docids.pkl"


def propose_leaves(items: int) -> tuple[int, ...]:
    """Return the numbers of partitions worth building for ``items`` vectors, fewest first."""
    factors = (1.0, 2.0) if items <= 300_000 else (2.0, 4.0)
    return tuple(max(1, min(items // 10, round(factor * math.sqrt(items)))) for factor in factors)


def build_tree(vectors: Vectors, leaves: int, *, k: int, threads: int = 0) -> Any:
    """Build a tree over checked unit vectors and return ScaNN's inner searcher.

    The tree takes no seed: two builds of the same vectors may differ in the last neighbours they find.

    Args:
        vectors: float32 [items, dim], passed by `recsys_cg.index.vectors.check_vectors`; at least `LEAST_ITEMS`.
        leaves: number of partitions, from 1 to items.
        k: list length that a search asks for where it names none.
        threads: training threads; 0 uses every core.

    Raises:
        IndexBuildError: ScaNN refused, with its own words.
    """
    items = len(vectors)
    if items < LEAST_ITEMS or not 1 <= leaves <= items:
        raise IndexBuildError(f"a tree of {leaves} leaves over {items} vectors cannot be built")
    builder = import_scann().builder(vectors, min(k, items), "dot_product")
    builder.set_n_training_threads(threads)
    builder.tree(
        leaves,
        max(1, leaves // 10),
        training_sample_size=min(items, max(100_000, 100 * leaves)),
        min_partition_size=10,
        spherical=True,
    )
    builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(min(items, 2 * k))
    try:
        return builder.build().searcher
    except (RuntimeError, ValueError) as error:
        raise IndexBuildError(f"ScaNN could not build over {items:,} vectors: {error}") from error


def save_tree(native: Any, directory: Path) -> dict[str, dict[str, Any]]:
    """Write the tree into ``directory``, with relative paths and no ids, and return what `describe_files` says."""
    directory.mkdir()
    native.serialize(str(directory), True)
    return describe_files(directory)


def describe_files(directory: Path) -> dict[str, dict[str, Any]]:
    """Return name -> ``{"bytes"}``, with ``"shape"`` and ``"dtype"`` for arrays, of every file of a saved tree."""
    described: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.iterdir()):
        entry: dict[str, Any] = {"bytes": path.stat().st_size}
        if path.suffix == ".npy":
            array = _map(path)
            entry |= {"shape": list(array.shape), "dtype": str(array.dtype)}
        described[path.name] = entry
    return described


def _map(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ArtifactCorruptError(f"{path} is not a whole array: {error}") from error
    return array


def load_tree(directory: Path, recorded: Mapping[str, Mapping[str, Any]]) -> Any:
    """Load a saved tree and return ScaNN's inner searcher.

    Only names, sizes and shapes are compared here; the caller has checked the digests of the bytes, without
    which ScaNN loads flipped bits in silence.

    Args:
        directory: what `save_tree` wrote, wherever it lies now.
        recorded: what `save_tree` returned.

    Raises:
        ArtifactMissingError: a recorded file is not there.
        ArtifactCorruptError: another size or shape, a file that was not recorded (pickled ids among them), or
            ScaNN cannot read it.
    """
    missing = sorted(name for name in recorded if not (directory / name).is_file())
    if missing:
        raise ArtifactMissingError(f"{directory} lacks {', '.join(missing)}; build the index again")
    present = describe_files(directory)
    strange = sorted(set(present) - set(recorded))
    if strange or _PICKLED_IDS in recorded:
        raise ArtifactCorruptError(f"{directory} holds {', '.join(strange or [_PICKLED_IDS])}, which no index wrote")
    for name, entry in recorded.items():
        if present[name] != dict(entry):
            raise ArtifactCorruptError(f"{directory / name} is {present[name]}, recorded as {dict(entry)}")
    library = import_scann()
    try:
        return library.load_searcher(str(directory), assets_backcompat_shim=False).searcher
    except (RuntimeError, ValueError) as error:
        raise ArtifactCorruptError(f"ScaNN cannot load {directory}: {error}") from error
