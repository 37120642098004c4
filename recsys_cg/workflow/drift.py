"""Drift of what is served now: against its predecessor, against fresh queries, and against time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cg.errors import StoreError
from recsys_cg.evaluation.drift import compare_queries, measure_drift
from recsys_cg.evaluation.probes import Answers, answer, probes_schema, run_probes
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.release.backend import MOVES
from recsys_cg.release.reading import primary_k
from recsys_cg.release.store import Store
from recsys_cg.repeats import Repeats
from recsys_cg.schema import ReleaseFiles
from recsys_cg.serving.queries import encode_queries
from recsys_cg.serving.release import Release
from recsys_cg.workflow.fresh_queries import read_requests

__all__ = ["PROBES", "ask_probes", "describe_drift", "look_at_drift", "read_probes"]

PROBES = "probes.parquet"
_HOUR_US = 3.6e9
_SEED = 0


def read_probes(release: Path) -> pa.Table | None:
    """Return the probes that the report of ``release`` froze: drift is measured on the same ones for good.

    Probes of an earlier layout are not read: None.
    """
    path = release / ReleaseFiles.REPORT / PROBES
    probes = pq.read_table(path) if path.is_file() else None
    return probes if probes is not None and probes.schema.equals(probes_schema) else None


def ask_probes(release: Release, probes: pa.Table, k: int) -> Answers:
    """Ask a release the frozen probes, through its index and exactly."""
    return run_probes(
        probes,
        _items(release),
        partial(encode_queries, release.encoder, release.history_vectors),
        release.retriever,
        ExactRetriever(release.vectors),
        events=release.encoder.contract.events,
        k=k,
        repeats=_repeats(release),
    )


def look_at_drift(store_path: str, *, against: str | None = None, requests: Path | None = None) -> dict[str, Any]:
    """Measure the release that is served.

    Args:
        store_path: directory or URL of the store.
        against: an earlier release; None: the predecessor, if there is one.
        requests: fresh requests, see `recsys_cg.workflow.fresh_queries.read_requests`.

    Returns:
        ``{"release", "against", "k", "measured_us", "frozen", "staleness"}`` and, with ``requests``, ``"fresh"``.
        ``frozen`` is `measure_drift`'s, ``fresh`` is `compare_queries`'s.

    Raises:
        StoreError: nothing is published, or the report of what is served holds no probes.
        ReleaseNotFoundError: there is no release ``against``.
    """
    store = Store(store_path)
    name = store.current()
    if name is None:
        raise StoreError(f"{store_path}: nothing is published yet, so nothing can drift")
    path, k = store.path_of(name), primary_k(store.report_of(name))
    probes = read_probes(path)
    if probes is None:
        raise StoreError(f"{name} carries no probes that this version reads: evaluate and publish it again")
    release, other = Release.open(path), against or store.predecessor()
    previous = None if other is None else ask_probes(Release.open(store.path_of(other)), probes, k)
    current, now_us = ask_probes(release, probes, k), time.time_ns() // 1000
    result: dict[str, Any] = {
        "release": name,
        "against": other,
        "k": k,
        "measured_us": now_us,
        "frozen": measure_drift(current, previous, k=k),
        "staleness": _staleness(store, release, now_us),
    }
    if requests is not None:
        fresh = read_requests(requests, release, now_us=now_us, seed=_SEED)
        result["fresh"] = fresh.describe() | compare_queries(_ask(release, fresh.table, k), current, k=k)
    return result


def _ask(release: Release, queries: pa.Table, k: int) -> Answers:
    vectors = encode_queries(release.encoder, release.history_vectors, queries)
    exact, repeats = ExactRetriever(release.vectors), _repeats(release)
    return answer(queries, _items(release), vectors, release.retriever, exact, k=k, repeats=repeats)


def _repeats(release: Release) -> Repeats | None:
    """Return how a release ranks what a user met; None where it answers none of it."""
    if release.filters_seen:
        return None
    return release.repeats or Repeats(release.vectors, 0.0, release.encoder.contract.max_history)


def _items(release: Release) -> pa.Table:
    return pq.read_table(release.path / ReleaseFiles.ITEMS, columns=["item_id"])


def _staleness(store: Store, release: Release, now_us: int) -> dict[str, Any]:
    """Return ages in hours, and shares of the items that are embedded by another encoder or not available now."""
    items = pq.read_table(release.path / ReleaseFiles.ITEMS, columns=["encoder_digest"])
    own = pc.equal(items["encoder_digest"], str(release.manifest.info["encoder_digest"]))
    available = release.availability.at(now_us)
    moved = [entry["time"] for entry in store.log() if entry["action"] in MOVES and entry["to"] == release.name]
    return {
        "items": len(release),
        "stale_fraction": 1.0 - (pc.sum(own).as_py() or 0) / max(len(release), 1),
        "unavailable_share": 0.0 if available is None else 1.0 - float(np.mean(available)),
        "release_age_hours": _hours(release.manifest.created, now_us),
        "served_hours": _hours(moved[-1], now_us) if moved else None,
        "data_age_hours": _data_age(release.manifest.info.get("windows"), now_us),
    }


def _hours(text: str, now_us: int) -> float:
    return (now_us - datetime.fromisoformat(text).timestamp() * 1e6) / _HOUR_US


def _data_age(windows: Any, now_us: int) -> float | None:
    until = windows.get("until_us") if isinstance(windows, Mapping) else None
    return (now_us - until) / _HOUR_US if isinstance(until, int) else None


def describe_drift(drift: Mapping[str, Any]) -> str:
    """Return the figures as indented JSON behind a line that says what was compared."""
    against = f"against {drift['against']}" if drift["against"] else "without a predecessor"
    parts = {key: drift[key] for key in ("frozen", "fresh", "staleness") if key in drift}
    return f"{drift['release']} {against}, k = {drift['k']}\n{json.dumps(parts, indent=1)}"
