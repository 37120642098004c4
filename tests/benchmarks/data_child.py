"""One run of one system in a process of its own, for `bench_data`: prints seconds and peak memory as JSON."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.config import Config
from recsys_cg.schema import queries_schema, sequences_schema

SYSTEMS = ("beam", "beam_2_workers", "pandas", "polars")
ITEM_COLUMNS = ("item_id", "train_count", "train_weight", "first_seen_us", "last_seen_us", "bucket", "q")
EVALUATED_SHARE = 0.01


def make_config(world: Path) -> Config:
    """Return the project that all systems work on: no catalogue, 1% of the events in each evaluation window."""
    return Config.model_validate(
        {
            "interactions": {
                "path": str(world / "events"), "format": "parquet", "time_unit": "ms", "event": "event",
                "event_weights": {"click": 1.0, "purchase": 3.0},
            },
            "dataset": {"validation_fraction": EVALUATED_SHARE, "test_fraction": EVALUATED_SHARE},
            "serving": {"histories": False},
        }
    )  # fmt: skip


def main(argv: list[str] | None = None) -> None:
    """Run ``SYSTEM WORLD OUT``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("world", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keep", action="store_true", help="write the result, to compare it with others")
    given = parser.parse_args(argv)
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    run = _run_beam if given.system.startswith("beam") else _run_peer
    print(json.dumps(run(given.system, given.world, given.out, keep=given.keep)))


def _run_beam(system: str, world: Path, out: Path, *, keep: bool) -> dict[str, float]:
    from recsys_cg.beam.dataset import build_dataset

    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"] if system.endswith("workers") else []
    with _measure() as measured:
        build_dataset(make_config(world), out, runner=flags)
    del keep
    return measured


def _run_peer(system: str, world: Path, out: Path, *, keep: bool) -> dict[str, float]:
    from tests.benchmarks.data_peers import run_pandas, run_polars

    run = run_pandas if system == "pandas" else run_polars
    __import__(system)
    with _measure() as measured:
        tables = run(world / "events", make_config(world))
    if keep:
        _write_peer(tables, out)
    return measured


def _write_peer(tables: dict[str, Any], out: Path) -> None:
    schemas = {"sequences": sequences_schema, "validation": queries_schema, "test": queries_schema}
    for name, frame in tables.items():
        arrow = frame.to_arrow() if hasattr(frame, "to_arrow") else pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(arrow.cast(schemas[name]) if name in schemas else arrow, out / f"{name}.parquet")


@contextmanager
def _measure() -> Iterator[dict[str, float]]:
    """Give a mapping that holds, when the block has ended, its wall and CPU seconds and the peak of the memory."""
    measured: dict[str, float] = {}
    before = os.times()
    with _watch_tree() as peak:
        started = time.perf_counter()
        yield measured
        measured["seconds"] = time.perf_counter() - started
    after = os.times()
    measured["cpu_s"] = sum(after[:4]) - sum(before[:4])
    measured["peak_mb"] = peak[0] / 2**20


@contextmanager
def _watch_tree() -> Iterator[list[int]]:
    """Give the greatest resident memory of this process and its children together, in bytes.

    Children are sampled 20 times a second; this process alone is taken from the kernel's own peak (VmHWM: the peak
    that `getrusage` tells is inherited from the process that started this one).
    """
    peak = [0]
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], sum(_resident(pid) for pid in _tree(os.getpid())))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        highest = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        peak[0] = max(peak[0], int(highest.split()[1]) * 1024)


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            tasks = Path(f"/proc/{pid}/task").iterdir()
            for task in tasks:
                found.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
