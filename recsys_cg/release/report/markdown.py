"""The report as Markdown, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recsys_cg.release.reading import TWO_TOWER, number, section
from recsys_cg.release.report import words
from recsys_cg.release.report.drift import read_drift
from recsys_cg.release.report.lists import coverage_grid
from recsys_cg.release.report.results import MeasuredTable, paired_tables, recall_table
from recsys_cg.release.report.verdict import read_verdict

__all__ = ["render_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$])")


def render_markdown(report: Mapping[str, Any]) -> str:
    """Return verdict, gates, recall by bucket, paired differences and coverage as GitHub-flavoured Markdown.

    Figures only: no title or identifier of a user or item. Text from the report is escaped.
    """
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    verdict = read_verdict(report)
    yield f"## {_escape(verdict.title)}"
    yield ""
    found = " ".join((*verdict.refusals, verdict.summary))
    yield f"Release {_escape(report.get('release', 'unnamed'))}. {_escape(found)}"
    if verdict.reason:
        yield ""
        yield f"Published all the same because: {_escape(verdict.reason)}"
    if verdict.gates:
        yield from _table(
            ("Gate", "Result", "Value", "Limit", "Reason"),
            [(g.label, "passed" if g.passed else "**failed**", g.value, g.threshold, g.why) for g in verdict.gates],
            numeric=(2, 3),
            raw=(1,),
        )
    yield from _measured(recall_table(report), "Popularity of the target", "System")
    for paired in paired_tables(report)[:1]:
        yield from _measured(paired, "Popularity of the target", "Difference of this release")
    coverage = coverage_grid(report)
    if coverage is not None:
        rows = [(label, *cells) for label, _, cells in coverage.rows]
        yield from _table(("Coverage", *coverage.columns), rows, numeric=range(1, len(coverage.columns) + 1))
    drift = read_drift(report)
    if drift is not None:
        yield ""
        yield _escape(drift.summary)
    queries = number(section(report, "systems", TWO_TOWER, "overall").get("queries"))
    yield ""
    measured = f"Over {words.count(queries)} queries, measured" if queries is not None else "Measured"
    yield f"{measured} through the index that serves; intervals are 95%, over users."
    yield "Scores are similarities, not probabilities."


def _measured(table: MeasuredTable | None, group: str, first: str) -> Iterator[str]:
    if table is None:
        return
    rows = []
    for part in table.groups:
        label = f"{part.label} ({part.note})" if part.note else part.label
        rows += [(label, row.label, row.value, row.interval or row.note) for row in part.rows]
        if not part.rows:
            rows.append((label, words.ABSENT, words.ABSENT, "no query"))
    yield from _table((group, first, table.metric, "95% interval"), rows, numeric=(2, 3))


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[int] = (), raw: Sequence[int] = ()
) -> Iterator[str]:
    yield ""
    yield "| " + " | ".join(_escape(cell) for cell in head) + " |"
    yield "|" + "|".join("---:" if place in numeric else "---" for place in range(len(head))) + "|"
    for row in rows:
        cells = (cell if place in raw else _escape(cell) for place, cell in enumerate(row))
        yield "| " + " | ".join(cells) + " |"


def _escape(value: Any) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))
