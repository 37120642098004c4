"""Stage 1: interactions and catalogue become a dataset, by Beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recsys_cg.workflow.project import Project, Stage, StageKey

__all__ = ["build", "key_of"]


def key_of(project: Project) -> StageKey:
    """Return what the dataset depends on: the bytes of the sources and how they are read."""
    from recsys_cg.data.sources import fingerprint

    config = project.config
    inputs: dict[str, str] = {}
    sections: dict[str, Any] = config.section("interactions", "items", "impressions", "dataset")
    for name in ("interactions", "items", "impressions"):
        source = getattr(config, name)
        if source is not None:
            inputs[name] = fingerprint(source.path, source.format)
            del sections[name]["path"]  # the contents count, not the place
    del sections["dataset"]["runner"]  # nor does the engine
    sections["histories"] = config.serving.histories
    return StageKey("dataset", inputs, sections)


def build(project: Project, runner: Sequence[str] = ()) -> Stage:
    """Build the dataset, or find it.

    Args:
        project: the project at work.
        runner: Beam flags behind those of ``dataset.runner``, e.g. ``["--runner=FlinkRunner"]``.
    """
    from recsys_cg.beam.dataset import build_dataset

    return project.build(key_of(project), lambda directory: build_dataset(project.config, directory, runner=runner))
