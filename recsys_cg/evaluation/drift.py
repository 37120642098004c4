"""Drift against the previous release, on probes that are frozen by item id and so outlive a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.geometry import mean_pairwise_similarity
from recsys_cg.index.base import Retriever
from recsys_cg.schema import queries_schema

__all__ = ["Probe", "freeze_probes", "measure_drift", "probes_schema", "run_probes", "thaw_probes"]

Floats = NDArray[np.float64]

probes_schema: Final = pa.schema(
    [
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("history_ids", pa.list_(pa.string()), nullable=False),
        pa.field("history_times_us", pa.list_(pa.int64()), nullable=False),
        pa.field("history_events", pa.list_(pa.string()), nullable=False),
    ]
)
"""Frozen probe queries, items and events by name: rows and codes change with the dataset. They carry no user."""


@dataclass(frozen=True)
class Probe:
    """What one release answers to the probes.

    Attributes:
        item_ids: one array of item_ids a probe, best first.
        nearest_distance: [probes] ``1 - similarity`` of the best item, NaN for an empty list.
        query_norms: [probes] norms of the query vectors.
        mean_similarity: mean dot product of two different probes' vectors.
    """

    item_ids: list[pa.Array]
    nearest_distance: Floats
    query_norms: Floats
    mean_similarity: float | None


def freeze_probes(queries: pa.Table, items: pa.Table, events: Sequence[str], *, count: int, seed: int) -> pa.Table:
    """Draw at most ``count`` queries that have a history; name their items and events; see `probes_schema`."""
    usable = np.flatnonzero(Ragged.from_column(queries, "history").lengths > 0)
    chosen = np.sort(np.random.default_rng(seed).permutation(usable)[:count])
    table = queries.take(chosen)
    history = Ragged.from_column(table, "history")
    ids = items.column("item_id").combine_chunks().take(pa.array(history.values))
    lists = pa.ListArray.from_arrays(pa.array(history.offsets.astype(np.int32)), ids)
    codes = Ragged.from_column(table, "history_events")
    names = pa.array(list(events), pa.string()).take(pa.array(codes.values))
    named = pa.ListArray.from_arrays(pa.array(codes.offsets.astype(np.int32)), names)
    columns = [table.column("time_us"), lists, table.column("history_times_us"), named]
    return pa.table(columns, names=probes_schema.names).cast(probes_schema)


def thaw_probes(probes: pa.Table, items: pa.Table, events: Sequence[str]) -> pa.Table:
    """Return the probes as queries over ``items`` and the codes of ``events``.

    Items that are no longer there leave the histories; an event that is not there becomes the first, as in a lookup.
    """
    ids = Ragged.from_column(probes, "history_ids")
    value_set = items.column("item_id").combine_chunks()
    rows = pc.fill_null(pc.index_in(pa.array(ids.values, pa.string()), value_set=value_set), -1).to_numpy()
    known = rows >= 0
    history = Ragged(rows.astype(np.int32), ids.offsets).keep(known)
    named = Ragged.from_column(probes, "history_events").keep(known)
    places = pc.index_in(pa.array(named.values, pa.string()), value_set=pa.array(list(events), pa.string()))
    codes = Ragged(pc.fill_null(places, 0).to_numpy().astype(np.int8), named.offsets)
    columns = {
        "user_id": pa.array([""] * probes.num_rows, pa.string()),
        "time_us": probes.column("time_us"),
        "targets": pa.array([[]] * probes.num_rows, pa.list_(pa.int32())),
        "history": history.to_arrow(),
        "history_times_us": Ragged.from_column(probes, "history_times_us").keep(known).to_arrow(),
        "history_events": codes.to_arrow(),
        "history_length": pa.array(history.lengths.astype(np.int32)),
        "seen": history.to_arrow(),
    }
    return pa.table(columns).cast(queries_schema)


def run_probes(
    probes: pa.Table,
    items: pa.Table,
    encode: Callable[[pa.Table], NDArray[np.float32]],
    retriever: Retriever,
    *,
    events: Sequence[str],
    k: int,
) -> Probe:
    """Ask one release.

    Args:
        probes: see `probes_schema`.
        items: ``item_id`` of each row of the retriever, which are also the rows that ``encode`` knows.
        encode: queries table -> [queries, dim] unit vectors.
        retriever: of the release.
        events: names of the event codes that ``encode`` knows.
        k: list length.
    """
    queries = thaw_probes(probes, items, events)
    vectors = encode(queries)
    found = retriever.search(vectors, min(k, max(retriever.size, 1)))
    ids = items.column("item_id").combine_chunks()
    best = found.scores[:, 0].astype(np.float64) if found.scores.shape[1] else np.full(len(vectors), -np.inf)
    return Probe(
        item_ids=[ids.take(pa.array(row[row >= 0])) for row in found.rows],
        nearest_distance=np.where(np.isfinite(best), 1.0 - best, np.nan),
        query_norms=np.linalg.norm(vectors.astype(np.float64), axis=1),
        mean_similarity=mean_pairwise_similarity(vectors) if len(vectors) > 1 else None,
    )


def measure_drift(current: Probe, previous: Probe, *, k: int) -> dict[str, Any]:
    """Compare two releases on the same probes.

    Returns:
        ``probes``; ``churn@k``: mean over probes of the share of the previous list that the current one lacks;
        for ``nearest_distance`` and ``query_norm`` the means and the two-sample Kolmogorov-Smirnov statistic with its
        asymptotic p-value; ``mean_pairwise_similarity`` of both.

    Raises:
        EnvironmentMismatchError: SciPy is not installed.
    """
    if not current.item_ids or len(current.item_ids) != len(previous.item_ids):
        return {"probes": 0}
    kept = [
        (pc.sum(pc.is_in(old, value_set=new)).as_py() or 0) / len(old)
        for new, old in zip(current.item_ids, previous.item_ids, strict=True)
        if len(old)
    ]
    return {
        "probes": len(current.item_ids),
        f"churn@{k}": 1.0 - float(np.mean(kept)) if kept else None,
        "nearest_distance": _two_samples(current.nearest_distance, previous.nearest_distance),
        "query_norm": _two_samples(current.query_norms, previous.query_norms),
        "mean_pairwise_similarity": {"current": current.mean_similarity, "previous": previous.mean_similarity},
    }


def _two_samples(current: Floats, previous: Floats) -> dict[str, float | None]:
    try:
        from scipy.stats import ks_2samp  # noqa: PLC0415 - SciPy is of the report extra
    except ImportError as error:
        raise EnvironmentMismatchError("drift needs SciPy: pip install 'recsys-cg[report]'") from error
    now, then = current[~np.isnan(current)], previous[~np.isnan(previous)]
    if not len(now) or not len(then):
        return {"ks": None, "p_value": None, "mean": None, "previous_mean": None}
    # The last bits of a norm are no drift: compare at the precision of float32.
    test = ks_2samp(np.round(now, 6), np.round(then, 6), method="asymp")
    return {
        "ks": float(test.statistic),
        "p_value": float(test.pvalue),
        "mean": float(now.mean()),
        "previous_mean": float(then.mean()),
    }
