"""The whole way: dataset, encoder, release, evaluation, publish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recsys_cg.artifacts import lock_workdir
from recsys_cg.workflow import dataset, evaluate, index, publish, train
from recsys_cg.workflow.project import Project

__all__ = ["run"]


def run(project: Project, *, runner: Sequence[str] = (), force: str | None = None) -> dict[str, Any]:
    """Walk every stage, skipping what is done, and publish the release if its gates pass.

    Args:
        project: the project at work.
        runner: Beam flags of the dataset job.
        force: publish although a gate refuses, with this reason on record.

    Returns:
        What `publish.publish` returns: the release's name, its report and the gates.

    Raises:
        GateRefusedError: a gate refused the release; the report is kept.
        WorkdirBusyError: another run holds the work directory.
    """
    with lock_workdir(project.workdir):
        data = dataset.build(project, runner)
        encoder = train.build(project, data)
        release = index.build(project, data, encoder)
        evaluation = evaluate.build(project, data, release)
        return publish.publish(project, release, evaluation, force=force)
