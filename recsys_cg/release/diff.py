"""What changed between two releases: items, encoder, index and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from recsys_cg.artifacts import Manifest, read_manifest
from recsys_cg.release.reading import TWO_TOWER, number, section
from recsys_cg.release.store import Store
from recsys_cg.schema import BUCKETS, ReleaseFiles

__all__ = ["diff_releases"]

_SHOWN_IDS = 10


def diff_releases(store: Store, old: str, new: str) -> dict[str, Any]:
    """Return what changed from the release ``old`` to ``new``, ready for JSON.

    ``items`` counts items added, removed and kept, and how many kept ones changed in content, with the first few
    ids of each. ``vectors.mean_similarity`` is the mean cosine of a kept item with itself; it is there only when one
    encoder made both, since vectors of two encoders cannot be compared. ``figures`` are plain differences of means,
    measured on each release's own queries: the paired comparison on the same queries is in the report of ``new``.

    Raises:
        ReleaseNotFoundError: one is not in the store.
        ArtifactError: one is damaged.
    """
    paths = store.path_of(old), store.path_of(new)
    manifests = read_manifest(paths[0], kind="release"), read_manifest(paths[1], kind="release")
    rows = _rows(paths[0]), _rows(paths[1])
    result: dict[str, Any] = {
        "old": old,
        "new": new,
        "items": _diff_items(*rows),
        "encoder": _pair(manifests, "encoder_digest"),
        "dataset": _pair(manifests, "dataset_digest"),
        "index": _pair(manifests, "index"),
        "windows": _pair(manifests, "windows"),
        "figures": list(_diff_figures(store.report_of(old), store.report_of(new))),
    }
    kept = sorted(rows[0].keys() & rows[1].keys())
    if kept and not result["encoder"]["changed"]:
        vectors = [np.load(path / ReleaseFiles.VECTORS, mmap_mode="r", allow_pickle=False) for path in paths]
        chosen = [np.asarray(v[[r[i][0] for i in kept]], np.float64) for v, r in zip(vectors, rows, strict=True)]
        result["vectors"] = {"kept": len(kept), "mean_similarity": float((chosen[0] * chosen[1]).sum(axis=1).mean())}
    return result


def _rows(path: Path) -> dict[str, tuple[int, str]]:
    table = pq.read_table(path / ReleaseFiles.ITEMS, columns=["item_row", "item_id", "content_digest"])
    columns = table.to_pydict()
    return {
        item: (row, digest)
        for row, item, digest in zip(columns["item_row"], columns["item_id"], columns["content_digest"], strict=True)
    }


def _diff_items(old: Mapping[str, tuple[int, str]], new: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    added = [item for item in new if item not in old]
    removed = [item for item in old if item not in new]
    changed = [item for item, (_, digest) in new.items() if item in old and old[item][1] != digest]
    listed = {"added": added, "removed": removed, "changed_content": changed}
    return {"kept": len(new) - len(added)} | {
        name: {"count": len(ids), "first": ids[:_SHOWN_IDS]} for name, ids in listed.items()
    }


def _pair(manifests: tuple[Manifest, Manifest], key: str) -> dict[str, Any]:
    old, new = (manifest.info.get(key) for manifest in manifests)
    return {"old": old, "new": new, "changed": old != new}


def _diff_figures(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    groups: list[tuple[tuple[str, ...], str]] = [
        (("systems", TWO_TOWER, bucket), bucket) for bucket in ("overall", *BUCKETS)
    ]
    groups += [(("coverage", TWO_TOWER), "coverage"), (("index",), "index"), (("geometry",), "geometry")]
    for path, label in groups:
        before, after = section(old, *path), section(new, *path)
        for metric in (name for name in after if name in before):
            a, b = number(before[metric]), number(after[metric])
            if a is not None and b is not None and metric != "queries":
                yield {"group": label, "metric": metric, "old": a, "new": b, "difference": b - a}
