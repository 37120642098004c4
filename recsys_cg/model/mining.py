"""Hard negatives mined with the current model, as a source whose proposal is known.

After each epoch past the warm-up, a sample of training queries is searched exactly. What the model ranks within a band
(too high: likely to be wanted; too low: easy) and the user never met in training is counted; the counts are the
proposal of the next epoch. So a mined candidate is drawn with a known probability q and corrected like any other:
mining moves the sample to where the model errs, not the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.model.frameworks import tf
from recsys_cg.model.histories import QueryArrays
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.validation import encode_queries, top_rows

__all__ = ["Anchors", "Findings", "Search", "mine"]

_QUERIES = 2048
_BLOCK = 256


@dataclass(frozen=True)
class Anchors:
    """Some of the queries that were searched, and what was found.

    Attributes:
        start: place of the first one among all ``total``.
        total: queries of the whole search.
        users: int64 [queries], their users, as places in the sequences.
        histories: item_row of each query's history that the encoder saw, oldest first.
        later: item_row of what each user met at the query's own event or after it, in training.
        items: int32 [queries, ranks], the item_row at each rank of the band, -1 past the end of the catalogue.
        encoded: float32 [queries, dim], the queries.
    """

    start: int
    total: int
    users: NDArray[np.int64]
    histories: list[NDArray[np.int32]]
    later: list[NDArray[np.int32]]
    items: NDArray[np.int32]
    encoded: NDArray[np.float32]

    def met_later(self, further: Callable[[int], NDArray[np.int32]] | None = None) -> NDArray[np.bool_]:
        """Tell which found items the user met later, bool [queries, ranks].

        Args:
            further: gives more items of a user that count; None: training alone counts.
        """
        met = self.later
        if further is not None:
            met = [np.concatenate([own, further(int(user))]) for own, user in zip(met, self.users, strict=True)]
        return np.stack([np.isin(row, items) for row, items in zip(self.items, met, strict=True)])


@dataclass(frozen=True)
class Findings:
    """What one mining found.

    Attributes:
        counts: int64 [items], how often each item was mined and not met by the user.
        false_share: share of what was in the band that the user met later in training: wanted, not negative.
        queries: number of queries searched.
    """

    counts: NDArray[np.int64]
    false_share: float
    queries: int


@dataclass(frozen=True)
class Search:
    """A search of training queries with the model as it is; a query is an event after others, one a user.

    Attributes:
        network: encodes histories, `recsys_cg.model.two_tower.TwoTower`.
        sequences: the training events.
        vectors: float32 [items, dim], unit norm.
        history_vectors: float32 [items, dim].
        band: ranks (first, last), from 1, among the items that the user had not met.
        max_history: history items that the encoder sees.
        seed: chooses the queries.
    """

    network: Any
    sequences: Sequences
    vectors: NDArray[np.float32]
    history_vectors: NDArray[np.float32]
    band: tuple[int, int]
    max_history: int
    seed: int

    def run(self) -> Iterator[Anchors]:
        """Yield what the model ranks within the band, in blocks of queries."""
        sequences, (first, last) = self.sequences, self.band
        events = _choose_events(sequences, self.seed)
        arrays = _histories(sequences, events, self.max_history)
        catalogue = tf.constant(self.vectors)
        for start in range(0, len(events), _BLOCK):
            part = slice(start, min(start + _BLOCK, len(events)))
            encoded = encode_queries(self.network, arrays, self.history_vectors, part)
            past, later = _own_items(sequences, events[part])
            top = top_rows(tf.constant(encoded), catalogue, past, k=min(last, len(self.vectors))).numpy()
            yield Anchors(
                start=start,
                total=len(events),
                users=_users_of(sequences, events[part]),
                histories=[arrays.rows[row, : arrays.length[row]] for row in range(part.start, part.stop)],
                later=later,
                items=top[:, first - 1 :],
                encoded=encoded,
            )


def mine(search: Search) -> Findings:
    """Count what the model ranks within the band, without what its user met later in training."""
    counts = np.zeros(len(search.vectors), dtype=np.int64)
    seen_later = found = queries = 0
    for anchors in search.run():
        present, wanted = anchors.items >= 0, anchors.met_later()
        counts += np.bincount(anchors.items[present & ~wanted], minlength=len(counts))
        seen_later, found = seen_later + int(wanted.sum()), found + int(present.sum())
        queries += len(anchors.items)
    return Findings(counts, seen_later / found if found else 0.0, queries)


def _users_of(sequences: Sequences, events: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(sequences.starts, events, side="right") - 1


def _choose_events(sequences: Sequences, seed: int) -> NDArray[np.int64]:
    """Choose up to one event a user, among those that have an earlier one."""
    rng = np.random.default_rng([seed, 2])
    usable = np.flatnonzero(sequences.before >= 0)
    shuffled = rng.permutation(usable)
    _, first = np.unique(_users_of(sequences, shuffled), return_index=True)
    return np.sort(shuffled[np.sort(first)[:_QUERIES]])


def _histories(sequences: Sequences, events: NDArray[np.int64], max_history: int) -> QueryArrays:
    stop = sequences.before[events] + 1
    start = np.maximum(sequences.starts[_users_of(sequences, events)], stop - max_history)
    column = np.arange(max_history)
    valid = column < (stop - start)[:, None]
    places = np.where(valid, start[:, None] + column, 0)
    return QueryArrays(
        rows=np.where(valid, sequences.items[places], 0).astype(np.int32),
        gap_s=np.where(valid, sequences.gaps_s[places], 0.0).astype(np.float32),
        event=np.where(valid, sequences.codes[places], 0).astype(np.int32),
        length=(stop - start).astype(np.int32),
        context=None if sequences.context is None else sequences.context[events],
    )


def _own_items(sequences: Sequences, events: NDArray[np.int64]) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """Return (query, item) pairs met before each event, and the items met at it or later."""
    user = _users_of(sequences, events)
    pairs, later = [np.zeros((0, 2), np.int32)], []
    for number, (event, start, end) in enumerate(
        zip(events, sequences.starts[user], sequences.starts[user + 1], strict=True)
    ):
        cut = sequences.before[event] + 1
        past = sequences.items[start:cut]
        pairs.append(np.stack([np.full(len(past), number, np.int32), past], axis=1))
        later.append(sequences.items[cut:end])
    return np.concatenate(pairs), later
