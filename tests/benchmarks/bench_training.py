"""`make bench-training`: examples a second, memory and time to a known recall, against the stock TFRS model.

    python -m tests.benchmarks.bench_training                  MovieLens 1M (strict time), three rounds
    ROUNDS=1 MINUTES=5 REACH=0 ...                             fewer rounds; no time to a recall
    QUICK=1 ...                                                MovieLens 100K, one round

Ours is the shipped configuration. Both have its dimension, its events a step as batch, and as many in-batch negatives;
stock is the TFRS retrieval tutorial with ``compute_metrics=False``. An example is one (query, positive) pair. Each run
is a process of its own; rounds are interleaved. For the time to EASE's validation recall both train as they are
shipped, at equal dimension, and only training steps count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.quality_sets import SETS
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record
from tests.benchmarks.training_child import SYSTEMS, batch_of

STOCK = "stock TFRS"


def run_child(*arguments: str) -> dict[str, Any]:
    """Run one training in its own process and return its figures."""
    command = [sys.executable, "-m", "tests.benchmarks.training_child", *arguments]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {' '.join(arguments[:2])}: {figures}", flush=True)
    return figures


def make_figures(speeds: dict[str, list[dict[str, Any]]], *, judged: bool) -> list[Figure]:
    """Return the figures of the speed rounds."""
    target = (">=", 2.0) if judged else None
    rounds = {(system, what): [run[what] for run in runs] for system, runs in speeds.items() for what in runs[0]}
    return [
        measure_figure(
            "examples_per_second", rounds["ours", "examples_per_s"], "pairs/s",
            against=STOCK, peers=rounds["stock", "examples_per_s"], target=target,
        ),
        measure_figure("peak_rss", rounds["ours", "peak_mb"], "MB", against=STOCK, peers=rounds["stock", "peak_mb"]),
    ]  # fmt: skip


def reach_figures(reached: dict[str, dict[str, Any]], goal: float) -> list[Figure]:
    """Return the time to the goal, where ours reached it; stock's where it did, too."""
    ours, stock = reached["ours"], reached["stock"]
    figures = [
        measure_figure("validation_recall_of_ease", [goal], "share"),
        measure_figure("best_validation_recall", [ours["best"]], "share", against=STOCK, peers=[stock["best"]]),
        measure_figure("examples_per_second_as_shipped", [ours["examples_per_s"]], "pairs/s"),
    ]
    if ours["seconds_to_goal"] is not None:
        label = STOCK if stock["seconds_to_goal"] is not None else f"{STOCK}, which gave up without reaching it"
        peers = [stock["seconds_to_goal"] or stock["seconds"]]
        name = "seconds_to_validation_recall_of_ease"
        figures.append(measure_figure(name, [ours["seconds_to_goal"]], "s", against=label, peers=peers))
    return figures


def main(folder: Path = FOLDER) -> Path:
    """Measure and write ``folder/training.json``."""
    started = time.monotonic()
    is_quick = os.environ.get("QUICK", "") not in {"", "0"}
    name = "movielens-100k" if is_quick else "movielens-t"
    rounds = 1 if is_quick else int(os.environ.get("ROUNDS", "3"))
    minutes = "0.5" if is_quick else os.environ.get("MINUTES", "10")
    quality = SETS[name](folder)
    speeds: dict[str, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
    for seed in range(rounds):
        for system in SYSTEMS:
            speeds[system].append(run_child(system, "speed", name, str(folder), str(seed)))
    figures = make_figures(speeds, judged=not is_quick)
    reached: dict[str, dict[str, Any]] = {}
    if os.environ.get("REACH", "1") != "0":
        goal = run_child("ours", "goal", name, str(folder), "0")["goal"]
        reached = {system: run_child(system, "reach", name, str(folder), "0", str(goal), minutes) for system in SYSTEMS}
        figures += reach_figures(reached, goal)
    batch = batch_of(quality.configure(0))
    return write_record(
        "training-quick" if is_quick else "training", figures, started, folder,
        protocol=f"{name}; dimension {quality.config.model.dim}, {batch:,} events a step and {batch:,} in-batch "
        "negatives for both; an example is one (query, positive) pair; epochs after the first; peak of the process",
        reached=reached,
    )  # fmt: skip


if __name__ == "__main__":
    main()
