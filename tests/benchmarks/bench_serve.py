"""`make bench-serve`: lookups in process against the TFRS way, and the service against its own limit.

    python -m tests.benchmarks.bench_serve          1M items, two workers, a soak of ten minutes
    ITEMS=100000 SOAK_S=60 STAGES=in_process,http python -m tests.benchmarks.bench_serve
    QUICK=1 python -m tests.benchmarks.bench_serve  20k items, short loads, a soak of 12 seconds

Stages: in_process, http, grpc, start, soak. The world (items, tower, index) is written once below .bench/serve.
Histories have 50 events, lists 100 candidates, encoding is included, seen items are left out. The load comes from a
process of its own, on the same processors as the service; the service writes no line for each request.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.benchmarks import serve_stages as stages
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record
from tests.benchmarks.serve_child import SAVED
from tests.benchmarks.serve_world import publish_twice

STAGES = ("in_process", "http", "grpc", "start", "soak")
START_ITEMS = 100_000
RAW_MB_AN_ITEM = 64 * 4 / 2**20
TFRS = "SavedModel with the TFRS ScaNN layer"


def prepare(items: int, *, peer: bool) -> Path:
    """Return the folder of a world of ``items``, made when it is not there, with the peer's SavedModel when wanted."""
    world = FOLDER / "serve" / str(items)
    _run("tests.benchmarks.serve_world", str(world), str(items))
    if peer and not (world / SAVED / "saved_model.pb").is_file():
        _run("tests.benchmarks.serve_child", "export", str(world))
    return world


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-2000:]}")


def in_process_figures(world: Path, *, quick: bool) -> tuple[list[Figure], float]:
    """Return the figures of the library and its median, milliseconds."""
    measured = stages.measure_in_process(world, 3 if quick else 5, 200 if quick else 1000)
    of = {(way, point): [one[point] for one in rounds] for way, rounds in measured.items() for point in rounds[0]}
    figures = []
    for way in ("ours_ids", "ours_events"):
        for point, bound in (("p50_ms", 0.4), ("p99_ms", 1.5)):
            target = None if quick else ("<=", bound)
            figures.append(measure_figure(f"in_process_{way}_{point}", of[way, point], "ms", target=target))
    speeds, peers = ([1 / value for value in of[way, "p50_ms"]] for way in ("ours_ids", "tfrs_ids"))
    target = None if quick else (">=", 10.0)
    figures.append(measure_figure("in_process_speed", speeds, "lookups/ms", against=TFRS, peers=peers, target=target))
    figures.append(measure_figure("in_process_tfrs_p99_ms", of["tfrs_ids", "p99_ms"], "ms"))
    return figures, float(np.median(of["ours_ids", "p50_ms"]))


def http_figures(store: Path, bodies: Path, median_ms: float, *, quick: bool) -> list[Figure]:
    """Return the figures of the HTTP service with two workers."""
    measured = stages.measure_http(store, bodies, rounds=1 if quick else 3, seconds=2 if quick else 8)
    rates = {name: [one["per_second"].get("200", 0.0) for one in measured[name]] for name in ("candidates", "constant")}
    goodput = [one["per_second"].get("200", 0.0) for one in measured["triple"]]
    refused = [one["per_second"].get("503", 0.0) for one in measured["triple"]]
    other = [
        sum(count for status, count in one["per_second"].items() if status not in ("200", "503"))
        for one in measured["triple"] + measured["half"]
    ]
    return [
        measure_figure(
            "http_closed_loop", rates["candidates"], "requests/s", peers=rates["constant"],
            against=f"constant body of {measured['body_bytes']} bytes", target=None if quick else (">=", 0.5),
        ),
        measure_figure("http_closed_loop_p99_ms", [one["p99_ms"] for one in measured["candidates"]], "ms"),
        measure_figure("http_half_rate_p50_ms", [one["p50_ms"] for one in measured["half"]], "ms"),
        measure_figure(
            "http_half_rate_p99_ms", [one["p99_ms"] for one in measured["half"]], "ms",
            target=None if quick else ("<=", round(10 * median_ms + 5, 2)),
        ),
        measure_figure(
            "http_goodput_at_triple_rate", goodput, "requests/s", against="closed loop",
            peers=rates["candidates"], target=None if quick else (">=", 0.8),
        ),
        measure_figure("http_refused_at_triple_rate", refused, "requests/s"),
        measure_figure("http_neither_answered_nor_refused", other, "requests/s", target=("<=", 0.0)),
    ]  # fmt: skip


def client_figures(store: Path, bodies: Path, *, quick: bool) -> list[Figure]:
    """Return what the gRPC client reaches beside the HTTP client."""
    measured = stages.measure_clients(store, bodies, rounds=1 if quick else 3, seconds=1 if quick else 5)
    figures = []
    for threads in (1, 8):
        rates = [[one["per_second"] for one in measured[f"{face}_{threads}"]] for face in ("grpc", "http")]
        target = None if quick else (">=", 1.0)
        label = f"grpc_client_{threads}_threads"
        figures.append(
            measure_figure(label, rates[0], "requests/s", against="HTTP client", peers=rates[1], target=target)
        )
    return figures


def start_figures(store: Path, bodies: Path, items: int, *, quick: bool) -> list[Figure]:
    """Return seconds to ready and resident memory of one worker."""
    measured = stages.measure_start(store, bodies, 1 if quick else 3)
    allowed = 150 + 1.3 * items * RAW_MB_AN_ITEM
    return [
        measure_figure(
            f"start_to_ready_{items}", [ready for ready, _ in measured], "s", target=None if quick else ("<=", 3.0)
        ),
        measure_figure(
            f"resident_{items}", [resident for _, resident in measured], "MB",
            target=None if quick else ("<=", round(allowed, 1)),
        ),
    ]  # fmt: skip


def soak_figures(store: Path, bodies: Path, *, seconds: float, every_s: float) -> list[Figure]:
    """Return errors and growth of memory over the second half of a soak with swaps."""
    result = stages.soak(store, bodies, seconds=seconds, every_s=every_s)
    resident = np.array(result["resident_mb"])
    late = resident[len(resident) // 2 :]
    growth = float(np.polyfit(np.arange(len(late)), late, 1)[0]) * len(late) if len(late) > 1 else 0.0
    bad = sum(rate for status, rate in result["statuses"].items() if status != "200")
    return [
        measure_figure("soak_swaps", [result["reloads"] - 1], "swaps"),
        measure_figure("soak_answers", [result["statuses"].get("200", 0.0)], "requests/s"),
        measure_figure("soak_errors", [bad], "requests/s", target=("<=", 0.0)),
        measure_figure("soak_growth_in_second_half", [growth], "MB", target=("<=", 5.0)),
        measure_figure("soak_resident", resident.tolist(), "MB"),
    ]


def main(folder: Path = FOLDER) -> Path:
    """Run the benchmark and write ``folder/serve.json``."""
    started = time.monotonic()
    quick = os.environ.get("QUICK") == "1"
    items = 20_000 if quick else int(os.environ.get("ITEMS", "1000000"))
    wanted = os.environ.get("STAGES", ",".join(STAGES)).split(",")
    world = prepare(items, peer="in_process" in wanted)
    print(f"{items:,} items, {time.monotonic() - started:.0f} s", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="serve-", dir=world.parent))
    figures: list[Figure] = []
    median_ms = 0.4
    try:
        store, bodies = scratch / "store", scratch / "bodies.jsonl"
        publish_twice(world, store)
        stages.write_bodies(world, bodies)
        if "in_process" in wanted:
            found, median_ms = in_process_figures(world, quick=quick)
            figures += found
        if "http" in wanted:
            figures += http_figures(store, bodies, median_ms, quick=quick)
        if "grpc" in wanted:
            figures += client_figures(store, bodies, quick=quick)
        if "start" in wanted:
            smaller = min(items, START_ITEMS)
            publish_twice(prepare(smaller, peer=False), scratch / "smaller")
            figures += start_figures(scratch / "smaller", bodies, smaller, quick=quick)
            if smaller < items:
                figures += start_figures(store, bodies, items, quick=quick)
        if "soak" in wanted:
            seconds = float(os.environ.get("SOAK_S", "12" if quick else "600"))
            figures += soak_figures(store, bodies, seconds=seconds, every_s=2 if quick else 6)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return write_record("serve", figures, started, folder, items=items)


if __name__ == "__main__":
    main()
