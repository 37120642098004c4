"""All releases side by side: a table of headline figures, and how each figure went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import TWO_TOWER, headline, interval_of, primary_k, section
from recsys_cg.release.report import words
from recsys_cg.release.report.charts import curve_points, nice_axis
from recsys_cg.release.report.results import Grid
from recsys_cg.release.report.verdict import read_verdict

__all__ = ["HistoryChart", "HistoryPoint", "history_charts", "history_grid"]

_LABELS = {
    "recall": "Recall",
    "tail_recall": "Tail recall",
    "catalogue_coverage": "Coverage",
    "index_recall_vs_exact": "Index recall",
}


@dataclass(frozen=True)
class HistoryPoint:
    """One release in a chart, places in percent of the plot from its top left corner."""

    name: str
    x: float
    y: float
    low: float | None
    high: float | None
    value: str


@dataclass(frozen=True)
class HistoryChart:
    """One headline figure over the releases, oldest first."""

    label: str
    points: tuple[HistoryPoint, ...]
    line: str
    ticks: tuple[tuple[float, str], ...]
    last: str
    summary: str


def history_grid(reports: Sequence[Mapping[str, Any]] | None) -> Grid:
    """Return the headline figures of each release, newest first."""
    rows, columns = [], ["Created", "Verdict", *_LABELS.values()]
    for report in reversed(reports or ()):
        figures = {_metric(name): value for name, value in headline(report).items()}
        cells = [words.day(report["created"]) if report.get("created") else words.ABSENT, read_verdict(report).state]
        cells += [words.fraction(figures.get(name)) for name in _LABELS]
        rows.append((str(report.get("release", "")), "other", tuple(cells)))
    return Grid(tuple(columns), tuple(rows))


def history_charts(reports: Sequence[Mapping[str, Any]]) -> tuple[HistoryChart, ...]:
    """Return one chart a headline figure that at least two releases have."""
    figures = [{_metric(name): value for name, value in headline(report).items()} for report in reports]
    charts = (_chart(name, label, reports, [row.get(name) for row in figures]) for name, label in _LABELS.items())
    return tuple(chart for chart in charts if chart is not None)


def _metric(name: str) -> str:
    return name.partition("@")[0]


def _chart(
    name: str, label: str, reports: Sequence[Mapping[str, Any]], values: Sequence[float | None]
) -> HistoryChart | None:
    known = curve_points(values)
    if len(known) < 2:
        return None
    intervals = [_interval(name, report) for report in reports]
    reach = [value for _, value in known] + [bound for place, _ in known for bound in intervals[place - 1] or ()]
    axis = nice_axis(min(reach), max(reach), count=3)
    step = 100.0 / max(len(values) - 1, 1)
    points = []
    for place, value in known:
        bounds = intervals[place - 1]
        low, high = (round(100 - axis.place(bound), 2) for bound in bounds) if bounds else (None, None)
        where = round((place - 1) * step, 2), round(100 - axis.place(value), 2)
        points.append(
            HistoryPoint(str(reports[place - 1].get("release", "")), *where, low, high, words.fraction(value))
        )
    summary = f"{label} over {len(known)} releases: from {points[0].value} to {points[-1].value}"
    line = " ".join(f"{point.x:g},{point.y:g}" for point in points)
    ticks = tuple((tick.at, tick.label) for tick in axis.ticks)
    return HistoryChart(label, tuple(points), line, ticks, points[-1].value, summary)


def _interval(name: str, report: Mapping[str, Any]) -> tuple[float, float] | None:
    bucket = {"recall": "overall", "tail_recall": "tail"}.get(name)
    if bucket is None:
        return None
    return interval_of(section(report, "systems", TWO_TOWER, bucket).get(f"recall@{primary_k(report)}"))
