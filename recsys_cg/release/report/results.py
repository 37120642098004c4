"""Recall by bucket, paired comparisons and the other metrics, as rows that a table can show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsys_cg.release.reading import TWO_TOWER, comparison, interval_of, number, primary_k, section
from recsys_cg.release.report import words
from recsys_cg.release.report.charts import Axis, nice_axis
from recsys_cg.schema import BUCKETS

__all__ = [
    "Grid",
    "MeasuredGroup",
    "MeasuredRow",
    "MeasuredTable",
    "cold_facts",
    "debiased_table",
    "metric_grid",
    "ordered_systems",
    "paired_tables",
    "recall_by",
    "recall_table",
    "role_of",
]

_FIRST = (TWO_TOWER, "previous_release")


@dataclass(frozen=True)
class MeasuredRow:
    """One measured mean with its interval, as text and as places on the table's axis.

    ``at``, ``low``, ``high`` and ``reference`` (another figure to compare with) are percent of the axis; None: absent.
    """

    label: str
    role: str
    value: str = words.ABSENT
    interval: str = ""
    note: str = ""
    at: float | None = None
    low: float | None = None
    high: float | None = None
    reference: float | None = None


@dataclass(frozen=True)
class MeasuredGroup:
    """Rows under one heading."""

    label: str
    note: str
    rows: tuple[MeasuredRow, ...]


@dataclass(frozen=True)
class MeasuredTable:
    """Groups of rows on one axis; ``zero`` is where 0 lies when the axis holds differences."""

    metric: str
    axis: Axis
    groups: tuple[MeasuredGroup, ...]
    zero: float | None = None


@dataclass(frozen=True)
class Grid:
    """A plain table of figures."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


def ordered_systems(report: Mapping[str, Any]) -> list[str]:
    """Return the measured systems: the release, the previous one, then the others as they stand."""
    names = [name for name, entry in section(report, "systems").items() if section(entry, "overall")]
    return [name for name in _FIRST if name in names] + [name for name in names if name not in _FIRST]


def role_of(system: str) -> str:
    """Return how a system is drawn: ``"ours"``, ``"previous"`` or ``"other"``."""
    return {TWO_TOWER: "ours", "previous_release": "previous"}.get(system, "other")


def recall_table(report: Mapping[str, Any]) -> MeasuredTable | None:
    """Return recall at the primary k by bucket and system, or None where nothing was measured."""
    metric = f"recall@{primary_k(report)}"
    systems = ordered_systems(report)
    groups = []
    for bucket in ("overall", *BUCKETS):
        entries = {name: section(report, "systems", name, bucket) for name in systems}
        if any(entries.values()):
            queries = number(entries.get(TWO_TOWER, {}).get("queries"))
            groups.append((bucket, queries, entries))
    if not groups:
        return None
    axis = _axis_of(entry.get(metric) for _, _, entries in groups for entry in entries.values())
    shown = [
        MeasuredGroup(
            label=words.bucket_label(bucket),
            note="" if queries is None else f"{words.count(queries)} {'query' if queries == 1 else 'queries'}",
            rows=() if queries == 0 else tuple(_row(name, entry, metric, axis) for name, entry in entries.items()),
        )
        for bucket, queries, entries in groups
    ]
    return MeasuredTable(metric, axis, tuple(shown))


def recall_by(report: Mapping[str, Any]) -> tuple[tuple[str, MeasuredTable], ...]:
    """Return (what by, table) of the release's recall for every breakdown ``by_<name>`` that the report holds."""
    ours = section(report, "systems", TWO_TOWER)
    found = ((name, _breakdown(report, section(ours, name))) for name in ours if name.startswith("by_"))
    return tuple((name[3:].replace("_", " "), table) for name, table in found if table is not None)


def _breakdown(report: Mapping[str, Any], bins: Mapping[str, Any]) -> MeasuredTable | None:
    metric = f"recall@{primary_k(report)}"
    measured = {label: entry for label, entry in bins.items() if number(section(bins, label).get(metric)) is not None}
    if not measured:
        return None
    axis = _axis_of(entry.get(metric) for entry in measured.values())
    rows = tuple(
        _measured(label, "alone", entry[metric], axis, note=words.count(number(entry.get("queries"))))
        for label, entry in measured.items()
    )
    return MeasuredTable(metric, axis, (MeasuredGroup("", "", rows),))


def debiased_table(report: Mapping[str, Any]) -> MeasuredTable | None:
    """Return raw beside propensity-weighted recall of each system, or None where no weighted recall was measured."""
    raw, weighted = f"recall@{primary_k(report)}", f"recall_ips@{primary_k(report)}"
    entries = {name: section(report, "systems", name, "overall") for name in ordered_systems(report)}
    entries = {name: entry for name, entry in entries.items() if number(entry.get(weighted)) is not None}
    if not entries:
        return None
    axis = _axis_of(entry.get(metric) for entry in entries.values() for metric in (raw, weighted))
    rows = []
    for name, entry in entries.items():
        row = _measured(words.system_label(name), role_of(name), entry.get(weighted), axis)
        mean = number(entry.get(raw))
        rows.append(replace(row, note=words.fraction(mean), reference=None if mean is None else axis.place(mean)))
    return MeasuredTable(weighted, axis, (MeasuredGroup("", "", tuple(rows)),))


def cold_facts(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what is known of items without a training event; empty where the report does not speak of them."""
    k = primary_k(report)
    entry, facts = section(report, "systems", TWO_TOWER, "cold"), []
    if entry:
        facts.append(("Queries with a cold target", words.count(number(entry.get("queries")))))
    for name, label in ((f"recall@{k}", f"Recall@{k}"), (f"hit_rate@{k}", f"Hit rate@{k}")):
        if number(entry.get(name)) is not None:
            bounds = interval_of(entry[name])
            shown = f" ({words.interval(bounds)})" if bounds else ""
            facts.append((label, words.fraction(number(entry[name])) + shown))
    share = number(section(report, "coverage", TWO_TOWER).get(f"cold_share@{k}"))
    if share is not None:
        facts.append((f"Share of the first {k}", words.fraction(share)))
    return (*facts, *words.flatten(section(report, "cold")))


def _axis_of(values: Iterable[Any]) -> Axis:
    highest = 0.0
    for value in values:
        bounds = interval_of(value) or (0.0, number(value) or 0.0)
        highest = max(highest, bounds[1], number(value) or 0.0)
    return nice_axis(0.0, highest or 1.0)


def _row(system: str, entry: Mapping[str, Any], metric: str, axis: Axis) -> MeasuredRow:
    return _measured(words.system_label(system), role_of(system), entry.get(metric), axis)


def _measured(label: str, role: str, value: Any, axis: Axis, *, note: str = "") -> MeasuredRow:
    mean, bounds = number(value), interval_of(value)
    if mean is None:
        return MeasuredRow(label, role, note=note or "not measured")
    places = (axis.place(bounds[0]), axis.place(bounds[1])) if bounds else (None, None)
    return MeasuredRow(
        label, role, words.fraction(mean), words.interval(bounds), note, axis.place(mean), places[0], places[1]
    )


def paired_tables(report: Mapping[str, Any]) -> tuple[MeasuredTable, ...]:
    """Return the paired differences of the release from every other system, on one axis.

    The first table holds all queries and the tail, the second the other buckets; a table without figures is left out.
    """
    metric = f"recall@{primary_k(report)}"
    found: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for bucket in ("overall", *BUCKETS):
        rows = [(name, comparison(report, name, bucket, metric)) for name in ordered_systems(report)]
        known = [(name, entry) for name, entry in rows if number(entry.get("difference")) is not None]
        if known:
            found[bucket] = known
    bounds = [interval_of(entry) or (0.0, 0.0) for known in found.values() for _, entry in known]
    if not bounds:
        return ()
    axis = nice_axis(min(0.0, *(low for low, _ in bounds)), max(0.0, *(high for _, high in bounds)), sign=True)
    groups = {
        bucket: MeasuredGroup(words.bucket_label(bucket), "", tuple(_difference(*pair, axis) for pair in known))
        for bucket, known in found.items()
    }
    first = tuple(group for bucket, group in groups.items() if bucket in ("overall", "tail"))
    rest = tuple(group for bucket, group in groups.items() if bucket not in ("overall", "tail"))
    return tuple(MeasuredTable(metric, axis, part, axis.place(0.0)) for part in (first, rest) if part)


def _difference(system: str, entry: Mapping[str, Any], axis: Axis) -> MeasuredRow:
    difference, bounds = number(entry["difference"]) or 0.0, interval_of(entry)
    p = number(entry.get("p_value"))
    clear = bounds is not None and (bounds[0] > 0 or bounds[1] < 0)
    role = "clear" if clear else "unclear"
    places = (axis.place(bounds[0]), axis.place(bounds[1])) if bounds else (None, None)
    return MeasuredRow(
        words.system_label(system),
        role,
        words.signed(difference),
        words.interval(bounds, sign=True),
        "" if p is None else (f"{p:.3f}" if p >= 0.001 else "< 0.001"),
        axis.place(difference),
        places[0],
        places[1],
    )


def metric_grid(report: Mapping[str, Any], bucket: str = "overall") -> Grid | None:
    """Return every metric of ``bucket`` by system, or None where there is none."""
    systems = ordered_systems(report)
    columns = _metric_names(section(report, "systems", name, bucket) for name in systems)
    if not columns:
        return None
    rows = tuple(
        (
            words.system_label(name),
            role_of(name),
            tuple(words.fraction(number(section(report, "systems", name, bucket).get(c))) for c in columns),
        )
        for name in systems
    )
    return Grid(tuple(columns), rows)


def _metric_names(entries: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    seen: dict[str, None] = {}
    for entry in entries:
        seen.update(dict.fromkeys(name for name in entry if "@" in name))
    return list(seen)
