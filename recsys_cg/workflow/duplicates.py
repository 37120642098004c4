"""Near-duplicates among what a release retrieves, for its report."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from recsys_cg.index.duplicates import find_near_duplicates, group_duplicates
from recsys_cg.serving.release import Release

__all__ = ["describe_duplicates"]

LEAST: Final = 0.98
"""Lowest similarity of a pair."""

_SEARCHED = 50_000
_GROUPS = 12
_TITLES = 6


def describe_duplicates(release: Release) -> dict[str, Any]:
    """Return the report's ``catalogue.near_duplicates``, found through the release's index.

    Returns:
        ``least_similarity``; ``searched``: items whose neighbours were looked at, the most popular first and at most
        50,000; ``items`` of them and their partners that have a near-duplicate; ``groups`` that they form;
        ``examples``: of the groups with the most similar pairs the ``items``, the ``size`` and the ``similarity``.
    """
    searched = min(len(release), _SEARCHED)
    pairs = find_near_duplicates(release.retriever, release.vectors[:searched], least=LEAST)
    groups = group_duplicates(pairs.rows)
    best: dict[int, float] = {}
    for (row, _), similarity in zip(pairs.rows.tolist(), pairs.similarities.tolist(), strict=True):
        best.setdefault(row, similarity)  # the most similar pairs come first
    of_group = [max(best.get(row, 0.0) for row in group) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda place: (-of_group[place], groups[place]))[:_GROUPS]
    return {
        "least_similarity": LEAST,
        "searched": searched,
        "items": sum(len(group) for group in groups),
        "groups": len(groups),
        "examples": [_describe(release, groups[place], of_group[place]) for place in chosen],
    }


def _describe(release: Release, group: list[int], similarity: float) -> dict[str, Any]:
    ids, titles, _ = release.describe(np.array(group[:_TITLES], dtype=np.int32))
    items = [{"item_id": one, "title": title} for one, title in zip(ids, titles, strict=True)]
    return {"items": items, "size": len(group), "similarity": min(similarity, 1.0)}
