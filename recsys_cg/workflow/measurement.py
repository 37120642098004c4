"""Measuring a release as it serves: its own encoder, its own index, on a dataset's queries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys_cg.config import Config, EvaluationConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import RecsysError
from recsys_cg.evaluation import Evaluation, evaluate_systems
from recsys_cg.evaluation.baselines import fit_baselines
from recsys_cg.evaluation.drift import measure_drift
from recsys_cg.evaluation.index_quality import measure_index
from recsys_cg.evaluation.probes import freeze_probes
from recsys_cg.evaluation.vectors import check_vectors, measure_freshness, measure_vector_geometry
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.progress import say
from recsys_cg.serving.release import Release
from recsys_cg.workflow.drift import ask_probes
from recsys_cg.workflow.duplicates import describe_duplicates
from recsys_cg.workflow.under_test import ReleaseUnderTest

__all__ = ["Measured", "measure", "open_previous"]

_PREVIOUS = "previous_release"
_PROBES = 1000
_INDEX_QUERIES = 2000


@dataclass(frozen=True)
class Measured:
    """The report without its gates, the figures of single queries, and the probes that drift is measured on."""

    report: dict[str, Any]
    evaluation: Evaluation
    probes: pa.Table


def measure(
    config: Config, release: Release, dataset: Dataset, *, previous: Release | None, probes: pa.Table | None
) -> Measured:
    """Measure ``release`` on the dataset's queries, beside the baselines and the previous release.

    Args:
        config: ``[evaluation]`` and ``[project]`` are read.
        release: the release to judge.
        dataset: queries, items and training sequences; the release's own or a later one.
        previous: what it would replace, if anything.
        probes: frozen by an earlier evaluation; None draws them from this dataset's queries.
    """
    seed, settings = config.project.seed, config.evaluation
    under_test = ReleaseUnderTest.of(release, dataset)
    queries = dataset.queries(settings.split)
    evaluation = _evaluate(under_test, previous, dataset, queries, settings, seed)
    frozen = (
        freeze_probes(queries, dataset.items, dataset.events, count=_PROBES, seed=seed) if probes is None else probes
    )
    report = {
        "schema": 1,
        "release": release.name,
        "project": config.project.name,
        "encoder": release.manifest.info["encoder_digest"],
        "dataset": dataset.manifest.digest,
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        **evaluation.report,
        "index": _measure_index(under_test, queries, settings, seed),
        "vectors": check_vectors(release.vectors),
        "geometry": _measure_geometry(under_test, queries, seed),
        "freshness": measure_freshness(
            under_test.released,
            dataset.items,
            encoder_digest=release.manifest.info["encoder_digest"],
            now_us=time.time_ns() // 1000,
            catalogue_us=int(datetime.fromisoformat(dataset.manifest.created).timestamp() * 1e6),
        ),
        "drift": _measure_drift(release, previous, frozen, settings.primary_k),
        "catalogue": {"near_duplicates": describe_duplicates(release)},
    }
    return Measured(report, evaluation, frozen)


def _evaluate(  # noqa: PLR0917 - what one evaluation needs
    under_test: ReleaseUnderTest,
    previous: Release | None,
    dataset: Dataset,
    queries: pa.Table,
    settings: EvaluationConfig,
    seed: int,
) -> Evaluation:
    """Run the release, the previous one and the baselines over the same queries."""
    sequences = dataset.sequences()
    systems: list[Any] = [under_test.system("two_tower", seed)]
    if previous is not None:
        replaced = ReleaseUnderTest.of(previous, dataset)
        systems.append(replaced.system(_PREVIOUS, seed))
    baselines, skipped = fit_baselines(
        dataset.items,
        sequences,
        settings,
        validation=dataset.queries("validation"),
        test=dataset.queries("test"),
        seed=seed,
    )
    say(f"evaluate: {len(queries):,} queries, {len(systems) + len(baselines)} systems")
    windows = dataset.manifest.info["windows"]
    return evaluate_systems(
        [*systems, *baselines],
        queries,
        dataset.items,
        sequences,
        settings,
        seed,
        cutoff_us=windows["test_from_us"] if settings.split == "test" else windows["validation_from_us"],
        skipped=skipped,
        impressions=dataset.impressions(),
        features=dataset.features,
    )


def _sample(queries: pa.Table, count: int, seed: int) -> pa.Table:
    if len(queries) <= count:
        return queries
    return queries.take(pa.array(np.sort(np.random.default_rng(seed).permutation(len(queries))[:count])))


def _measure_index(
    under_test: ReleaseUnderTest, queries: pa.Table, settings: EvaluationConfig, seed: int
) -> dict[str, Any]:
    release, sample = under_test.release, _sample(queries, _INDEX_QUERIES, seed)
    return measure_index(
        release.retriever,
        ExactRetriever(release.vectors),
        under_test.encode(sample),
        under_test.released["bucket"].to_pylist(),
        settings.primary_k,
        exclude=under_test.rows_of(sample["seen"]) if settings.filter_seen else None,
        info=release.manifest.info["index"],
        seed=seed,
    )


def _measure_geometry(under_test: ReleaseUnderTest, queries: pa.Table, seed: int) -> dict[str, Any]:
    release = under_test.release
    if len(queries) == 0 or len(release) < 2:
        return {}
    sample = _sample(queries, _INDEX_QUERIES, seed)
    targets = under_test.release_rows[np.array([targets[0] for targets in sample["targets"].to_pylist()])]
    known = targets >= 0
    if not known.any():
        return {}
    vectors = under_test.encode(sample)[known]
    return measure_vector_geometry(vectors, release.vectors[targets[known]], release.vectors, seed=seed)


def _measure_drift(release: Release, previous: Release | None, probes: pa.Table, k: int) -> dict[str, Any]:
    against = {} if previous is None else {"against": previous.name}
    before = None if previous is None else ask_probes(previous, probes, k)
    return against | measure_drift(ask_probes(release, probes, k), before, k=k)


def open_previous(path: Path | None) -> Release | None:
    """Open the release that would be replaced; one that cannot be opened any more is said and left out."""
    if path is None:
        return None
    try:
        return Release.open(path)
    except RecsysError as error:
        say(f"evaluate: the previous release cannot be opened and is not compared with: {error}")
        return None
