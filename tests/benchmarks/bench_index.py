"""`make bench-index`: this index against faiss, hnswlib, usearch and exact search, on one thread.

    python -m tests.benchmarks.bench_index          100k and 1M vectors of 64 dimensions, five rounds
    SIZES=1000000 python -m tests.benchmarks.bench_index
    SYSTEMS=recsys_cg,faiss_ivf ...                 some of the systems
    ONLY=build ...                                  build and tune, without the rounds
    QUICK=1 python -m tests.benchmarks.bench_index  20k vectors, three rounds, no usearch and no hnswlib

Each system is built in one process, and loaded and searched in another that stays while the others take their
turns: rounds are interleaved. Settings are chosen on 1,024 queries, for every system by the rule of this library (mean
recall less two standard errors reaches the target), and recall is reported on 2,048 others. Times are processor
seconds; builds use both cores, searches one.

Data, indexes and settings are kept in ``.bench/index/SIZE`` and used again while the code that made them is the same,
so that a run that was stopped goes on. The rounds of all systems of a size are always measured together, and kept;
``.bench/index.json`` and the table hold the last ones of every size.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.index_data import prepare
from tests.benchmarks.index_pieces import Pieces, code_key
from tests.benchmarks.index_systems import SYSTEMS
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record

DIM, K = 64, 100
TARGETS = (0.9, 0.95, 0.99)
LAYER_TARGETS = ("0.95", "0.99")
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


def build(name: str, pieces: Pieces) -> dict[str, Any]:
    """Build one system in its own process and return its cost."""
    pieces.clear(f"index_{name}")
    command = [sys.executable, "-m", "tests.benchmarks.index_child", "build", name, str(pieces.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed to build:\n{done.stderr[-2000:]}")
    cost: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {name}: built in {cost['cpu_s']:.1f} CPU s", flush=True)
    return cost


def tune(name: str, pieces: Pieces) -> dict[str, Any]:
    """Choose the settings of one system for every target."""
    child = Child(name, pieces.folder)
    try:
        tuned = {str(target): child.order("tune", target=target) for target in TARGETS}
    finally:
        child.close()
    print(f"  {name}: {tuned}", flush=True)
    return tuned


def measure(names: list[str], pieces: Pieces, rounds: int) -> dict[str, Any]:
    """Build and tune what is not there yet, then time all systems in turns."""
    keys = {name: code_key(name) for name in names}
    costs = {name: pieces.get(f"cost_{name}", keys[name], lambda name=name: build(name, pieces)) for name in names}
    tuned = {name: pieces.get(f"tuned_{name}", keys[name], lambda name=name: tune(name, pieces)) for name in names}
    if not rounds:
        return {}
    children: dict[str, Child] = {}
    try:
        children.update((name, Child(name, pieces.folder)) for name in names)
        return {"costs": costs, "tuned": tuned, **_time_all(children, tuned, rounds)}
    finally:
        for child in children.values():
            child.close()


def _time_all(children: dict[str, Child], tuned: dict[str, Any], rounds: int) -> dict[str, Any]:
    speeds: dict[str, dict[str, list[dict[str, float]]]] = {name: defaultdict(list) for name in children}
    layers: dict[str, list[dict[str, float]]] = defaultdict(list)
    for turn in range(rounds):
        for target in map(str, TARGETS):
            for name, child in children.items():
                setting = tuned[name][target]["setting"]
                if setting is not None and (name != "exact" or target == str(TARGETS[0])):
                    count = 64 if name == "exact" else 512
                    speeds[name][target].append(child.order("round", setting=setting, count=count))
        for target in LAYER_TARGETS:
            layers[target].append(children["recsys_cg"].order("layer", setting=tuned["recsys_cg"][target]["setting"]))
        print(f"  round {turn + 1} of {rounds}", flush=True)
    resident = {name: child.loaded["resident_mb"] for name, child in children.items()}
    return {"speeds": speeds, "layers": layers, "resident_mb": resident}


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
        for name, by_target in measured["tuned"].items():
            if name != "exact" and by_target[str(target)]["setting"] is not None:
                bound = (">=", target) if name == "recsys_cg" else None
                shown = "" if name == "recsys_cg" else f"{name}_"
                figures.append(
                    measure_figure(
                        f"held_out_recall_{shown}at_target_{target}_{label}",
                        [by_target[str(target)]["recall"]],
                        "share",
                        target=bound,
                    )
                )
        for kind in ("single", "batch"):
            figures += _compare(label, measured, target, kind, judged=judged)
    return figures


def _compare(label: str, measured: dict[str, Any], target: float, kind: str, *, judged: bool) -> list[Figure]:
    rounds = {
        name: [one[f"{kind}_qps"] for one in by_target[str(target)]]
        for name, by_target in measured["speeds"].items()
        if by_target.get(str(target))
    }
    peers = {name: values for name, values in rounds.items() if name in NEEDS}
    best = max(peers, key=lambda name: float(np.median(peers[name])))
    wanted = RATIO_TARGETS.get(target) if kind == "single" and judged else None
    figures = [
        measure_figure(
            f"qps_{kind}_recall_{target}_{label}",
            rounds["recsys_cg"],
            "queries/s",
            against=SYSTEMS[best].label,
            peers=peers[best],
            target=(">=", wanted) if wanted else None,
        )
    ]
    return figures + [
        measure_figure(f"qps_{kind}_{name}_recall_{target}_{label}", values, "queries/s")
        for name, values in rounds.items()
        if name != "recsys_cg"
    ]


def _layer_figures(label: str, measured: dict[str, Any], *, judged: bool) -> list[Figure]:
    """Return what the layer adds to a bare search, and how much of that ScaNN itself takes to find as many as needed.

    A history of 50 that is left out makes 150 results necessary where 100 are wanted.
    """
    figures = []
    for target, rounds in measured["layers"].items():
        for kind, bound in (("single", 0.4), ("batch", 0.1)):
            name = f"{kind}_recall_{target}_{label}"
            added = [one[kind] for one in rounds]
            figures.append(
                measure_figure(f"layer_adds_{name}", added, "share", target=("<=", bound) if judged else None)
            )
            figures.append(
                measure_figure(f"of_which_wider_search_{name}", [one[f"{kind}_wider"] for one in rounds], "share")
            )
    return figures


def _choose_systems(*, quick: bool) -> list[str]:
    names = [name for name in SYSTEMS if not NEEDS.get(name) or importlib.util.find_spec(NEEDS[name])]
    if "faiss_ivf" not in names:
        raise SystemExit("faiss is not installed; install the bench extra: pip install '.[bench]'")
    if wanted := os.environ.get("SYSTEMS"):
        names = [name for name in names if name in wanted.split(",")]
    return [name for name in names if name not in {"hnswlib", "usearch"}] if quick else names


def _collect(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the last rounds of every size that has any, smallest first."""
    sizes = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    kept = {size: Pieces(folder / str(size)).read("rounds") for size in sizes}
    return {size: piece["value"] for size, piece in kept.items() if piece is not None}


def main(folder: Path = FOLDER) -> Path | None:
    """Run the benchmark and write ``folder/index.json``; None where it only builds."""
    started = time.monotonic()
    quick, only_build = os.environ.get("QUICK") == "1", os.environ.get("ONLY") == "build"
    sizes = [20_000] if quick else [int(size) for size in os.environ.get("SIZES", "100000,1000000").split(",")]
    names = _choose_systems(quick=quick)
    home = folder / ("index-quick" if quick else "index")
    for size in sizes:
        pieces = Pieces(home / str(size))
        test = 1024 if quick else 2048
        pieces.get("data", code_key("exact"), lambda pieces=pieces, size=size, test=test: _prepare(pieces, size, test))
        print(f"{size:,} vectors, {time.monotonic() - started:.0f} s", flush=True)
        measured = measure(names, pieces, 0 if only_build else 3 if quick else 5)
        if measured:
            pieces.get("rounds", str(time.time()), lambda measured=measured: measured)
    if only_build:
        return None
    collected = _collect(home)
    figures = [figure for size, measured in collected.items() for figure in make_figures(size, measured)]
    settings = {str(size): measured["tuned"] for size, measured in collected.items()}
    return write_record("index-quick" if quick else "index", figures, started, folder, settings=settings)


def _prepare(pieces: Pieces, size: int, test: int) -> dict[str, Any]:
    prepare(pieces.folder, size, DIM, 1024, test, K)
    return {"items": size, "test": test}


if __name__ == "__main__":
    main()
