"""The catalogue changed and the encoder did not: a new release without training."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from recsys_cg.artifacts import lock_workdir, read_manifest, verify
from recsys_cg.errors import StoreError
from recsys_cg.progress import say
from recsys_cg.release.store import Store
from recsys_cg.schema import EncoderFiles, ReleaseFiles
from recsys_cg.workflow import dataset, evaluate, publish
from recsys_cg.workflow.assembly import EncoderSource, assemble, name_release, previous_vectors, settings
from recsys_cg.workflow.project import Project, StageKey

__all__ = ["refresh"]


def refresh(project: Project, *, runner: Sequence[str] = (), force: str | None = None) -> dict[str, Any]:
    """Build, measure, gate and publish a release from the sources as they are now, with CURRENT's encoder.

    Items get vectors through their content; those whose content did not change keep the vectors they have; those
    that left the catalogue are no candidates any more. The content is encoded with the vocabularies of the encoder.
    Where the encoder reads no content, an item that it never met gets a vector from the queries of those who chose it
    (`recsys_cg.workflow.folding`).

    Args:
        project: the project at work; ``[model]`` and ``[training]`` are not read.
        runner: Beam flags of the dataset job.
        force: publish although a gate refuses, with this reason on record.

    Returns:
        What `publish.publish` returns.

    Raises:
        StoreError: nothing is published yet.
        GateRefusedError: a gate refused the new release.
    """
    from recsys_cg.data.content import FeatureSet
    from recsys_cg.serving.encoder import EncoderContract

    with lock_workdir(project.workdir):
        store = Store(project.store_path)
        current = store.current()
        if current is None:
            raise StoreError(f"{store.path}: nothing is published yet; `recsys-cg run` builds the first release")
        served = store.path_of(current)
        manifest = verify(served, kind="release")
        encoder = EncoderSource.open(served / ReleaseFiles.ENCODER)
        text = (encoder.path / EncoderFiles.FEATURES).read_text(encoding="utf-8")
        context = EncoderContract.read(encoder.path).context
        data = dataset.build(project, runner, features=FeatureSet.from_json(text), context=context)
        if data.manifest.digest == manifest.info.get("dataset_digest"):
            say(f"refresh: {current} was built from these very data; nothing changes")
            return publish.describe(project, current)
        key = StageKey(
            "release",
            {"dataset": data.manifest.digest, "encoder": encoder.digest, "refreshed": manifest.digest},
            settings(project.config),
            project.seed,
        )
        name = name_release(key, datetime.now(UTC))
        items = dataset.open_items(data)
        reuse = previous_vectors(served, encoder, items)
        release = project.build(
            key, lambda directory: assemble(project, data, encoder, directory, name=name, reuse=reuse, fold=True)
        )
        say(f"refresh: {read_manifest(release.path).info['reused_vectors']:,} of {len(items):,} vectors were kept")
        return publish.publish(project, release, evaluate.build(project, data, release), force=force)
