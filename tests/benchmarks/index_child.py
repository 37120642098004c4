"""One system in a process of its own, for `bench_index`: answers one line of JSON for one line of JSON.

    python -m tests.benchmarks.index_child build SYSTEM FOLDER    build, save, print the cost
    python -m tests.benchmarks.index_child serve SYSTEM FOLDER    load, then obey

All times are processor seconds of the process, so that neighbours on a shared machine distort them less.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.index_systems import SYSTEMS, Exact, Ours, Setting, System

BATCH = 256
SINGLES = 512
MARGIN_SE = 2.0
_REPEATS = 5
_WARM_ITEMS, _WARM_QUERIES = 3_000, 256


def main() -> None:
    mode, name, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    system = SYSTEMS[name]()
    if mode == "build":
        print(json.dumps(_build(system, name, folder)), flush=True)
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    served = Served(system, name, folder)
    print(json.dumps({"resident_mb": served.resident_mb}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(getattr(served, order.pop("do"))(**order)), flush=True)


def _build(system: System, name: str, folder: Path) -> dict[str, Any]:
    vectors = np.load(folder / "vectors.npy")
    queries = np.load(folder / "tuning.npy")
    wall, cpu = time.perf_counter(), time.process_time()
    info = system.build(vectors, folder / f"index_{name}", queries)
    cost = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    return {**cost, "info": info}


def _resident_mb() -> float:
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _warm(system: System, vectors: np.ndarray) -> None:
    """Build, load and search a small index of the kind, so that the library's own pages do not count as the index's."""
    system.warm()
    few, again = np.array(vectors[:_WARM_ITEMS]), type(system)()
    with tempfile.TemporaryDirectory(prefix="bench-index-") as scratch:
        again.build(few, Path(scratch) / "index", few[:_WARM_QUERIES])
        again.load(Path(scratch) / "index", few)
        for count in (1, BATCH):
            again.search(few[:count])
    gc.collect()


class Served:
    """A loaded system and the orders it obeys."""

    def __init__(self, system: System, name: str, folder: Path) -> None:
        self.system = system
        self.queries = {part: np.load(folder / f"{part}.npy") for part in ("tuning", "test")}
        self.exact = {part: np.load(folder / f"{part}_exact.npy") for part in ("tuning", "test")}
        vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        _warm(system, vectors)
        before = _resident_mb()
        system.load(folder / f"index_{name}", vectors)
        self.resident_mb = _resident_mb() - before

    def _recall(self, part: str) -> NDArray[np.float64]:
        """Return the recall of each query."""
        queries, exact = self.queries[part], self.exact[part]
        hits: list[int] = []
        for start in range(0, len(queries), BATCH):
            found = self.system.search(queries[start : start + BATCH])
            truth = exact[start : start + BATCH, : self.system.k]
            hits += [len(np.intersect1d(a, b)) for a, b in zip(found, truth, strict=True)]
        return np.array(hits) / self.system.k

    def _reaches(self, target: float) -> bool:
        recall = self._recall("tuning")
        return bool(recall.mean() - MARGIN_SE * recall.std(ddof=1) / math.sqrt(len(recall)) >= target)

    def tune(self, target: float) -> dict[str, Any]:
        """Choose a setting on the tuning queries; say its recall on the test queries."""
        system = self.system
        if isinstance(system, Ours):
            chosen: Setting | None = system.tune(self.queries["tuning"], target)
        elif isinstance(system, Exact):
            return {"setting": [0, 0], "recall": 1.0}
        else:
            chosen = self._tune_by_grid(target)
        if chosen is None:
            return {"setting": None}
        system.apply(chosen)
        return {"setting": list(chosen), "recall": float(self._recall("test").mean())}

    def _tune_by_grid(self, target: float) -> Setting | None:
        survivors: list[tuple[float, Setting]] = []
        for outer in self.system.outer:
            inner = self.system.inner()
            low, high = 0, len(inner)
            while low < high:
                middle = (low + high) // 2
                self.system.apply((outer, inner[middle]))
                low, high = (low, middle) if self._reaches(target) else (middle + 1, high)
            if low < len(inner):
                setting = (outer, inner[low])
                survivors.append((min(self._single_s(setting, 128) for _ in range(3)), setting))
        return min(survivors)[1] if survivors else None

    def _single_s(self, setting: Setting, count: int) -> float:
        self.system.apply(setting)
        queries = self.queries["test"]
        started = time.process_time()
        for start in range(count):
            self.system.search(queries[start : start + 1])
        return time.process_time() - started

    def round(self, setting: Setting, count: int = SINGLES) -> dict[str, float]:
        """Time single queries and the test queries in batches, once."""
        single = count / self._single_s(setting, count)
        queries = self.queries["test"][: 4 * count]
        started = time.process_time()
        for start in range(0, len(queries), BATCH):
            self.system.search(queries[start : start + BATCH])
        return {"single_qps": single, "batch_qps": len(queries) / (time.process_time() - started)}

    def layer(self, setting: Setting) -> dict[str, float]:
        """Compare this library's search, 50 rows excluded, with the bare ScaNN call: what it adds, as a share.

        Of the excluded rows 25 are among the query's nearest 150 and 25 anywhere. ``single_wider`` and ``batch_wider``
        are the part of that which the bare call takes itself when it is asked for 50 more results and candidates.
        """
        system = self.system
        if not isinstance(system, Ours):
            raise TypeError("only recsys_cg has a layer")
        system.apply(setting)
        queries, rng = self.queries["test"], np.random.default_rng(0)
        size = system.retriever.size
        near = self.exact["test"][:, :150]
        exclude = [
            np.concatenate([rng.choice(row, 25, replace=False), rng.integers(0, size, 25)]).astype(np.int32)
            for row in near
        ]
        native, retriever, k = system.native, system.retriever, system.k
        reorder, leaves = setting
        wide, deep = k + len(exclude[0]), reorder + len(exclude[0])
        totals = np.zeros(6)
        for first in range(0, min(1024, len(queries)), BATCH):
            part, cut = range(first, first + BATCH), slice(first, first + BATCH)
            works = (
                lambda part=part: [native.search(queries[i], k, reorder, leaves) for i in part],
                lambda part=part: [retriever.search(queries[i : i + 1], k, exclude=exclude[i : i + 1]) for i in part],
                lambda cut=cut: native.search_batched(queries[cut], k, reorder, leaves, False, BATCH),
                lambda cut=cut: retriever.search(queries[cut], k, exclude=exclude[cut]),
                lambda part=part: [native.search(queries[i], wide, deep, leaves) for i in part],
                lambda cut=cut: native.search_batched(queries[cut], wide, deep, leaves, False, BATCH),
            )
            totals += np.min([[_time(work) for work in works] for _ in range(_REPEATS)], axis=0)
        bare_one, one, bare_batch, batch, wide_one, wide_batch = totals.tolist()
        return {
            "single": one / bare_one - 1.0,
            "batch": batch / bare_batch - 1.0,
            "single_wider": wide_one / bare_one - 1.0,
            "batch_wider": wide_batch / bare_batch - 1.0,
        }


def _time(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
