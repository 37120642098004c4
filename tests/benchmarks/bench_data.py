"""`make bench-data`: the interactions job against pandas in memory and lazy polars, on the simulated world.

    python -m tests.benchmarks.bench_data          20M events, three rounds
    QUICK=1 python -m tests.benchmarks.bench_data  1M events, one round

Every run is a process of its own; rounds are interleaved; the results are compared row for row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cg.data.worlds import WorldConfig, simulate_world
from tests.benchmarks.data_child import EVALUATED_SHARE, ITEM_COLUMNS, SYSTEMS
from tests.benchmarks.record import FOLDER, Figure, measure_figure, write_record

Runs = dict[str, list[dict[str, float]]]


def prepare_world(events: int, folder: Path) -> tuple[Path, float | None]:
    """Return a world of ``events`` with 50 events a user, and the seconds it took; None where it was there."""
    config = WorldConfig(events=events, users=max(events // 50, 100), items=max(events // 200, 1000), impressions=0.0)
    world = folder / f"world-{events}"
    if (world / "world.json").is_file():
        known = json.loads((world / "world.json").read_text(encoding="utf-8"))["config"]
        if known == config.model_dump(mode="json"):
            return world, None
        shutil.rmtree(world)
    started = time.perf_counter()
    simulate_world(world, config)
    return world, time.perf_counter() - started


def run_system(system: str, world: Path, out: Path, *, keep: bool = False) -> dict[str, float]:
    """Run one system in its own process; return its seconds and peak memory."""
    command = [sys.executable, "-m", "tests.benchmarks.data_child", system, str(world), str(out)]
    done = subprocess.run([*command, *(["--keep"] if keep else [])], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{system} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {system}: {result['seconds']:.2f} s, {result['cpu_s']:.2f} CPU s, {result['peak_mb']:.0f} MB", flush=True)
    return result


def count_differences(beam: Path, peer: Path) -> dict[str, int]:
    """Return how many rows differ in each table; every table is put into one order first."""
    differences = {}
    items = pq.read_table(beam / "items.parquet", columns=list(ITEM_COLUMNS))
    differences["items"] = _differing(items, pq.read_table(peer / "items.parquet"))
    orders = {
        "sequences": ["user_id"],
        "validation": ["user_id", "time_us", "target"],
        "test": ["user_id", "time_us", "target"],
    }
    for name, order in orders.items():
        folder = beam / ("sequences" if name == "sequences" else f"queries/{name}")
        ours = pa.concat_tables(pq.read_table(part) for part in sorted(folder.iterdir()))
        differences[name] = _differing(_sort(ours, order), _sort(pq.read_table(peer / f"{name}.parquet"), order))
    return differences


def _sort(table: pa.Table, order: list[str]) -> pa.Table:
    if "target" in order:
        table = table.append_column("target", pc.list_element(table["targets"], 0))
    return table.sort_by([(name, "ascending") for name in order])


def _differing(ours: pa.Table, theirs: pa.Table) -> int:
    if ours.num_rows != theirs.num_rows:
        return abs(ours.num_rows - theirs.num_rows)
    theirs = theirs.select(ours.column_names).cast(ours.schema)
    if ours.equals(theirs):
        return 0
    step = 10_000
    pairs = ((ours.slice(at, step), theirs.slice(at, step)) for at in range(0, ours.num_rows, step))
    return sum(
        a != b
        for one, two in pairs
        if not one.equals(two)
        for a, b in zip(one.to_pylist(), two.to_pylist(), strict=True)
    )


def run_rounds(world: Path, scratch: Path, rounds: int) -> tuple[Runs, dict[str, dict[str, int]]]:
    """Run all systems ``rounds`` times, one after the other; compare the results of the first round."""
    runs: Runs = {system: [] for system in SYSTEMS}
    differences = {}
    for number in range(rounds):
        for system in SYSTEMS:
            runs[system].append(run_system(system, world, scratch / system, keep=number == 0))
        if number == 0:
            for peer in ("pandas", "polars"):
                differences[f"beam vs {peer}"] = count_differences(scratch / "beam", scratch / peer)
                differences[f"beam_2_workers vs {peer}"] = count_differences(scratch / "beam_2_workers", scratch / peer)
            print(f"  rows that differ: {differences}", flush=True)
    return runs, differences


def make_figures(runs: Runs, small: list[dict[str, float]], factor: float, label: str) -> list[Figure]:
    """Return the figures of `make bench-data`; only those against pandas have targets."""
    units = {"seconds": "s", "cpu_s": "s", "peak_mb": "MB"}
    bounds = {("beam", "seconds"): 1.5, ("beam", "peak_mb"): 0.5, ("beam_2_workers", "seconds"): 0.8}
    figures = []
    for system in ("beam", "beam_2_workers"):
        for what, unit in units.items():
            for peer in ("pandas", "polars"):
                bound = bounds.get((system, what)) if peer == "pandas" else None
                figures.append(
                    measure_figure(
                        f"{system}_{what}_{label}",
                        [run[what] for run in runs[system]],
                        unit,
                        against=peer,
                        peers=[run[what] for run in runs[peer]],
                        target=("<=", bound) if bound else None,
                    )
                )
    for what, bound in (("seconds", 1.2), ("cpu_s", None)):
        growth = [run[what] / (factor * little[what]) for run, little in zip(runs["beam"], small, strict=True)]
        target = ("<=", bound) if bound else None
        figures.append(measure_figure(f"beam_growth_of_{what}_x{factor:g}", growth, "times linear", target=target))
    return figures


def main(folder: Path = FOLDER) -> Path:
    """Measure, compare, write ``folder/data.json``; a difference in the rows is an error."""
    started = time.monotonic()
    is_quick = os.environ.get("QUICK", "") not in ("", "0")
    large, little, rounds = (1_000_000, 100_000, 1) if is_quick else (20_000_000, 2_000_000, 3)
    world, made_s = prepare_world(large, folder)
    small_world, _ = prepare_world(little, folder)
    scratch = folder / "data-scratch"
    runs, differences = run_rounds(world, scratch, rounds)
    small = [run_system("beam", small_world, scratch / "small") for _ in range(rounds)]
    figures = make_figures(runs, small, large / little, f"{large // 1_000_000}m")
    if made_s is not None:
        figures.append(measure_figure("world_events_per_second", [large / made_s], "events/s", target=(">=", 300_000)))
    path = write_record(
        "data", figures, started, folder,
        protocol=f"{EVALUATED_SHARE:.0%} of the events each in validation and test, a query an event, histories of 50; "
        "peers hold the result in memory, the job writes it; processes of their own, interleaved rounds",
        rows_that_differ=differences,
    )  # fmt: skip
    shutil.rmtree(scratch)
    if any(count for tables in differences.values() for count in tables.values()):
        raise SystemExit(f"results differ: {differences}")
    return path


if __name__ == "__main__":
    main()
