"""Vectors for items that the encoder never met and has no content of: from the queries of those who chose them.

Training turns each query towards the items chosen at it, so where an item lies can be read off its queries. How, is
learned from the items that the encoder knows: a ridge regression from the mean of an item's query vectors, and its
number of choices, to its vector. Only the training window is looked at, never the queries that measure a release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.geometry import l2_normalise
from recsys_cg.schema import queries_schema

__all__ = ["Folded", "choose_events", "fit_map", "fold_in", "query_table"]

Vectors = NDArray[np.float32]
Encode = Callable[[pa.Table], Vectors]

_EVENTS_EACH = 20
_LEAST_EVENTS = 5
_MOST_KNOWN = 3_000
_LEAST_KNOWN = 50
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_CHUNK = 4096


@dataclass(frozen=True)
class Folded:
    """Items that were given vectors.

    Attributes:
        rows: [n] item rows.
        vectors: float32 [n, dim], unit norm.
    """

    rows: NDArray[np.int64]
    vectors: Vectors


def fold_in(
    counts: NDArray[np.int64],
    is_known: NDArray[np.bool_],
    vectors: Vectors,
    sequences: Iterable[pa.Table],
    encode: Encode,
    *,
    max_history: int,
    seed: int,
) -> Folded | None:
    """Give a vector to each item that was chosen in the training window and that the encoder does not know.

    Args:
        counts: [items] choices in the training window.
        is_known: [items] whether the encoder learned the item.
        vectors: float32 [items, dim], of which the known items' are read.
        sequences: the training sequences, as `recsys_cg.schema.sequences_schema`.
        encode: from a table of queries to their vectors.
        max_history: events of a history that are given to ``encode``.
        seed: draws the known items that are learned from.

    Returns:
        The folded items, or None where no item is new, or too few known ones are there to learn from.
    """
    known = np.flatnonzero(is_known & (counts >= _LEAST_EVENTS))
    known = np.random.default_rng(seed).permutation(known)[:_MOST_KNOWN]
    wanted = ~is_known & (counts > 0)
    if not wanted.any() or len(known) < _LEAST_KNOWN:
        return None
    wanted[known] = True
    tables = list(sequences)
    events = choose_events(tables, wanted, most=_EVENTS_EACH)
    if not len(events):
        return None
    rows, means = _summarise(tables, events, encode, max_history)
    features = _features(means, counts[rows])
    learned = is_known[rows]
    if np.count_nonzero(learned) < _LEAST_KNOWN:
        return None
    weights = fit_map(features[learned], vectors[rows[learned]].astype(np.float64))
    new = ~learned
    return Folded(rows[new], l2_normalise(features[new] @ weights))


def choose_events(tables: list[pa.Table], wanted: NDArray[np.bool_], *, most: int) -> NDArray[np.int64]:
    """Return [n, 4] (item row, table, user, place): the last choices of each wanted item that have a past."""
    found, times = [np.empty((0, 4), np.int64)], [np.empty(0, np.int64)]
    for number, table in enumerate(tables):
        lists = table["item_rows"].combine_chunks()
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        rows, when = (table[name].combine_chunks().flatten().to_numpy() for name in ("item_rows", "times_us"))
        users = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        has_past = when > when[starts] if len(when) else np.empty(0, np.bool_)
        chosen = np.flatnonzero(wanted[rows] & has_past)
        places = chosen - starts[chosen]
        found.append(np.stack([rows[chosen].astype(np.int64), np.full(len(chosen), number), users[chosen], places], 1))
        times.append(when[chosen])
    events, moments = np.concatenate(found), np.concatenate(times)
    order = np.lexsort((-moments, events[:, 0]))
    events = events[order]
    first = np.searchsorted(events[:, 0], events[:, 0])
    return events[np.arange(len(events)) - first < most]


def query_table(tables: list[pa.Table], events: NDArray[np.int64], max_history: int) -> pa.Table:
    """Return the queries at which ``events`` were chosen, in their order: what came strictly before each."""
    context = [name for name in tables[0].column_names if name.startswith("c_")]
    records = []
    for row, number, user, place in events.tolist():
        one = tables[number].slice(user, 1).to_pylist()[0]
        times = one["times_us"]
        end = int(np.searchsorted(times, times[place], side="left"))
        start = max(0, end - max_history)
        records.append(
            {
                "user_id": one["user_id"],
                "time_us": times[place],
                "targets": [row],
                "history": one["item_rows"][start:end],
                "history_times_us": times[start:end],
                "history_events": one["events"][start:end],
                "history_length": end,
                "seen": [],
                **{name: one[name][place] for name in context},
            }
        )
    schema = queries_schema
    for name in context:
        schema = schema.append(pa.field(name, pa.int32()))
    return pa.Table.from_pylist(records, schema=schema)


def _summarise(
    tables: list[pa.Table], events: NDArray[np.int64], encode: Encode, max_history: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the items of ``events`` and the mean query vector of each.

    Means of few queries are drawn towards the mean of all, by the variance within items over that between them.
    """
    order = np.lexsort((events[:, 3], events[:, 2], events[:, 1]))  # the events of a user stand together
    parts = [
        encode(query_table(tables, events[order[start : start + _CHUNK]], max_history)).astype(np.float64)
        for start in range(0, len(order), _CHUNK)
    ]
    queries = np.empty((len(events), parts[0].shape[1]))
    queries[order] = np.concatenate(parts)
    rows, starts, numbers = np.unique(events[:, 0], return_index=True, return_counts=True)
    means = np.add.reduceat(queries, starts, axis=0) / numbers[:, None]
    overall = queries.mean(axis=0)
    within = float(np.square(queries - np.repeat(means, numbers, axis=0)).sum()) / max(1, len(queries) - len(rows))
    spread = float(np.square(means - overall).sum(axis=1).mean())
    between = max(spread - within * float((1.0 / numbers).mean()), 1e-9)
    share = (numbers / (numbers + within / between))[:, None]
    return rows, overall + share * (means - overall)


def _features(means: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.concatenate([means, np.log1p(counts)[:, None], np.ones((len(means), 1))], axis=1)


def fit_map(features: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights [features, dim] of the ridge regression from ``features`` to ``vectors``.

    The last feature is the constant and is not held small. How small the others are held is chosen on every fifth item,
    by the mean cosine of what the rest predicts.
    """
    held = np.arange(len(features)) % 5 == 0
    cosines = []
    for ridge in _RIDGES:
        predicted = l2_normalise(features[held] @ _solve(features[~held], vectors[~held], ridge))
        cosines.append(float(np.einsum("ij,ij->i", predicted, vectors[held]).mean()))
    return _solve(features, vectors, _RIDGES[int(np.argmax(cosines))])


def _solve(features: NDArray[np.float64], vectors: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    penalty = np.full(features.shape[1], ridge)
    penalty[-1] = 1e-9
    solved = np.linalg.solve(features.T @ features + np.diag(penalty), features.T @ vectors)
    return np.asarray(solved, dtype=np.float64)
