"""Reading figures out of a report.json, where any part may be absent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "TWO_TOWER",
    "comparison",
    "find_at_k",
    "headline",
    "interval_of",
    "mean_of",
    "number",
    "primary_k",
    "section",
]

TWO_TOWER = "two_tower"
"""Name of the system that a release holds, among ``report["systems"]``."""


def section(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at ``path`` below ``value``, or an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """Return a finite number (or the ``mean`` of a measured metric) as float; None for anything else."""
    if isinstance(value, Mapping):
        value = value.get("mean")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def primary_k(report: Mapping[str, Any]) -> int:
    """Return the k of headlines and gates: ``protocol.primary_k``, else 100 when measured, else the middle k."""
    protocol = section(report, "protocol")
    stated = protocol.get("primary_k")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    measured = sorted(k for k in protocol.get("k") or [] if isinstance(k, int))
    if not measured or 100 in measured:
        return 100
    return measured[len(measured) // 2]


def mean_of(report: Mapping[str, Any], system: str, bucket: str, metric: str) -> float | None:
    """Return the mean of ``metric`` for one system and bucket, or None."""
    return number(section(report, "systems", system, bucket).get(metric))


def interval_of(value: Any) -> tuple[float, float] | None:
    """Return the finite ``ci95`` of a measured metric as (low, high), or None."""
    bounds = value.get("ci95") if isinstance(value, Mapping) else None
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        return None
    low, high = number(bounds[0]), number(bounds[1])
    return None if low is None or high is None else (low, high)


def find_at_k(values: Mapping[str, Any], metric: str, k: int) -> tuple[str, Any]:
    """Return (``metric@k``, its value), or where k was not measured the first ``metric@...``; value None if none."""
    wanted = f"{metric}@{k}"
    if wanted in values:
        return wanted, values[wanted]
    return next(((name, value) for name, value in values.items() if name.startswith(f"{metric}@")), (wanted, None))


def comparison(report: Mapping[str, Any], against: str, group: str, metric: str) -> Mapping[str, Any]:
    """Return the paired comparison of the release with another system on the same queries, or an empty mapping.

    Found as an entry ``{"system": "two_tower", "against", "group", "metric", "difference", "ci95", ...}`` of
    ``report["comparisons"]``, or below ``report["systems"][against]["paired"]`` as ``{metric: {...}}`` for the group
    ``"overall"`` and ``{group: {metric: {...}}}`` for others. Differences are the release minus the other system.
    """
    wanted = {"system": TWO_TOWER, "against": against, "group": group, "metric": metric}
    for entry in report.get("comparisons") or []:
        if isinstance(entry, Mapping) and all(entry.get(key) == value for key, value in wanted.items()):
            return entry
    path = () if group == "overall" else (group,)
    return section(report, "systems", against, "paired", *path, metric)


def headline(report: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures that a list of releases shows: recall, tail recall, coverage and index recall."""
    k = primary_k(report)
    coverage = section(report, "coverage", TWO_TOWER)
    index_name, index_value = find_at_k(section(report, "index"), "recall_vs_exact", k)
    return {
        f"recall@{k}": mean_of(report, TWO_TOWER, "overall", f"recall@{k}"),
        f"tail_recall@{k}": mean_of(report, TWO_TOWER, "tail", f"recall@{k}"),
        f"catalogue_coverage@{k}": number(coverage.get(f"catalogue_coverage@{k}")),
        f"index_{index_name}": number(index_value),
    }
