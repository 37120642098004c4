"""What the top of the page says: published or refused, why, and the four figures that matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import (
    TWO_TOWER,
    comparison,
    find_at_k,
    interval_of,
    mean_of,
    number,
    primary_k,
    section,
)
from recsys_cg.release.report import words

__all__ = ["Figure", "GateRow", "Verdict", "read_verdict"]

PREVIOUS = "previous_release"
_REASONS = 2
"""Reasons of failed gates that the head repeats."""


@dataclass(frozen=True)
class Figure:
    """A headline figure: what it is, its value, and a line of context below."""

    label: str
    value: str
    context: str


@dataclass(frozen=True)
class GateRow:
    """One gate as a row of text."""

    label: str
    passed: bool
    value: str
    threshold: str
    why: str


@dataclass(frozen=True)
class Verdict:
    """The head of the page.

    Attributes:
        state: ``"published"``, ``"forced"``, ``"refused"`` or ``"unjudged"``.
        title: the verdict in a few words.
        refusals: why it was refused, if it was: the reasons of the first failed gates.
        summary: a few sentences: what was found.
        reason: why it was published although a gate failed, or empty.
        gates: failed ones first.
        figures: headline figures that the report holds.
    """

    state: str
    title: str
    refusals: tuple[str, ...]
    summary: str
    reason: str
    gates: tuple[GateRow, ...]
    figures: tuple[Figure, ...]


def read_verdict(report: Mapping[str, Any]) -> Verdict:
    """Return the head of the page for ``report``."""
    gates = [gate for gate in report.get("gates") or [] if isinstance(gate, Mapping)]
    rows = sorted((_gate_row(gate) for gate in gates), key=lambda row: row.passed)
    failed = [row for row in rows if not row.passed]
    state, title = _state(report, rows, failed)
    return Verdict(
        state=state,
        title=title,
        refusals=tuple(row.why for row in failed[:_REASONS] if state == "refused"),
        summary=_summarise(report),
        reason=str(section(report, "forced").get("reason", "")),
        gates=tuple(rows),
        figures=tuple(_figures(report)),
    )


def _gate_row(gate: Mapping[str, Any]) -> GateRow:
    return GateRow(
        label=words.gate_label(str(gate.get("name", ""))),
        passed=gate.get("passed") is True,
        value=words.quantity(gate.get("value")),
        threshold=words.quantity(gate.get("threshold")),
        why=words.typeset(str(gate.get("why", ""))),
    )


def _state(report: Mapping[str, Any], rows: list[GateRow], failed: list[GateRow]) -> tuple[str, str]:
    if not rows:
        return "unjudged", "Measured, not judged"
    of = f"{len(failed)} of {len(rows)} gates failed"
    if report.get("published") is not True:
        return ("refused", f"Refused: {of}") if failed else ("unjudged", f"Passed all {len(rows)} gates, not published")
    if failed:
        return "forced", f"Published although {of}"
    return "published", f"Published: all {len(rows)} gates passed"


def _summarise(report: Mapping[str, Any]) -> str:
    k = primary_k(report)
    metric = f"recall@{k}"
    recall = mean_of(report, TWO_TOWER, "overall", metric)
    if recall is None:
        return "The report holds no recall for this release."
    protocol = section(report, "protocol")
    candidates = number(protocol.get("candidates"))
    catalogue = f" of {words.count(candidates)} candidates" if candidates is not None else ""
    text = f"Of what users chose next, {recall:.1%} was among the first {k}{catalogue}."
    rivals = {
        name: mean_of(report, name, "overall", metric)
        for name in section(report, "systems")
        if not name.startswith(TWO_TOWER) and name != PREVIOUS
    }
    known = {name: value for name, value in rivals.items() if value is not None}
    if known:
        best = max(known, key=lambda name: known[name])
        bounds = interval_of(comparison(report, best, "overall", metric))
        alike = ", a difference within chance" if bounds and bounds[0] <= 0 <= bounds[1] else ""
        text += f" The best baseline, {words.system_label(best)}, reached {known[best]:.1%}{alike}."
    return f"{text} {_summarise_tail(report, metric)}".rstrip()


def _summarise_tail(report: Mapping[str, Any], metric: str) -> str:
    """Say where a baseline is clearly ahead in the tail: a good average must not hide it."""
    ours = mean_of(report, TWO_TOWER, "tail", metric)
    ahead = {}
    for name in section(report, "systems"):
        theirs, bounds = (
            mean_of(report, name, "tail", metric),
            interval_of(comparison(report, name, "tail", metric)),
        )
        if theirs is not None and bounds is not None and bounds[1] < 0:
            ahead[name] = theirs
    if ours is None or not ahead:
        return ""
    best = max(ahead, key=lambda name: ahead[name])
    label = "the previous release" if best == PREVIOUS else words.system_label(best)
    return f"In the tail {label} is ahead: {ahead[best]:.1%} against {ours:.1%}."


def _figures(report: Mapping[str, Any]) -> list[Figure]:
    k = primary_k(report)
    found = []
    for bucket, label in (("overall", f"Recall@{k}"), ("tail", f"Tail recall@{k}")):
        value = mean_of(report, TWO_TOWER, bucket, f"recall@{k}")
        if value is not None:
            found.append(Figure(label, words.fraction(value), _context(report, bucket, f"recall@{k}")))
    coverage = number(section(report, "coverage", TWO_TOWER).get(f"catalogue_coverage@{k}"))
    if coverage is not None:
        never = number(section(report, "coverage", TWO_TOWER).get("never_retrieved"))
        context = (
            "of the candidates, in at least one list" if never is None else f"{words.count(never)} never retrieved"
        )
        found.append(Figure("Catalogue coverage", words.fraction(coverage), context))
    name, value = find_at_k(section(report, "index"), "recall_vs_exact", k)
    index_recall = number(value)
    if index_recall is not None:
        kind = str(section(report, "index").get("kind", "index"))
        found.append(
            Figure("Index recall", words.fraction(index_recall), f"{kind} against exact search, k = {name[16:]}")
        )
    return found


def _context(report: Mapping[str, Any], bucket: str, metric: str) -> str:
    entry = comparison(report, PREVIOUS, bucket, metric)
    difference = number(entry.get("difference"))
    if difference is not None:
        return f"{words.signed(difference)} on the previous release"
    bounds = interval_of(section(report, "systems", TWO_TOWER, bucket).get(metric))
    return f"95% interval {words.interval(bounds)}" if bounds else ""
