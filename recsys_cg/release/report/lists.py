"""What the lists are made of: coverage, concentration, popularity and exposure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import TWO_TOWER, number, primary_k, section
from recsys_cg.release.report import words
from recsys_cg.release.report.charts import Curve, nice_axis, trace
from recsys_cg.release.report.results import Grid, ordered_systems, role_of
from recsys_cg.schema import BUCKETS

__all__ = ["ExposureChart", "Mix", "MixRow", "coverage_grid", "exposure_chart", "mix_of_buckets"]

_COLUMNS = {
    "catalogue_coverage@{k}": ("Coverage", words.fraction),
    "never_retrieved": ("Never retrieved", words.count),
    "gini@{k}": ("Gini", words.fraction),
    "entropy@{k}": ("Entropy", words.fraction),
    "between_user_overlap@{k}": ("Overlap of users", words.fraction),
    "novelty@{k}": ("Novelty", words.fraction),
}
_SHOWN_SHARES = (0.01, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class MixRow:
    """The buckets of one system's lists: (bucket, start percent, width percent, share as text)."""

    label: str
    role: str
    parts: tuple[tuple[str, float, float, str], ...]


@dataclass(frozen=True)
class Mix:
    """Bucket shares of several systems."""

    buckets: tuple[str, ...]
    rows: tuple[MixRow, ...]


@dataclass(frozen=True)
class ExposureChart:
    """Curves of cumulated exposure and a table of their values at a few shares of the catalogue."""

    k: int
    curves: tuple[Curve, ...]
    grid: Grid
    summary: str


def coverage_grid(report: Mapping[str, Any]) -> Grid | None:
    """Return coverage and concentration at the primary k by system, or None."""
    k = primary_k(report)
    keys = {pattern.format(k=k): shown for pattern, shown in _COLUMNS.items()}
    entries = {name: section(report, "coverage", name) for name in ordered_systems(report)}
    present = [key for key in keys if any(number(entry.get(key)) is not None for entry in entries.values())]
    if not present:
        return None
    rows = tuple(
        (words.system_label(name), role_of(name), tuple(keys[key][1](number(entry.get(key))) for key in present))
        for name, entry in entries.items()
        if any(key in entry for key in present)
    )
    return Grid(tuple(keys[key][0] for key in present), rows)


def mix_of_buckets(report: Mapping[str, Any]) -> Mix | None:
    """Return the share of head, torso, tail and cold items in the lists of each system, or None."""
    k = primary_k(report)
    rows = []
    for name in ordered_systems(report):
        entry = section(report, "coverage", name)
        shares = [number(entry.get(f"{bucket}_share@{k}")) for bucket in BUCKETS]
        known = [share for share in shares if share is not None]
        if len(known) < len(BUCKETS):
            continue
        parts, start = [], 0.0
        for bucket, share in zip(BUCKETS, known, strict=True):
            parts.append((bucket, round(100 * start, 2), round(100 * share, 2), words.fraction(share)))
            start += share
        rows.append(MixRow(words.system_label(name), role_of(name), tuple(parts)))
    return Mix(tuple(words.bucket_label(bucket) for bucket in BUCKETS), tuple(rows)) if rows else None


def exposure_chart(report: Mapping[str, Any]) -> ExposureChart | None:
    """Return which share of all places the most shown items take, by system, or None."""
    unit = nice_axis(0.0, 1.0)
    curves, rows, summary, k = [], [], "", primary_k(report)
    for name in reversed(ordered_systems(report)):  # the release is drawn last, on top
        curve = section(report, "coverage", name, "exposure_curve") or section(
            report, "systems", name, "exposure_curve"
        )
        xs, ys = curve.get("items"), curve.get("exposure")
        if not isinstance(xs, list) or not isinstance(ys, list) or len(xs) != len(ys) or len(xs) < 2:
            continue
        if any(number(value) is None for value in (*xs, *ys)):
            continue
        k = curve["k"] if isinstance(curve.get("k"), int) else k
        curves.append(Curve(words.system_label(name), trace(xs, ys, unit, unit), role_of(name)))
        values = [_interpolate(xs, ys, share) for share in _SHOWN_SHARES]
        rows.append((words.system_label(name), role_of(name), tuple(words.fraction(value) for value in values)))
        if name == TWO_TOWER:
            summary = f"The most shown tenth of the candidates takes {values[1]:.0%} of all places."
    if not curves:
        return None
    grid = Grid(tuple(f"top {share:.0%}" for share in _SHOWN_SHARES), tuple(reversed(rows)))
    return ExposureChart(k, tuple(curves), grid, summary)


def _interpolate(xs: list[float], ys: list[float], at: float) -> float:
    for place in range(1, len(xs)):
        if at <= xs[place]:
            width = xs[place] - xs[place - 1]
            part = (at - xs[place - 1]) / width if width > 0 else 1.0
            return ys[place - 1] + part * (ys[place] - ys[place - 1])
    return ys[-1]
