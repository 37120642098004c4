"""Probes: queries frozen by item id, which outlive a dataset, and what a release answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.geometry import mean_pairwise_similarity
from recsys_cg.index.base import Retriever
from recsys_cg.repeats import Repeats
from recsys_cg.schema import queries_schema

__all__ = ["Answers", "answer", "freeze_probes", "probes_schema", "run_probes", "thaw_probes"]

Floats = NDArray[np.float64]

probes_schema: Final = pa.schema(
    [
        pa.field("time_us", pa.int64(), nullable=False),
        pa.field("history_ids", pa.list_(pa.string()), nullable=False),
        pa.field("history_times_us", pa.list_(pa.int64()), nullable=False),
        pa.field("history_events", pa.list_(pa.string()), nullable=False),
        pa.field("target_ids", pa.list_(pa.string()), nullable=False),
    ]
)
"""Frozen probe queries, items and events by name: rows and codes change with the dataset. They carry no user."""

_BATCH = 256


@dataclass(frozen=True)
class Answers:
    """What one release answers to a set of queries.

    Attributes:
        item_ids: one array of item_ids a query, best first, as a lookup answers.
        nearest_distance: [queries] ``1 - similarity`` of the best item, NaN for an empty list.
        query_norms: [queries] norms of the query vectors.
        mean_similarity: mean dot product of two different queries' vectors; None for fewer than two.
        index_recall: [queries] share of exact search's list that the index found, NaN where that list is empty.
        recall: [queries] share of the targets in the list, NaN where no target is known. Targets that the release
            lacks count as missed.
    """

    item_ids: list[pa.Array]
    nearest_distance: Floats
    query_norms: Floats
    mean_similarity: float | None
    index_recall: Floats
    recall: Floats


def freeze_probes(queries: pa.Table, items: pa.Table, events: Sequence[str], *, count: int, seed: int) -> pa.Table:
    """Draw at most ``count`` queries that have a history; name their items and events; see `probes_schema`."""
    usable = np.flatnonzero(Ragged.from_column(queries, "history").lengths > 0)
    chosen = np.sort(np.random.default_rng(seed).permutation(usable)[:count])
    table = queries.take(chosen)
    lists = _name(table, "history", items)
    codes = Ragged.from_column(table, "history_events")
    names = pa.array(list(events), pa.string()).take(pa.array(codes.values))
    named = pa.ListArray.from_arrays(pa.array(codes.offsets.astype(np.int32)), names)
    columns = [table.column("time_us"), lists, table.column("history_times_us"), named, _name(table, "targets", items)]
    return pa.table(columns, names=probes_schema.names).cast(probes_schema)


def _name(table: pa.Table, column: str, items: pa.Table) -> pa.ListArray:
    """Return a column of lists of rows as lists of item_ids."""
    rows = Ragged.from_column(table, column)
    ids = items.column("item_id").combine_chunks().take(pa.array(rows.values))
    return pa.ListArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), ids)


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
    exact: Retriever,
    *,
    events: Sequence[str],
    k: int,
    repeats: Repeats | None = None,
) -> Answers:
    """Ask one release the frozen probes.

    Args:
        probes: see `probes_schema`.
        items: ``item_id`` of each row of the retriever, which are also the rows that ``encode`` knows.
        encode: queries table -> [queries, dim] unit vectors.
        retriever: of the release.
        exact: exact search over the same rows.
        events: names of the event codes that ``encode`` knows.
        k: list length.
        repeats: as of `answer`.
    """
    queries, targets = thaw_probes(probes, items, events), probes.column("target_ids").to_pylist()
    return answer(queries, items, encode(queries), retriever, exact, k=k, targets=targets, repeats=repeats)


def answer(
    queries: pa.Table,
    items: pa.Table,
    vectors: NDArray[np.float32],
    retriever: Retriever,
    exact: Retriever,
    *,
    k: int,
    targets: Sequence[Sequence[str]] | None = None,
    repeats: Repeats | None = None,
) -> Answers:
    """Search for queries whose vectors are known, through the index and exactly.

    Args:
        queries: queries schema; what stands in ``seen`` is not answered, unless ``repeats`` is given.
        items: ``item_id`` of each row of the retriever.
        vectors: float32 [queries, dim], unit norm.
        retriever: of the release.
        exact: exact search over the same rows.
        k: list length.
        targets: item_ids that each query looks for; None where nobody knows.
        repeats: where what was met is answered too, how it is ranked. The distance of the nearest item is without the
            bonus. What trends has none here: it is the hour's, not the release's.
    """
    lists, best, hits = [], np.full(len(vectors), -np.inf), np.full(len(vectors), np.nan)
    ids = items.column("item_id").combine_chunks()
    wanted = min(k, max(retriever.size, 1))
    for part in _batches(queries):
        excluded = None if repeats is not None else _lists(queries, "seen", part)
        found = retriever.search(vectors[part], wanted, exclude=excluded)
        truth = exact.search(vectors[part], wanted, exclude=excluded)
        if found.scores.shape[1]:
            best[part] = found.scores[:, 0]
        answered, expected_rows = found.rows, truth.rows
        if repeats is not None:
            own = [np.unique(rows[-repeats.max_history :]) for rows in _lists(queries, "history", part)]
            answered, _ = repeats.lift(found.rows, found.scores, vectors[part], own)
            expected_rows, _ = repeats.lift(truth.rows, truth.scores, vectors[part], own)
        lists += [ids.take(pa.array(row[row >= 0])) for row in answered]
        for place, (rows, expected) in enumerate(zip(answered, expected_rows, strict=True), start=part.start):
            if (expected >= 0).any():
                hits[place] = np.isin(expected[expected >= 0], rows).mean()
    return Answers(
        item_ids=lists,
        nearest_distance=np.where(np.isfinite(best), 1.0 - best, np.nan),
        query_norms=np.linalg.norm(vectors.astype(np.float64), axis=1),
        mean_similarity=mean_pairwise_similarity(vectors) if len(vectors) > 1 else None,
        index_recall=hits,
        recall=_recall(lists, targets),
    )


def _batches(queries: pa.Table) -> Iterator[slice]:
    for start in range(0, queries.num_rows, _BATCH):
        yield slice(start, min(start + _BATCH, queries.num_rows))


def _lists(queries: pa.Table, column: str, part: slice) -> list[NDArray[np.int32]]:
    lists = Ragged.from_column(queries, column).slice(part.start, part.stop)
    return [rows.astype(np.int32) for rows in lists.split()]


def _recall(lists: Sequence[pa.Array], targets: Sequence[Sequence[str]] | None) -> Floats:
    recall = np.full(len(lists), np.nan)
    for query, wanted in enumerate(targets or ()):
        if wanted:
            recall[query] = len(set(wanted).intersection(lists[query].to_pylist())) / len(set(wanted))
    return recall
