"""One piece of `bench_quality` in a process of its own: one set, one variant, one seed; the result is a JSON file.

python -m tests.benchmarks.quality_run SET VARIANT SEED FOLDER OUT
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.config import Config
from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation import Evaluation, System, evaluate_systems
from recsys_cg.schema import BUCKETS, EncoderFiles
from tests.benchmarks.quality_baselines import BASELINES, fit_baseline
from tests.benchmarks.quality_sets import SETS, QualitySet
from tests.benchmarks.quality_splits import DAY_US

METRICS = ("recall@100", "hit_rate@10", "ndcg@10")
COVERAGE = ("catalogue_coverage@100", "gini@100", "tail_share@100", "between_user_overlap@100")
CORRECTIONS = {"off": "none", "standard": "standard", "refined": "refined"}
NEGATIVES = ("in_batch", "popularity", "uniform", "mixed")
STOCK = ("tfrs", "tfrs_logq")


def overrides_of(variant: str, config: Config) -> tuple[str, ...]:
    """Return the settings by which a variant of our model differs from the shipped project file."""
    if variant == "two_tower":
        return ()
    if variant == "without_cold_start":
        return ("model.id_dropout=0.0", "model.fit_content=false")
    correction, negatives = variant.removeprefix("ablation_").split("_x_")
    count = sum(source.count for source in config.model.negatives)
    epochs = os.environ.get("ABLATION_EPOCHS", "4")
    return (
        f'model.correction="{CORRECTIONS[correction]}"',
        f"training.epochs={epochs}",
        *([] if negatives == "mixed" else [f'model.negatives=[{{kind="{negatives}", count={count}}}]']),
    )


def run_piece(name: str, variant: str, seed: int, folder: Path, workdir: Path) -> dict[str, Any]:
    """Train and measure one piece; see `compact` for what is returned."""
    started = time.monotonic()
    quality = SETS[name](folder)
    dataset = Dataset.open(quality.data.path)
    training: dict[str, Any] = {}
    if variant in BASELINES:
        system = fit_baseline(variant, quality, dataset, seed)
    elif variant in STOCK:
        system = _fit_stock(quality, dataset, variant, seed)
    else:
        system, training = _train(quality, dataset, variant, seed, workdir)
    queries = dataset.queries("test")
    evaluation = evaluate_systems(
        [system], queries, dataset.items, dataset.sequences(), quality.config.evaluation, seed,
        cutoff_us=dataset.manifest.info["windows"]["test_from_us"],
    )  # fmt: skip
    return {
        "set": "ablation" if variant.startswith("ablation_") else name,
        "variant": variant,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
        **compact(evaluation),
        **training,
        "slices": slices(evaluation.per_query, queries, dataset.items, quality),
    }


def compact(evaluation: Evaluation) -> dict[str, Any]:
    """Return ``protocol``, and for each system its means and intervals by bucket, its coverage and settings."""
    report = evaluation.report
    shown = ("queries", "users", "users_unseen_in_training", "candidates", "filter_seen", "selection", "definitions")
    systems = {}
    for name, entry in report["systems"].items():
        groups = {
            group: {"queries": entry[group]["queries"]}
            | {metric: entry[group][metric] for metric in METRICS if metric in entry[group]}
            for group in ("overall", *BUCKETS)
        }
        coverage = {key: report["coverage"][name].get(key) for key in COVERAGE}
        systems[name] = {**groups, "coverage": coverage, "settings": entry.get("settings", {})}
    return {"protocol": {key: report["protocol"][key] for key in shown}, "systems": systems}


def slices(per_query: pa.Table, queries: pa.Table, items: pa.Table, quality: QualitySet) -> dict[str, Any]:
    """Return each system's mean recall@100 on hidden and on warm targets where items were hidden; for globo, by day."""
    kinds: dict[str, np.ndarray[Any, Any]] = {}
    if quality.hidden:
        first = pc.list_element(queries["targets"], 0).to_numpy()
        is_hidden = pc.is_in(items["item_id"], value_set=pa.array(quality.hidden)).to_numpy(zero_copy_only=False)
        warm = items["train_count"].to_numpy() > 0
        kinds = {"hidden": is_hidden[first], "warm": warm[first]}
    elif quality.name == "globo":
        days = queries["time_us"].to_numpy() - 3 * 3600 * 1_000_000
        days -= days % DAY_US
        kinds = {str(day.astype("datetime64[us]").astype("datetime64[D]")): days == day for day in np.unique(days)}
    found: dict[str, Any] = {}
    for name in pc.unique(per_query["system"].cast(pa.string())).to_pylist() if kinds else []:
        own = per_query.filter(pc.equal(per_query["system"].cast(pa.string()), name))
        asked, values = own["query"].to_numpy(), own["recall"].to_numpy()
        found[name] = {
            kind: {"queries": int(mask[asked].sum()), "recall@100": float(np.mean(values[mask[asked]]))}
            for kind, mask in kinds.items()
            if mask[asked].any()
        }
    return found


def _fit_stock(quality: QualitySet, dataset: Dataset, variant: str, seed: int) -> System:
    from recsys_cg.evaluation.queries import prepare_queries
    from tests.benchmarks.quality_tfrs import BATCH, CORRECTED_BATCH, fit_stock

    settings = quality.config.evaluation
    validation = prepare_queries(
        dataset.queries("validation"), dataset.items,
        filter_seen=settings.filter_seen, max_queries=settings.tuning_queries, seed=seed,
    )  # fmt: skip
    corrected = variant == "tfrs_logq"
    batch, most = (CORRECTED_BATCH if corrected else BATCH), 12
    if quality.overrides:
        batch, most = 1024, 2
    return fit_stock(dataset, validation, corrected=corrected, batch=batch, seed=seed, most=most)


def _train(
    quality: QualitySet, dataset: Dataset, variant: str, seed: int, workdir: Path
) -> tuple[System, dict[str, Any]]:
    """Train as the product does, and measure what it would serve; killed, it goes on from the last checkpoint."""
    from recsys_cg.serving.release import Release
    from recsys_cg.workflow import index, train
    from recsys_cg.workflow.project import Project
    from recsys_cg.workflow.under_test import ReleaseUnderTest

    config = quality.configure(seed, *overrides_of(variant, quality.config))
    project = Project(config, workdir)
    encoder = train.build(project, quality.data)
    release = index.build(project, quality.data, encoder)
    record = json.loads((encoder.path / EncoderFiles.TRAINING).read_text(encoding="utf-8"))
    opened = Release.open(release.path)
    under_test = ReleaseUnderTest.of(opened, dataset)
    return under_test.system(variant, seed), {"training": _summarise(record, release.manifest.info["index"])}


def _summarise(record: Mapping[str, Any], index: Mapping[str, Any]) -> dict[str, Any]:
    epochs = record["epochs"]
    return {
        "minutes": round(sum(epoch["seconds"] for epoch in epochs) / 60, 2),
        "epochs": len(epochs),
        "best_epoch": record["best_epoch"],
        "stopped": record["stopped"],
        "validation_recall@100": [epoch["validation_recall"] for epoch in epochs],
        "examples_per_s": [epoch["examples_per_s"] for epoch in epochs],
        "temperature": epochs[-1]["temperature"],
        "geometry": epochs[-1]["geometry"],
        "negatives": record["negatives"],
        "correction": record["correction"],
        "parameters": record["parameters"],
        "dropout": record["model"]["dropout"],
        "index": {name: index.get(name) for name in ("kind", "recall_vs_exact")},
    }


def main() -> None:
    """Run ``SET VARIANT SEED FOLDER OUT``."""
    name, variant, seed, folder, out = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="  %(message)s", stream=sys.stderr)
    workdir = Path(folder) / "quality" / "work" / name / Path(out).stem
    result = run_piece(name, variant, int(seed), Path(folder), workdir)
    write_text_atomically(Path(out), json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    shutil.rmtree(workdir, ignore_errors=True)


if __name__ == "__main__":
    main()
