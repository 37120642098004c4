"""Stage 3: dataset and encoder become a release: every item embedded, indexed and measured against exact search."""

from __future__ import annotations

from datetime import UTC, datetime

from recsys_cg.workflow import dataset, train
from recsys_cg.workflow.assembly import EncoderSource, assemble, name_release, settings
from recsys_cg.workflow.project import Project, Stage, StageKey

__all__ = ["build", "key_of"]


def key_of(project: Project, data: Stage, encoder: Stage) -> StageKey:
    """Return what the release depends on: dataset, encoder, and the index's part of the configuration."""
    inputs = {"dataset": data.manifest.digest, "encoder": encoder.manifest.digest}
    return StageKey("release", inputs, settings(project.config), project.seed)


def build(project: Project, data: Stage | None = None, encoder: Stage | None = None) -> Stage:
    """Assemble the release, or find it."""
    data = data or project.require(dataset.key_of(project))
    encoder = encoder or project.require(train.key_of(project, data))
    key = key_of(project, data, encoder)
    source = EncoderSource(encoder.path, encoder.manifest.digest)
    name = name_release(key, datetime.now(UTC))
    return project.build(key, lambda directory: assemble(project, data, source, directory, name=name))
