"""Index, geometry, training, drift and freshness: whether the machinery is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import interval_of, number, section
from recsys_cg.release.report import words
from recsys_cg.release.report.charts import Axis, curve_points, nice_axis

__all__ = ["CostPoint", "IndexView", "TrainingChart", "TrainingView", "facts_of", "read_index", "read_training"]

_SERIES = (
    ("validation_recall", "Validation recall"),
    ("loss", "Training loss"),
    ("geometry.effective_rank", "Effective rank"),
    ("geometry.mean_pairwise_similarity", "Mean similarity"),
    ("geometry.alignment", "Alignment"),
    ("geometry.uniformity", "Uniformity"),
)
_INDEX_APART = frozenset(
    {"kind", "is_exact", "k", "queries", "ci95", "by_bucket", "parameters", "latency_ms", "bytes", "operating_points",
     "exact_latency_ms", "why", "seconds"}
)  # fmt: skip


@dataclass(frozen=True)
class CostPoint:
    """One measured setting of the index: its cost and recall, as text and as places in a 100 x 100 box."""

    x: float
    y: float
    setting: str
    cost: str
    recall: str
    is_chosen: bool


@dataclass(frozen=True)
class IndexView:
    """The index section."""

    kind: str
    why: str
    facts: tuple[tuple[str, str], ...]
    buckets: tuple[tuple[str, str], ...]
    points: tuple[CostPoint, ...]
    x_axis: Axis | None
    y_axis: Axis | None


@dataclass(frozen=True)
class TrainingChart:
    """One figure over the epochs: a small plot with its range and last value."""

    label: str
    points: str
    low: str
    high: str
    last: str
    summary: str


@dataclass(frozen=True)
class TrainingView:
    """The training section: charts over epochs, the declared negatives, and the rest as facts."""

    epochs: int
    charts: tuple[TrainingChart, ...]
    best_at: float | None
    best_epoch: int | None
    negatives: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def facts_of(report: Mapping[str, Any], part: str, prefix: str = "") -> tuple[tuple[str, str], ...]:
    """Return all figures of one part of the report as (label, text); labels start with ``prefix``."""
    return tuple(words.flatten(section(report, part), prefix))


def read_index(report: Mapping[str, Any]) -> IndexView | None:
    """Return the index section, or None where the report has none."""
    index = section(report, "index")
    if not index:
        return None
    facts = _index_facts(index)
    buckets = []
    for name, value in section(index, "by_bucket").items():
        if number(value) is not None:
            bounds = interval_of(value)
            text = words.fraction(number(value)) + (f" ({words.interval(bounds)})" if bounds else "")
            buckets.append((words.bucket_label(name), text))
    points, x_axis, y_axis = _cost_points(index.get("operating_points"))
    return IndexView(
        kind=str(index.get("kind", "")),
        why=str(index.get("why", "")),
        facts=tuple(facts),
        buckets=tuple(buckets),
        points=points,
        x_axis=x_axis,
        y_axis=y_axis,
    )


def _index_facts(index: Mapping[str, Any]) -> list[tuple[str, str]]:
    apart = {key: value for key, value in index.items() if key not in _INDEX_APART}
    facts = []
    for key in [key for key in apart if key.startswith("recall_vs_exact@")]:
        value = apart.pop(key)
        bounds = interval_of(value) or interval_of(index)
        shown = f" ({words.interval(bounds)})" if bounds else ""
        facts.append((f"Recall@{key.partition('@')[2]} vs exact", words.fraction(number(value)) + shown))
    facts += words.flatten(apart)
    for part, label in (("latency_ms", "Latency"), ("exact_latency_ms", "Latency of exact search")):
        latency = section(index, part)
        facts += [(f"{label}, {name}", words.milliseconds(latency[name])) for name in ("p50", "p99") if name in latency]
    if number(index.get("bytes")) is not None:
        facts.append(("Size", words.size(number(index["bytes"]))))
    if number(index.get("seconds")) is not None:
        facts.append(("Built and tuned in", f"{index['seconds']:,.1f} s"))
    return facts + list(words.flatten(section(index, "parameters"), "Setting: "))


def _cost_points(entries: Any) -> tuple[tuple[CostPoint, ...], Axis | None, Axis | None]:
    measured = []
    for entry in entries if isinstance(entries, list | tuple) else ():
        if not isinstance(entry, Mapping):
            continue
        cost, recall = number(entry.get("microseconds")), number(entry.get("recall"))
        if cost is not None and recall is not None:
            measured.append((cost, recall, entry.get("chosen") is True, _setting(entry)))
    if len(measured) < 2:
        return (), None, None
    x_axis = nice_axis(0.0, max(cost for cost, *_ in measured))
    y_axis = nice_axis(min(recall for _, recall, *_ in measured), 1.0)
    points = tuple(
        CostPoint(
            x_axis.place(cost),
            round(100 - y_axis.place(recall), 2),
            setting,
            words.quantity(round(cost, 1)),
            words.fraction(recall),
            chosen,
        )
        for cost, recall, chosen, setting in sorted(measured)
    )
    return points, x_axis, y_axis


def _setting(entry: Mapping[str, Any]) -> str:
    leaves, searched, reorder = (number(entry.get(name)) for name in ("leaves", "leaves_to_search", "reorder"))
    if leaves is None or searched is None or reorder is None:
        return ""
    return f"{words.count(searched)} of {words.count(leaves)} leaves, {words.count(reorder)} scored again"


def read_training(record: Mapping[str, Any] | None) -> TrainingView | None:
    """Return the training section from an encoder's training record, or None where there is nothing to show."""
    epochs = [epoch for epoch in (record or {}).get("epochs") or [] if isinstance(epoch, Mapping)]
    if record is None or not epochs:
        return None
    charts = [chart for name, label in _SERIES if (chart := _chart(label, _series(epochs, name))) is not None]
    best = _best_epoch(record, epochs)
    negatives = tuple(
        _describe_negatives(source) for source in record.get("negatives") or [] if isinstance(source, Mapping)
    )
    last = {key: value for key, value in epochs[-1].items() if not isinstance(value, Mapping)}
    shown = {
        f"last epoch: {key}": last[key]
        for key in ("temperature", "candidates", "masked", "examples_per_s")
        if key in last
    }
    facts = {
        key: record[key] for key in ("loss", "correction", "parameters", "mask_history", "stopped") if key in record
    }
    return TrainingView(
        epochs=len(epochs),
        charts=tuple(charts),
        best_at=_place_epoch(best, len(epochs)),
        best_epoch=best,
        negatives=negatives,
        facts=tuple(words.flatten({**facts, **shown})),
    )


def _series(epochs: Sequence[Mapping[str, Any]], name: str) -> list[float | None]:
    *path, last = name.split(".")
    return [number(section(epoch, *path).get(last)) for epoch in epochs]


def _chart(label: str, values: Sequence[float | None]) -> TrainingChart | None:
    points = curve_points(values)
    if len(points) < 2:
        return None
    low, high = min(value for _, value in points), max(value for _, value in points)
    spread = high - low or 1.0
    pairs = [
        (_place_epoch(place, len(values)) or 0.0, round(94.0 - 88.0 * (value - low) / spread, 2))
        for place, value in points
    ]
    last = words.quantity(points[-1][1])
    summary = f"{label} over {len(values)} epochs: from {words.quantity(points[0][1])} to {last}"
    return TrainingChart(
        label, " ".join(f"{x:g},{y:g}" for x, y in pairs), words.quantity(low), words.quantity(high), last, summary
    )


def _place_epoch(epoch: int | None, count: int) -> float | None:
    if epoch is None:
        return None
    return round(100.0 * (epoch - 1) / (count - 1), 2) if count > 1 else 50.0


def _best_epoch(record: Mapping[str, Any], epochs: Sequence[Mapping[str, Any]]) -> int | None:
    stated = record.get("best_epoch")
    if isinstance(stated, int) and 1 <= stated <= len(epochs):
        return stated
    measured = curve_points(_series(epochs, "validation_recall"))
    return max(measured, key=lambda point: point[1])[0] if measured else None


def _describe_negatives(source: Mapping[str, Any]) -> str:
    kind = str(source.get("kind", "")).replace("_", "-")
    if kind == "impressions":
        text = f"impressions: up to {words.count(number(source.get('per_query')))} skipped items a query"
        return text if source.get("weight") == 1 else f"{text}, each counted {words.quantity(source['weight'])} times"
    text = f"{kind}: {words.count(number(source.get('count')))} candidates a step"
    if source.get("kind") == "popularity" and number(source.get("alpha")) is not None:
        power = "" if source["alpha"] == 1 else f"^{words.quantity(source['alpha'])}"
        text += f", q\u00a0∝\u00a0count{power}"
    return text
