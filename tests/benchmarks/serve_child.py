"""One way to answer lookups in a process of its own, for `bench_serve`: one line of JSON for one line of JSON.

    python -m tests.benchmarks.serve_child ours WORLD       this library
    python -m tests.benchmarks.serve_child tfrs WORLD       a SavedModel: query tower and TFRS ScaNN layer
    python -m tests.benchmarks.serve_child export WORLD     write that SavedModel once

Both get the item ids of a history of 50 and answer 100 item ids with scores, the history left out. The SavedModel looks
ids up in a table, gathers history vectors from a variable, runs the tower that the release carries, searches by the
TFRS layer with the leaves and the reordering that the release's index was tuned to, and maps rows to ids. Both run on
one processor, in one thread, and are timed from the list of ids to the list of ids.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.serve_world import LENGTH, NOW_S, K, item_id

SAVED = "tfrs_saved_model"
_WARM = 50
Ask = Callable[[list[str], list[float]], Sequence[str]]


def main() -> None:
    mode, world = sys.argv[1], Path(sys.argv[2])
    if mode == "export":
        export_peer(world)
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    asks = open_ours(world) if mode == "ours" else {"ids": open_peer(world)}
    kept = np.load(world / "histories.npz")
    histories = [[item_id(row) for row in rows] for rows in kept["rows"].tolist()]
    times = kept["times"].astype(float).tolist()
    for ask in asks.values():
        for history, when in zip(histories[:_WARM], times, strict=False):
            found = ask(history, when)
            if len(set(found)) != K or set(found) & set(history):
                raise RuntimeError(
                    f"{mode} answered {len(set(found))} items, {len(set(found) & set(history))} of them seen"
                )
    print(json.dumps({"asks": list(asks)}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        ask, first, count = asks[order["ask"]], order["first"], order["count"]
        taken = [_time(ask, histories[i % len(histories)], times[i % len(times)]) for i in range(first, first + count)]
        p50, p99 = np.percentile(taken, [50, 99])
        print(json.dumps({"p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3}), flush=True)


def _time(ask: Ask, history: list[str], when: list[float]) -> float:
    started = time.perf_counter()
    ask(history, when)
    return time.perf_counter() - started


def open_ours(world: Path) -> dict[str, Ask]:
    """Return lookups by item ids alone, and by ids with time and event name."""
    from recsys_cg.serving.lookup import CandidateLookup

    lookup = CandidateLookup.open(world / "release", verify_files=False)

    def ask(history: list[str], _: list[float]) -> Sequence[str]:
        return [one.item_id for one in lookup.candidates(history=history, k=K).candidates]

    def ask_events(history: list[str], when: list[float]) -> Sequence[str]:
        entries = [{"item": item, "time": at, "event": "view"} for item, at in zip(history, when, strict=True)]
        return [one.item_id for one in lookup.candidates(history=entries, k=K).candidates]

    return {"ids": ask, "events": ask_events}


def export_peer(world: Path) -> None:
    """Write the SavedModel of the TFRS way into ``world``."""
    from recsys_cg.model.frameworks import tf, tfrs

    release = world / "release"
    tuned = json.loads((release / "index" / "index.json").read_text(encoding="utf-8"))["parameters"]
    vectors = tf.constant(np.load(release / "vectors.npy"))
    names = tf.constant([item_id(row) for row in range(len(vectors))])
    layer = tfrs.layers.factorized_top_k.ScaNN(
        k=K,
        num_leaves=tuned["leaves"],
        num_leaves_to_search=tuned["leaves_to_search"],
        num_reordering_candidates=tuned["reorder"],
        parallelize_batch_searches=False,
    ).index(vectors, names)

    class Peer(tf.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.vectors = layer, tf.Variable(vectors, trainable=False)
            self.tower = tf.saved_model.load(str(release / "encoder" / "query" / "saved_model"))
            rows = tf.range(len(vectors), dtype=tf.int64)
            self.rows = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(names, rows), -1)

        @tf.function(  # type: ignore[untyped-decorator, unused-ignore]
            input_signature=[tf.TensorSpec([None, LENGTH], tf.string), tf.TensorSpec([None, LENGTH], tf.float32)]
        )
        def recommend(self, history: Any, gap_s: Any) -> Any:
            rows = self.rows.lookup(history)
            query = self.tower.signatures["serving_default"](
                history=tf.gather(self.vectors, rows),
                gap_s=gap_s,
                event=tf.zeros_like(rows, tf.int32),
                length=tf.fill([tf.shape(rows)[0]], LENGTH),
            )["query"]
            scores, found = self.layer.query_with_exclusions(query, exclusions=history, k=K)
            return {"scores": scores, "items": found}

    peer = Peer()
    peer.recommend(tf.constant([[item_id(row) for row in range(LENGTH)]]), tf.zeros([1, LENGTH]))
    options = tf.saved_model.SaveOptions(namespace_whitelist=["Scann"])
    tf.saved_model.save(peer, str(world / SAVED), options=options)


def open_peer(world: Path) -> Ask:
    """Return a lookup through that SavedModel."""
    from recsys_cg.model.frameworks import tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import scann  # noqa: F401 - its operations must be registered before the graph is read

    loaded = tf.saved_model.load(str(world / SAVED))

    def ask(history: list[str], when: list[float]) -> Sequence[str]:
        gaps = np.diff(when, append=float(NOW_S)).astype(np.float32)
        answer = loaded.recommend(tf.constant([history]), tf.constant(gaps[None]))
        answer["scores"].numpy()
        found: Sequence[str] = answer["items"].numpy()[0].astype(str).tolist()
        return found

    return ask


if __name__ == "__main__":
    main()
