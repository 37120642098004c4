"""Synthetic unit vectors, clustered as embeddings are, for `bench_index`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COARSE, FINE = 64, 4096
_BLOCK = 100_000


def make_embeddings(count: int, dim: int, seed: int) -> np.ndarray:
    """Return float32 [count, dim] of unit norm: coarse groups, finer groups of uneven size, and wide scatter.

    A point is its coarse centre, 0.7 of its fine centre and normal noise as large as the coarse centre; dimension
    j is scaled by (1 + j)^-0.25, and fine group g is drawn in proportion to (1 + g)^-0.5. The centres are the same
    for every seed, so that items and queries of other seeds live in one world. At 100k the hundredth neighbour
    of a query has a mean cosine of about .56, the first of .72.
    """
    world, rng = np.random.default_rng(7), np.random.default_rng(seed)
    scale = (1.0 + np.arange(dim)) ** -0.25
    coarse, fine = world.normal(size=(COARSE, dim)) * scale, world.normal(size=(FINE, dim)) * scale
    parent = world.integers(0, COARSE, FINE)
    share = (1.0 + np.arange(FINE)) ** -0.5
    share /= share.sum()
    points = np.empty((count, dim), dtype=np.float32)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        group = rng.choice(FINE, size, p=share)
        block = coarse[parent[group]] + 0.7 * fine[group] + rng.normal(size=(size, dim)) * scale
        points[start : start + size] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return points


def prepare(folder: Path, items: int, dim: int, tuning: int, test: int, k: int) -> None:
    """Write vectors.npy, tuning.npy, test.npy and the exact lists of both (tuning_exact.npy, test_exact.npy)."""
    from recsys_cg.index.exact import search_exactly

    folder.mkdir(parents=True, exist_ok=True)
    vectors = make_embeddings(items, dim, 1)
    np.save(folder / "vectors.npy", vectors)
    for name, count, seed in (("tuning", tuning, 2), ("test", test, 3)):
        queries = make_embeddings(count, dim, seed)
        np.save(folder / f"{name}.npy", queries)
        np.save(folder / f"{name}_exact.npy", search_exactly(vectors, queries, max(k, 150)).rows)
