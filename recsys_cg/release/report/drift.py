"""Drift and freshness as a table: what the probes show now, what they showed of the previous release, and a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import find_at_k, number, primary_k, section
from recsys_cg.release.report import words

__all__ = ["DriftRow", "DriftView", "read_drift", "read_freshness"]

_SHIFTED = 0.01
_KNOWN = frozenset({"against", "probes", "nearest_distance", "query_norm", "mean_pairwise_similarity"})


@dataclass(frozen=True)
class DriftRow:
    """One figure of the probes."""

    label: str
    now: str
    before: str
    test: str


@dataclass(frozen=True)
class DriftView:
    """The drift section: a sentence, the table, and further figures that the report holds."""

    summary: str
    rows: tuple[DriftRow, ...]
    facts: tuple[tuple[str, str], ...]
    has_previous: bool


def read_drift(report: Mapping[str, Any]) -> DriftView | None:
    """Return the drift section, or None where the report has none."""
    drift = section(report, "drift")
    if not drift:
        return None
    k = primary_k(report)
    rows = []
    for metric, label in (("probe_recall", "Recall"), ("probe_index_recall", "Index recall")):
        name, value = find_at_k(drift, metric, k)
        if isinstance(value, Mapping):
            rows.append(_row(f"{label}@{name.partition('@')[2]} of the probes", *_pair(value)))
    tested = (("nearest_distance", "Distance to the nearest item"), ("query_norm", "Norm of the query vectors"))
    for name, label in tested:
        values = section(drift, name)
        if number(values.get("mean")) is not None:
            rows.append(
                _row(label, number(values["mean"]), number(values.get("previous_mean")), _describe_test(values))
            )
    similarity = section(drift, "mean_pairwise_similarity")
    if similarity:
        rows.append(_row("Mean similarity of two probes", *_pair(similarity)))
    shown = _KNOWN | {key for key in drift if key.startswith(("churn@", "probe_index_recall@"))}
    shown |= {key for key in drift if key.startswith("probe_recall@") and "mean" not in section(drift, key)}
    rest = {key: value for key, value in drift.items() if key not in shown}
    has_previous = any(row.before != words.ABSENT for row in rows)
    return DriftView(_summarise(drift, k), tuple(rows), tuple(words.flatten(rest)), has_previous)


def _pair(values: Mapping[str, Any]) -> tuple[float | None, float | None]:
    now = number(values) if "mean" in values else number(values.get("current"))
    return now, number(values.get("previous"))


def _row(label: str, now: float | None, before: float | None, test: str = "") -> DriftRow:
    return DriftRow(label, words.fraction(now), words.fraction(before), test)


def _describe_test(values: Mapping[str, Any]) -> str:
    statistic, p = number(values.get("ks")), number(values.get("p_value"))
    if statistic is None or p is None:
        return ""
    verdict = "moved" if p < _SHIFTED else "no move shown"
    shown = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{verdict}; KS {words.fraction(statistic)}, {shown}"


def _summarise(drift: Mapping[str, Any], k: int) -> str:
    probes = number(drift.get("probes"))
    if probes == 0:
        return "There was no query with a history to freeze as a probe."
    asked = "Asked the frozen probes" if probes is None else f"Asked {words.count(probes)} frozen probes"
    name, value = find_at_k(drift, "churn", k)
    churn = number(value)
    if churn is None:
        return f"{asked}. There is no previous release to compare with."
    against = f" {drift['against']}" if drift.get("against") else ""
    return (
        f"{asked}, this release replaces {churn:.1%} of the first {name.partition('@')[2]} that the previous "
        f"release{against} gave."
    )


_FRESHNESS = {
    "stale_fraction": ("Share of stale items", words.quantity),
    "items_without_vector": ("Catalogue items without a vector", words.quantity),
    "catalogue_age_hours": ("Age of the catalogue", words.duration),
}


def read_freshness(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the figures of freshness as (label, text)."""
    freshness = section(report, "freshness")
    known = [(label, show(freshness[key])) for key, (label, show) in _FRESHNESS.items() if key in freshness]
    return (*known, *words.flatten({key: value for key, value in freshness.items() if key not in _FRESHNESS}))
