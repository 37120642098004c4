"""Stage 5: an evaluated release is published, or refused with its reasons; and what is published is read back."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys_cg import artifacts
from recsys_cg.artifacts import write_text_atomically
from recsys_cg.errors import ConfigError, GateRefusedError, StoreError
from recsys_cg.progress import say
from recsys_cg.release.gates import conclude, failed_gates
from recsys_cg.release.store import Store
from recsys_cg.schema import ReleaseFiles, ReportFiles
from recsys_cg.workflow import dataset, evaluate, index, train
from recsys_cg.workflow.project import Project, Stage
from recsys_cg.workflow.reporting import read_extras, summarise, write_report

__all__ = ["PublishedReport", "describe", "list_releases", "publish", "read_report", "roll_back", "write_history"]


def publish(
    project: Project, release: Stage | None = None, evaluation: Stage | None = None, *, force: str | None = None
) -> dict[str, Any]:
    """Make the evaluated release CURRENT when every gate passes.

    Args:
        project: the project at work.
        release: the stage to be published; None finds it by the configuration.
        evaluation: its evaluation, found alike.
        force: publish although a gate refuses; the reason goes into the report and the store's log.

    Raises:
        GateRefusedError: a gate refused; CURRENT is untouched and the report is kept in the store's ``refused/``.
        ConfigError: ``force`` without a reason.
        StoreError: another release became current since the evaluation.
    """
    if force is not None and not force.strip():
        raise ConfigError("--force needs a reason, which is kept with the release")
    if release is None or evaluation is None:
        data = project.require(dataset.key_of(project))
        release = project.require(index.key_of(project, data, project.require(train.key_of(project, data))))
        evaluation = project.require(evaluate.key_of(project, data, release))
    store = Store(project.store_path)
    report = json.loads((evaluation.path / ReportFiles.JSON).read_text(encoding="utf-8"))
    name = str(release.manifest.info["release"])
    failed = failed_gates(report["gates"])
    verdict = conclude(report, report["gates"], force_reason=force)
    if not verdict["published"]:
        reasons = [f"{gate['name']}: {gate['why']}" for gate in failed]
        kept = store.refuse(name, evaluation.path, reasons)
        store.prune_refusals(project.config.store.keep)
        lines = "\n".join(f"  {reason}" for reason in reasons)
        page = str(kept / ReportFiles.HTML)
        raise GateRefusedError(
            f"{name} is refused by {len(failed)} gate(s):\n{lines}\n"
            f"report: {page}\n--force REASON publishes all the same",
            {"release": name, "report": page},
        )
    with tempfile.TemporaryDirectory(prefix="recsys-cg-report-") as scratch:
        final = Path(scratch) / "report"
        shutil.copytree(evaluation.path, final, ignore=shutil.ignore_patterns(artifacts.MANIFEST))
        write_report(final, verdict, read_extras(evaluation.path), store)
        store.publish(release.path, final, expected_current=evaluation.manifest.info["judged_against"])
    store.prune(project.config.store.keep)
    say(f"publish: {name} is CURRENT in {store.path}")
    return describe(project, name)


def describe(project: Project, name: str) -> dict[str, Any]:
    """Return what a person or a scheduler wants to know of a published release."""
    found = read_report(project.store_path, name)
    return {
        "release": name,
        "store": project.store_path,
        "report": str(found.html_path),
        "headlines": found.summary.splitlines(),
        "gates": found.report["gates"],
        "forced": found.report.get("forced"),
    }


@dataclass(frozen=True)
class PublishedReport:
    """A report in the store, in each of its forms."""

    report: dict[str, Any]
    markdown: str
    summary: str
    html_path: Path


def read_report(store_path: str, release: str | None = None) -> PublishedReport:
    """Read the report of ``release``, or of CURRENT.

    Raises:
        StoreError: nothing is published.
        ReleaseNotFoundError: no such release.
    """
    store = Store(store_path)
    name = release or store.current()
    if name is None:
        raise StoreError(f"{store_path}: nothing is published yet")
    directory = store.path_of(name) / ReleaseFiles.REPORT
    report = store.report_of(name)
    markdown = (directory / ReportFiles.MARKDOWN).read_text(encoding="utf-8")
    return PublishedReport(report, markdown, summarise(report), directory / ReportFiles.HTML)


def list_releases(store_path: str) -> list[dict[str, Any]]:
    """Return one row a release, newest first: name, created, current, pinned, figures, fault."""
    return [
        {
            "name": one.name,
            "created": one.created,
            "current": one.is_current,
            "pinned": one.is_pinned,
            "figures": dict(one.headline),
            "fault": one.fault,
        }
        for one in Store(store_path).releases()
    ]


def roll_back(store_path: str, release: str | None = None) -> dict[str, Any]:
    """Point CURRENT at ``release``, or at CURRENT's predecessor, after verifying it."""
    store = Store(store_path)
    previous = store.current()
    return {"release": store.rollback(release), "previous": previous}


def write_history(store_path: str, page: Path) -> int:
    """Write the page over all releases of a store, oldest first; return how many there are."""
    from recsys_cg.release.report import render_history

    store = Store(store_path)
    names = [one.name for one in reversed(store.releases()) if not one.fault]
    links = {name: os.path.relpath(_page_of(store, name), page.absolute().parent) for name in names}
    write_text_atomically(page, render_history([store.report_of(name) for name in names], links=links))
    return len(names)


def _page_of(store: Store, name: str) -> Path:
    return store.path_of(name) / ReleaseFiles.REPORT / ReportFiles.HTML
