"""Stage 4: a release is measured through its own index, judged by the gates, and reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from recsys_cg import artifacts
from recsys_cg.progress import say
from recsys_cg.release.store import Store
from recsys_cg.workflow import dataset, index, train
from recsys_cg.workflow.project import Project, Stage, StageKey

__all__ = ["build", "key_of", "predecessor_of"]

_PER_QUERY = "per_query.parquet"


def predecessor_of(store: Store, name: str) -> str | None:
    """Return the release that ``name`` replaces: CURRENT, or, where ``name`` is CURRENT itself, its predecessor."""
    current = store.current()
    return store.predecessor() if current == name else current


def key_of(project: Project, data: Stage, release: Stage) -> StageKey:
    """Return what the report depends on: release, dataset, protocol, gates, and the release it is judged against."""
    name = str(
        release.manifest.info["release"]
    )  # a release built again bit for bit has another name, and its report too
    inputs = {"dataset": data.manifest.digest, "release": release.manifest.digest, "name": name}
    store = Store(project.store_path)
    previous = predecessor_of(store, name)
    if previous is not None:
        inputs["previous"] = artifacts.read_manifest(store.path_of(previous), kind="release").digest
    return StageKey("evaluation", inputs, project.config.section("evaluation", "gates"), project.seed)


def build(project: Project, data: Stage | None = None, release: Stage | None = None) -> Stage:
    """Measure and judge the release, or find its report. A refusal is in the report, not raised here."""
    data = data or project.require(dataset.key_of(project))
    if release is None:
        release = project.require(index.key_of(project, data, project.require(train.key_of(project, data))))
    measured, against = release, data
    return project.build(
        key_of(project, data, release), lambda directory: _write(project, against, measured, directory)
    )


def _write(project: Project, data: Stage, release: Stage, directory: Path) -> Mapping[str, Any]:
    from recsys_cg.data.dataset import Dataset
    from recsys_cg.release.gates import conclude, failed_gates, judge
    from recsys_cg.serving.release import Release
    from recsys_cg.workflow.drift import PROBES, read_probes
    from recsys_cg.workflow.measurement import measure, open_previous
    from recsys_cg.workflow.reporting import Extras, choose_examples, write_report
    from recsys_cg.workflow.under_test import ReleaseUnderTest

    config, store = project.config, Store(project.store_path)
    opened, source = Release.open(release.path), Dataset.open(data.path)
    against = predecessor_of(store, opened.name)
    previous_path = store.path_of(against) if against is not None else None
    probes = read_probes(previous_path) if previous_path is not None else None
    measured = measure(config, opened, source, previous=open_previous(previous_path), probes=probes)
    gates = judge(measured.report, config.gates, store.report_of(against) if against is not None else None)
    report = conclude(measured.report, gates)
    under_test = ReleaseUnderTest.of(opened, source)
    examples = choose_examples(
        under_test, source.queries(config.evaluation.split), count=config.evaluation.examples, seed=project.seed
    )
    write_report(directory, report, Extras.of(under_test, examples), store)
    pq.write_table(measured.probes, directory / PROBES)
    pq.write_table(measured.evaluation.per_query, directory / _PER_QUERY, compression="zstd")
    failed = failed_gates(gates)
    say(f"evaluate: {len(gates) - len(failed)} of {len(gates)} gates passed")
    return {"release": opened.name, "judged_against": against, "failed_gates": [gate["name"] for gate in failed]}
