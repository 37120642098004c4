"""`make bench-index`: this index against faiss, hnswlib, usearch and exact search, on one thread.

    python -m tests.benchmarks.bench_index          100k and 1M vectors of 64 dimensions, five rounds
    SIZES=100000 SYSTEMS=recsys_cg,faiss_ivf python -m tests.benchmarks.bench_index
    QUICK=1 python -m tests.benchmarks.bench_index  20k vectors, three rounds, no usearch and no hnswlib

Each system is built in one process, and loaded and searched in another that stays while the others take their
turns: rounds are interleaved. Settings are chosen on 1,024 queries and recall is reported on 2,048 others. Times
are processor seconds; builds use both cores, searches one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.index_data import prepare
from tests.benchmarks.index_systems import SYSTEMS
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record

DIM, K = 64, 100
TARGETS = (0.9, 0.95, 0.99)
NEEDS = {"faiss_ivf": "faiss", "faiss_hnsw": "faiss", "hnswlib": "hnswlib", "usearch": "usearch"}
RATIO_TARGETS = {0.95: 2.0, 0.99: 3.0}


class Child:
    """A served system in its own process."""

    def __init__(self, name: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.index_child", "serve", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_one_thread(),
        )
        self.loaded = self._read()

    def order(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Give one order and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def build(name: str, folder: Path) -> dict[str, Any]:
    """Build one system in its own process and return its cost."""
    command = [sys.executable, "-m", "tests.benchmarks.index_child", "build", name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed to build:\n{done.stderr[-2000:]}")
    cost: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {name}: built in {cost['cpu_s']:.1f} CPU s", flush=True)
    return cost


def measure(names: list[str], folder: Path, rounds: int) -> dict[str, Any]:
    """Build, tune and time all systems over the data in ``folder``."""
    costs = {name: build(name, folder) for name in names}
    children: dict[str, Child] = {}
    try:
        children.update((name, Child(name, folder)) for name in names)
        return {"costs": costs, **_time_all(children, rounds)}
    finally:
        for child in children.values():
            child.close()


def _time_all(children: dict[str, Child], rounds: int) -> dict[str, Any]:
    tuned: dict[str, dict[float, Any]] = defaultdict(dict)
    for name, child in children.items():
        for target in TARGETS:
            tuned[name][target] = child.order("tune", target=target)
            print(f"  {name}: recall {target}: {tuned[name][target]}", flush=True)
    speeds: dict[tuple[str, float], list[dict[str, float]]] = defaultdict(list)
    for _ in range(rounds):
        for target in TARGETS:
            for name, child in children.items():
                setting = tuned[name][target]["setting"]
                if setting is not None and (name != "exact" or target == TARGETS[0]):
                    count = 64 if name == "exact" else 512
                    speeds[name, target].append(child.order("round", setting=setting, count=count))
    layers = {
        target: [
            children["recsys_cg"].order("layer", setting=tuned["recsys_cg"][target]["setting"]) for _ in range(rounds)
        ]
        for target in (0.95, 0.99)
    }
    resident = {name: child.loaded["resident_mb"] for name, child in children.items()}
    return {"tuned": tuned, "speeds": speeds, "layers": layers, "resident_mb": resident}


def make_figures(size: int, measured: dict[str, Any]) -> list[Figure]:
    """Return the figures of one catalogue size; speed and memory have targets from 100k vectors up."""
    label = f"{size // 1000}k" if size < 1_000_000 else f"{size // 1_000_000}m"
    judged = size >= 100_000
    figures = [*_speed_figures(label, measured, judged=judged), *_layer_figures(label, measured, judged=judged)]
    costs, ours = measured["costs"], measured["costs"]["recsys_cg"]["info"]
    raw_mb = size * DIM * 4 / 2**20
    figures.append(
        measure_figure(
            f"build_cpu_{label}",
            [ours["build_cpu_s"]],
            "s",
            against=SYSTEMS["faiss_ivf"].label,
            peers=[costs["faiss_ivf"]["cpu_s"]],
            target=("<=", 0.8),
        )
    )
    figures.append(
        measure_figure(
            f"tuning_over_build_{label}", [ours["tuning_cpu_s"] / ours["build_cpu_s"]], "builds", target=("<=", 3.0)
        )
    )
    for name, resident in measured["resident_mb"].items():
        target = ("<=", 1.2) if name == "recsys_cg" and judged else None
        figures.append(
            measure_figure(
                f"resident_{name}_{label}",
                [resident],
                "MB",
                against="raw float32 vectors",
                peers=[raw_mb],
                target=target,
            )
        )
        if name not in {"recsys_cg", "exact"}:
            figures.append(measure_figure(f"build_cpu_{name}_{label}", [costs[name]["cpu_s"]], "s"))
    return figures


def _speed_figures(label: str, measured: dict[str, Any], *, judged: bool) -> list[Figure]:
    figures = []
    for target in TARGETS:
        held_out = measured["tuned"]["recsys_cg"][target]["recall"]
        figures.append(
            measure_figure(f"held_out_recall_at_target_{target}_{label}", [held_out], "share", target=(">=", target))
        )
        for kind in ("single", "batch"):
            rounds = {
                name: [one[f"{kind}_qps"] for one in measured["speeds"][name, target]]
                for name in measured["costs"]
                if measured["speeds"].get((name, target))
            }
            peers = {name: values for name, values in rounds.items() if name in NEEDS}
            best = max(peers, key=lambda name: float(np.median(peers[name])))
            wanted = RATIO_TARGETS.get(target) if kind == "single" and judged else None
            figures.append(
                measure_figure(
                    f"qps_{kind}_recall_{target}_{label}",
                    rounds["recsys_cg"],
                    "queries/s",
                    against=SYSTEMS[best].label,
                    peers=peers[best],
                    target=(">=", wanted) if wanted else None,
                )
            )
            for name, values in rounds.items():
                if name != "recsys_cg":
                    figures.append(measure_figure(f"qps_{kind}_{name}_recall_{target}_{label}", values, "queries/s"))
    return figures


def _layer_figures(label: str, measured: dict[str, Any], *, judged: bool) -> list[Figure]:
    return [
        measure_figure(
            f"layer_adds_{kind}_recall_{target}_{label}",
            [one[kind] for one in rounds],
            "share",
            target=("<=", bound) if judged else None,
        )
        for target, rounds in measured["layers"].items()
        for kind, bound in (("single", 0.4), ("batch", 0.1))
    ]


def main(folder: Path = FOLDER) -> Path:
    """Run the benchmark and write ``folder/index.json``."""
    started = time.monotonic()
    quick = os.environ.get("QUICK") == "1"
    sizes = [20_000] if quick else [int(size) for size in os.environ.get("SIZES", "100000,1000000").split(",")]
    names = [name for name in SYSTEMS if not NEEDS.get(name) or importlib.util.find_spec(NEEDS[name])]
    if "faiss_ivf" not in names:
        raise SystemExit("faiss is not installed; install the bench extra: pip install '.[bench]'")
    if wanted := os.environ.get("SYSTEMS"):
        names = [name for name in names if name in wanted.split(",")]
    if quick:
        names = [name for name in names if name not in {"hnswlib", "usearch"}]
    figures: list[Figure] = []
    settings: dict[str, Any] = {}
    for size in sizes:
        scratch = Path(tempfile.mkdtemp(prefix="bench-index-"))
        try:
            prepare(scratch, size, DIM, 1024, 1024 if quick else 2048, K)
            print(f"{size:,} vectors, {time.monotonic() - started:.0f} s", flush=True)
            measured = measure(names, scratch, 3 if quick else 5)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        figures += make_figures(size, measured)
        settings[str(size)] = {name: {str(t): s for t, s in by.items()} for name, by in measured["tuned"].items()}
    return write_record("index", figures, started, folder, settings=settings)


if __name__ == "__main__":
    main()
