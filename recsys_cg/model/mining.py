"""Hard negatives mined with the current model, as a source whose proposal is known.

After each epoch past the warm-up, a sample of training queries is searched exactly. What the model ranks within a band
(too high: likely to be wanted; too low: easy) and the user never met in training is counted; the counts are the
proposal of the next epoch. So a mined candidate is drawn with a known probability q and corrected like any other:
mining moves the sample to where the model errs, not the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.model.frameworks import tf
from recsys_cg.model.histories import QueryArrays
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.validation import encode_queries, top_rows

__all__ = ["Findings", "audit_table", "mine"]

_QUERIES = 2048
_BLOCK = 256
_ANCHORS = 50
_SHOWN = 10


@dataclass(frozen=True)
class Findings:
    """What one mining found.

    Attributes:
        counts: int64 [items], how often each item was mined and not met by the user.
        false_share: share of what was in the band that the user met later in training: wanted, not negative.
        queries: number of queries searched.
        anchors: for some queries, what a person needs to judge the mined items by; see `audit_table`.
    """

    counts: NDArray[np.int64]
    false_share: float
    queries: int
    anchors: list[dict[str, Any]]


def mine(
    network: Any,
    sequences: Sequences,
    vectors: NDArray[np.float32],
    history_vectors: NDArray[np.float32],
    *,
    band: tuple[int, int],
    max_history: int,
    seed: int,
) -> Findings:
    """Search a sample of training queries with the current model.

    Args:
        network: encodes histories, `recsys_cg.model.two_tower.TwoTower`.
        sequences: the training events; a query is an event of a user with events at an earlier time, one a user.
        vectors: float32 [items, dim], of all items, unit norm.
        history_vectors: float32 [items, dim], what the query tower reads of them.
        band: ranks (first, last), from 1, among the items that the user had not met.
        max_history: history items that the encoder sees.
        seed: of the sample.
    """
    events = _choose_events(sequences, seed)
    arrays = _histories(sequences, events, max_history)
    catalogue = tf.constant(vectors)
    counts = np.zeros(len(vectors), dtype=np.int64)
    seen_later = found = 0
    anchors: list[dict[str, Any]] = []
    for start in range(0, len(events), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(events)))
        encoded = encode_queries(network, arrays, history_vectors, part)
        past, later = _own_items(sequences, events[part])
        top = top_rows(tf.constant(encoded), catalogue, past, k=min(band[1], len(vectors))).numpy()
        top = top[:, band[0] - 1 :]
        wanted = _is_member(top, later)
        counts += np.bincount(top[(top >= 0) & ~wanted], minlength=len(vectors))
        seen_later, found = seen_later + int(wanted.sum()), found + int((top >= 0).sum())
        for query in range(max(0, min(_ANCHORS - len(anchors), len(top)))):
            scores = vectors[top[query, :_SHOWN]] @ encoded[query]
            row = start + query
            history = arrays.rows[row, : arrays.length[row]]
            anchors.append(_anchor(history, top[query, :_SHOWN], scores, wanted[query, :_SHOWN], band[0]))
    return Findings(counts, seen_later / found if found else 0.0, len(events), anchors)


def _choose_events(sequences: Sequences, seed: int) -> NDArray[np.int64]:
    """Choose up to one event a user, among those that have an earlier one."""
    rng = np.random.default_rng([seed, 2])
    usable = np.flatnonzero(sequences.before >= 0)
    shuffled = rng.permutation(usable)
    user = np.searchsorted(sequences.starts, shuffled, side="right") - 1
    _, first = np.unique(user, return_index=True)
    return np.sort(shuffled[np.sort(first)[:_QUERIES]])


def _histories(sequences: Sequences, events: NDArray[np.int64], max_history: int) -> QueryArrays:
    user = np.searchsorted(sequences.starts, events, side="right") - 1
    stop = sequences.before[events] + 1
    start = np.maximum(sequences.starts[user], stop - max_history)
    column = np.arange(max_history)
    valid = column < (stop - start)[:, None]
    places = np.where(valid, start[:, None] + column, 0)
    return QueryArrays(
        rows=np.where(valid, sequences.items[places], 0).astype(np.int32),
        gap_s=np.where(valid, sequences.gaps_s[places], 0.0).astype(np.float32),
        event=np.where(valid, sequences.codes[places], 0).astype(np.int32),
        length=(stop - start).astype(np.int32),
    )


def _own_items(sequences: Sequences, events: NDArray[np.int64]) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """Return (query, item) pairs met before each event, and the items met at it or later."""
    user = np.searchsorted(sequences.starts, events, side="right") - 1
    pairs, later = [np.zeros((0, 2), np.int32)], []
    for number, (event, start, end) in enumerate(
        zip(events, sequences.starts[user], sequences.starts[user + 1], strict=True)
    ):
        cut = sequences.before[event] + 1
        past = sequences.items[start:cut]
        pairs.append(np.stack([np.full(len(past), number, np.int32), past], axis=1))
        later.append(sequences.items[cut:end])
    return np.concatenate(pairs), later


def _is_member(top: NDArray[np.int32], later: list[NDArray[np.int32]]) -> NDArray[np.bool_]:
    return np.stack([np.isin(row, items) for row, items in zip(top, later, strict=True)])


def _anchor(
    history: NDArray[np.int32],
    mined: NDArray[np.int32],
    scores: NDArray[np.float32],
    wanted: NDArray[np.bool_],
    first_rank: int,
) -> dict[str, Any]:
    columns = zip(mined.tolist(), scores.tolist(), wanted.tolist(), strict=True)
    found = [
        {"item": item, "score": score, "rank": first_rank + place, "later": later}
        for place, (item, score, later) in enumerate(columns)
        if item >= 0
    ]
    return {"history": history[-5:].tolist(), "mined": found}


def audit_table(anchors: list[dict[str, Any]], titles: list[str]) -> pa.Table:
    """Return one row a mined item, to be read by a person.

    Columns: ``history`` (titles of the last five items, oldest first, joined by " | "), ``mined`` (title), ``score``
    (cosine), ``rank``, ``later_interacted`` (the user met it later in training, so it is no negative).
    """
    rows = [
        {
            "history": " | ".join(titles[item] for item in anchor["history"]),
            "mined": titles[found["item"]],
            "score": round(found["score"], 4),
            "rank": found["rank"],
            "later_interacted": found["later"],
        }
        for anchor in anchors
        for found in anchor["mined"]
    ]
    types = {"history": pa.string(), "mined": pa.string(), "score": pa.float64(), "rank": pa.int64()}
    return pa.Table.from_pylist(rows, schema=pa.schema([*types.items(), ("later_interacted", pa.bool_())]))
