"""What a benchmark says: figures with spread and target, as a table for people and `.bench/NAME.json` for machines."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(".bench")


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the median of the rounds.
        spread: smallest and largest of the rounds.
        unit: of value and spread.
        against: what it is compared with; None: nothing.
        against_value: the median of that, in the same unit.
        ratio: median over the rounds of value / against_value; None without a peer.
        target: in words, e.g. ``"<= 1.5"``; None: none was set.
        met: whether the target was met; None without a target.
    """

    name: str
    value: float
    spread: tuple[float, float]
    unit: str
    against: str | None = None
    against_value: float | None = None
    ratio: float | None = None
    target: str | None = None
    met: bool | None = None


def measure_figure(
    name: str,
    values: Sequence[float],
    unit: str,
    *,
    against: str | None = None,
    peers: Sequence[float] = (),
    target: tuple[str, float] | None = None,
) -> Figure:
    """Make a figure of rounds; a target is judged by the ratio to the peer of the same round, or the value alone."""
    ratios = [value / peer for value, peer in zip(values, peers, strict=True)] if peers else []
    value, ratio = statistics.median(values), statistics.median(ratios) if ratios else None
    judged = value if ratio is None else ratio
    met = None
    if target is not None:
        sign, bound = target
        met = {"<=": judged <= bound, ">=": judged >= bound, ">": judged > bound}[sign]
    return Figure(
        name=name,
        value=_round(value),
        spread=(_round(min(values)), _round(max(values))),
        unit=unit,
        against=against,
        against_value=_round(statistics.median(peers)) if peers else None,
        ratio=_round(ratio) if ratio is not None else None,
        target=f"{target[0]} {target[1]:g}" if target else None,
        met=met,
    )


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def write_record(name: str, figures: Sequence[Figure], started: float, folder: Path = FOLDER, **more: Any) -> Path:
    """Write ``folder/name.json`` and print a table; ``started`` is the `time.monotonic` of the beginning."""
    record = {
        "bench": name,
        "commit": _commit(),
        "machine": _machine(),
        "seconds": round(time.monotonic() - started, 1),
        **more,
        "figures": [asdict(figure) for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    _print_table(figures)
    print(f"written: {path}")
    return path


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _machine() -> dict[str, Any]:
    packages = ("numpy", "pandas", "pyarrow", "polars", "apache-beam", "tensorflow", "scann")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 2**30, 1),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "packages": versions,
    }


def _print_table(figures: Sequence[Figure]) -> None:
    header = ("figure", "value", "spread", "against", "its value", "ratio", "target", "met")
    rows = [header]
    for figure in figures:
        low, high = figure.spread
        rows.append(
            (
                figure.name,
                f"{figure.value:g} {figure.unit}",
                f"{low:g} to {high:g}",
                figure.against or "",
                "" if figure.against_value is None else f"{figure.against_value:g}",
                "" if figure.ratio is None else f"{figure.ratio:g}",
                figure.target or "",
                {None: "", True: "yes", False: "NO"}[figure.met],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
