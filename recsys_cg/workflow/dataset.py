"""Stage 1: interactions and catalogue become a dataset, by Beam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys_cg.artifacts import digest_json
from recsys_cg.workflow.project import Project, Stage, StageKey

if TYPE_CHECKING:
    import pyarrow as pa

    from recsys_cg.data.content import FeatureSet
    from recsys_cg.data.context import ContextSet

__all__ = ["build", "key_of", "open_items"]


def key_of(project: Project, features: FeatureSet | None = None, context: ContextSet | None = None) -> StageKey:
    """Return what the dataset depends on: the bytes of the sources, how they are read, and features that are kept."""
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
    if features is not None:
        inputs["features"] = digest_json(features.to_json())
    if context:
        inputs["context"] = digest_json(context.to_json())
    return StageKey("dataset", inputs, sections)


def open_items(stage: Stage) -> pa.Table:
    """Return the item table of a dataset stage."""
    from recsys_cg.data.dataset import Dataset

    return Dataset.open(stage.path).items


def build(
    project: Project,
    runner: Sequence[str] = (),
    *,
    features: FeatureSet | None = None,
    context: ContextSet | None = None,
) -> Stage:
    """Build the dataset, or find it.

    Args:
        project: the project at work.
        runner: Beam flags behind those of ``dataset.runner``, e.g. ``["--runner=FlinkRunner"]``.
        features: content features of an encoder that is kept; None fits them anew.
        context: context features of an encoder that is kept; None fits them anew.
    """

    def write(directory: Path) -> Mapping[str, Any]:
        from recsys_cg.beam.dataset import build_dataset

        return build_dataset(project.config, directory, runner=runner, features=features, context=context)

    return project.build(key_of(project, features, context), write)
