"""One training of one system in a process of its own, for `bench_training`: prints its figures as JSON.

    python -m tests.benchmarks.training_child SYSTEM MODE SET FOLDER SEED

``speed`` counts the examples a second of trained epochs behind a warm-up, an example being one (query, positive) pair;
``reach`` trains until a validation recall is reached or time is up, and counts the seconds spent in training steps.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.config import Config
from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation import System
from recsys_cg.evaluation.metrics import recall
from recsys_cg.evaluation.queries import QuerySet, prepare_queries
from recsys_cg.evaluation.retrieval import rank_queries
from tests.benchmarks.quality_sets import SETS, QualitySet

SYSTEMS = ("ours", "stock")
ROWS = 32
WARM_STEPS, TIMED_STEPS = 20, 100


def batch_of(config: Config) -> int:
    """Return the events of a step of `ROWS` packed rows, which are batch and negatives of both systems."""
    return ROWS * config.training.row_length


def validation_of(quality: QualitySet, dataset: Dataset, seed: int) -> QuerySet:
    """Return the sample of validation queries by which our training stops early."""
    most = quality.configure(seed).training.validation_queries
    return prepare_queries(dataset.queries("validation"), dataset.items, filter_seen=True, max_queries=most, seed=seed)


def mean_recall(system: System, queries: QuerySet, items: int) -> float:
    """Return recall@100 on the sample."""
    (ranks,) = rank_queries([system], queries, items, [100], quiet=True)
    return float(np.mean(recall(ranks[100], 100)))


def find_goal(quality: QualitySet, dataset: Dataset, seed: int) -> float:
    """Return the validation recall of EASE, tuned on validation queries."""
    from recsys_cg.evaluation.baselines import fit_baselines

    config = quality.config.evaluation.model_copy(update={"baselines": ["ease"]})
    tables = {split: dataset.queries(split) for split in ("validation", "test")}
    (ease,), _ = fit_baselines(dataset.items, dataset.sequences(), config, **tables, seed=seed)
    return mean_recall(ease, validation_of(quality, dataset, seed), dataset.items.num_rows)


def _train_ours(quality: QualitySet, seed: int, *overrides: str) -> list[dict[str, Any]]:
    """Train as the product does and return the record's epochs."""
    from recsys_cg.model.training import train_encoder

    config = quality.configure(seed, *overrides)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "encoder"
        directory.mkdir()
        train_encoder(
            quality.data.path, directory,
            model=config.model, training=config.training, seed=seed, checkpoints=Path(scratch) / "checkpoints",
        )  # fmt: skip
        epochs: list[dict[str, Any]] = json.loads((directory / "training.json").read_text(encoding="utf-8"))["epochs"]
    return epochs


def speed_ours(quality: QualitySet, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Train two epochs with in-batch negatives alone, as many as events a step; the second one counts."""
    batch = batch_of(quality.configure(seed))
    last = _train_ours(
        quality, seed, f'model.negatives=[{{kind="in_batch", count={batch}}}]', f"training.batch_sequences={ROWS}",
        "training.epochs=2", "training.validation_queries=500",
    )[-1]  # fmt: skip
    return {
        "examples_per_s": last["targets"] / last["seconds"],
        "examples": last["targets"],
        "dim": quality.config.model.dim,
    }


def speed_stock(quality: QualitySet, dataset: Dataset, seed: int) -> dict[str, Any]:
    """Train 20 steps, then time 100, with all data read into the pipeline's cache before."""
    from tests.benchmarks.quality_tfrs import StockModel

    config = quality.configure(seed)
    batch = batch_of(config)
    stock = StockModel(dataset, dim=config.model.dim, seed=seed, corrected=False, batch=batch)
    for _ in stock.batches:
        pass
    steps = min(TIMED_STEPS, stock.pairs // batch)
    whole = stock.batches.take(stock.pairs // batch).repeat()  # without the last one, which is smaller
    stock.model.fit(whole, steps_per_epoch=WARM_STEPS, epochs=1, verbose=0)
    started = time.perf_counter()
    stock.model.fit(whole, steps_per_epoch=steps, epochs=1, verbose=0)
    examples = steps * batch
    return {"examples_per_s": examples / (time.perf_counter() - started), "examples": examples, "dim": config.model.dim}


def reach_ours(quality: QualitySet, dataset: Dataset, seed: int, goal: float, minutes: float) -> dict[str, Any]:
    """Train as shipped for at most so many minutes."""
    epochs = _train_ours(quality, seed, f"training.max_minutes={minutes}")
    seconds = np.cumsum([epoch["seconds"] for epoch in epochs])
    recalls = [epoch["validation_recall"] for epoch in epochs]
    rates = [epoch["examples_per_s"] for epoch in epochs[1:] or epochs]
    return {**_reached(seconds.tolist(), recalls, goal), "examples_per_s": float(np.median(rates))}


def reach_stock(quality: QualitySet, dataset: Dataset, seed: int, goal: float, minutes: float) -> dict[str, Any]:
    """Train the tutorial's model, in its own batches of 8,192, until the goal, two worse epochs, or time is up."""
    from tests.benchmarks.quality_tfrs import BATCH, StockModel

    config = quality.configure(seed)
    stock = StockModel(dataset, dim=config.model.dim, seed=seed, corrected=False, batch=BATCH)
    queries = validation_of(quality, dataset, seed)
    seconds: list[float] = []
    recalls: list[float] = []
    for spent in stock.epochs(1000):
        seconds.append(spent + (seconds[-1] if seconds else 0.0))
        recalls.append(mean_recall(stock.system("stock"), queries, dataset.items.num_rows))
        is_over = seconds[-1] >= 60 * minutes or len(recalls) - 1 - int(np.argmax(recalls)) >= 3
        if recalls[-1] >= goal or is_over:
            break
    return _reached(seconds, recalls, goal)


def _reached(seconds: list[float], recalls: list[float], goal: float) -> dict[str, Any]:
    places = np.flatnonzero(np.array(recalls) >= goal)
    return {
        "seconds_to_goal": seconds[places[0]] if len(places) else None,
        "best": max(recalls),
        "seconds": seconds[-1],
        "recalls": recalls,
    }


def main() -> None:
    """Run ``SYSTEM MODE SET FOLDER SEED [GOAL MINUTES]``."""
    system, mode, name, folder, seed, *more = sys.argv[1:]
    quality = SETS[name](Path(folder))
    dataset = Dataset.open(quality.data.path)
    if mode == "goal":
        print(json.dumps({"goal": find_goal(quality, dataset, int(seed))}))
        return
    run: Callable[..., dict[str, Any]] = globals()[f"{mode}_{system}"]
    figures = run(quality, dataset, int(seed), *(float(value) for value in more))
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    print(json.dumps({**figures, "peak_mb": int(peak.split()[1]) / 1024}))


if __name__ == "__main__":
    main()
