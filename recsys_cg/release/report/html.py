"""The report as one self-contained HTML page, and the history page over all releases.

Pages hold their style and drawings inline and no script; they load nothing from anywhere. Every text is escaped by
the template engine, and titles are isolated so that right-to-left ones do not turn their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.release.reading import primary_k, section
from recsys_cg.release.report import words
from recsys_cg.release.report.audits import read_duplicates, read_mined
from recsys_cg.release.report.drift import read_drift, read_freshness
from recsys_cg.release.report.examples import read_examples
from recsys_cg.release.report.health import facts_of, read_index, read_training
from recsys_cg.release.report.history import history_charts, history_grid
from recsys_cg.release.report.limits import list_limits
from recsys_cg.release.report.lists import coverage_grid, exposure_chart, mix_of_buckets
from recsys_cg.release.report.results import (
    cold_facts,
    debiased_table,
    metric_grid,
    paired_tables,
    recall_by,
    recall_table,
)
from recsys_cg.release.report.verdict import read_verdict

__all__ = ["render_history", "render_html"]

_TITLES = {
    "gates": "Gates",
    "recall": "Recall",
    "cold": "Cold items",
    "coverage": "Coverage and concentration",
    "debiasing": "Exposure is not interest",
    "index": "Index",
    "geometry": "Geometry",
    "mined": "Mined negatives",
    "duplicates": "Near-duplicates",
    "drift": "Drift and freshness",
    "examples": "Example users",
    "history": "Earlier releases",
    "limits": "What logged data cannot show",
    "definitions": "Protocol and definitions",
}


def render_html(
    report: Mapping[str, Any],
    *,
    training: Mapping[str, Any] | None = None,
    examples: Sequence[Mapping[str, Any]] | None = None,
    history: Sequence[Mapping[str, Any]] | None = None,
    mined: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """Return the page of one release. Parts that are not given, or not in the report, are left out.

    Args:
        report: report.json.
        training: training.json of the encoder: ``epochs`` with losses, validation recall and geometry, and the
            declared ``negatives``.
        examples: users to show; see `recsys_cg.release.report.examples.read_examples`.
        history: report.json of earlier releases, oldest first.
        mined: rows of the encoder's ``mined_negatives.csv``, to stand beside ``training["mined_negatives"]``.

    Raises:
        EnvironmentMismatchError: Jinja2 is not installed.
    """
    context = _sections(report, training, examples, history) | {"mined": read_mined(training, mined)}
    shown = [(name, title) for name, title in _TITLES.items() if _is_shown(name, context)]
    return _render(
        "report.html.j2",
        contents=shown,
        release=str(report.get("release", "unnamed")),
        created=words.moment(report["created"]) if report.get("created") else "",
        provenance=[
            (label, str(report[key]))
            for key, label in (("encoder", "Encoder"), ("dataset", "Dataset"))
            if key in report
        ],
        **context,
    )


def render_history(reports: Sequence[Mapping[str, Any]], *, links: Mapping[str, str] | None = None) -> str:
    """Return the page over all releases.

    Args:
        reports: report.json of each release, oldest first.
        links: release name -> relative address of its own page.

    Raises:
        EnvironmentMismatchError: Jinja2 is not installed.
    """
    return _render(
        "history.html.j2",
        charts=history_charts(reports),
        grid=history_grid(reports),
        links=dict(links or {}),
        count=len(reports),
    )


def _sections(
    report: Mapping[str, Any],
    training: Mapping[str, Any] | None,
    examples: Sequence[Mapping[str, Any]] | None,
    history: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    protocol = section(report, "protocol")
    systems = section(report, "systems")
    propensity = section(protocol, "propensity")
    apart = {"definitions", "propensity"}
    skipped = [(words.system_label(name), section(systems, name).get("skipped")) for name in systems]
    return {
        "k": primary_k(report),
        "verdict": read_verdict(report),
        "recall": recall_table(report),
        "has_previous": bool(section(systems, "previous_release", "overall")),
        "skipped": [(name, str(why).rstrip(".")) for name, why in skipped if why],
        "paired": paired_tables(report),
        "breakdowns": recall_by(report),
        "metrics": metric_grid(report),
        "cold": cold_facts(report),
        "coverage": coverage_grid(report),
        "mix": mix_of_buckets(report),
        "exposure": exposure_chart(report),
        "debiased": debiased_table(report),
        "propensity": tuple(words.flatten({key: propensity[key] for key in propensity if key != "warning"})),
        "propensity_warning": str(propensity.get("warning", "")),
        "index": read_index(report),
        "geometry": facts_of(report, "geometry") + facts_of(report, "vectors", "Item vectors: "),
        "training": read_training(training),
        "duplicates": read_duplicates(report),
        "drift": read_drift(report),
        "freshness": read_freshness(report),
        "examples": read_examples(examples),
        "history": history_grid(history) if history else None,
        "limits": list_limits(report),
        "protocol": tuple(words.flatten({key: value for key, value in protocol.items() if key not in apart})),
        "definitions": [(name, str(text)) for name, text in section(protocol, "definitions").items()],
    }


def _is_shown(name: str, context: Mapping[str, Any]) -> bool:
    parts = {
        "gates": context["verdict"].gates,
        "coverage": context["coverage"] or context["mix"] or context["exposure"],
        "debiasing": context["debiased"] or context["propensity"],
        "geometry": context["geometry"] or context["training"],
        "drift": context["drift"] or context["freshness"],
        "definitions": context["protocol"] or context["definitions"],
    }
    return bool(parts[name] if name in parts else context[name])


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EnvironmentMismatchError("HTML reports need Jinja2: pip install 'recsys-cg[report]'") from error
    return Environment(
        loader=PackageLoader("recsys_cg.release.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(template: str, **context: Any) -> str:
    page: str = _environment().get_template(template).render(absent=words.ABSENT, **context)
    return page
