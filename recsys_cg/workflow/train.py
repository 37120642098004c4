"""Stage 2: a dataset becomes an encoder, by TensorFlow Recommenders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_cg.workflow import dataset
from recsys_cg.workflow.project import Project, Stage, StageKey

__all__ = ["build", "key_of"]


def key_of(project: Project, data: Stage) -> StageKey:
    """Return what the encoder depends on: the dataset, the model, the schedule, what its recall means, the seed."""
    config = {**project.config.section("model", "training"), "filter_seen": project.config.evaluation.filter_seen}
    return StageKey("encoder", {"dataset": data.manifest.digest}, config, project.seed)


def build(project: Project, data: Stage | None = None) -> Stage:
    """Train the encoder, or find it; a killed training goes on from its last checkpoint."""
    source = data or project.require(dataset.key_of(project))
    key = key_of(project, source)

    def write(directory: Path) -> Mapping[str, Any]:
        from recsys_cg.model.training import train_encoder

        return train_encoder(
            source.path,
            directory,
            model=project.config.model,
            training=project.config.training,
            seed=project.seed,
            checkpoints=project.checkpoints(key),
            filter_seen=project.config.evaluation.filter_seen,
        )

    return project.build(key, write)
