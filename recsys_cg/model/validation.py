"""Validation recall by exact search on the device: the catalogue is embedded once, queries pass in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.model.frameworks import tf
from recsys_cg.model.histories import QueryArrays, gather_histories, query_arrays
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.repeats import REPEAT_BONUSES, Repeats

__all__ = ["RecallProbe", "encode_queries", "top_rows"]

_SCORES = 1 << 25
_MOST_ROWS = 1024


def encode_queries(
    model: TwoTower, arrays: QueryArrays, history_vectors: NDArray[np.float32], part: slice
) -> NDArray[np.float32]:
    """Encode ``part`` of the queries, float32 [queries, dim], unit norm."""
    inputs = {name: tf.constant(value) for name, value in gather_histories(arrays, history_vectors, part).items()}
    encoded: NDArray[np.float32] = model.encode_histories(inputs).numpy()
    return encoded


class RecallProbe:
    """A frozen sample of queries and the share of their targets found in the exact top k.

    Of equal scores the smaller item_row ranks higher. Recall of a query is the share of its targets among its first k
    items; queries without target are left out.

    Args:
        queries: table of `recsys_cg.schema.queries_schema`.
        max_history: history items that the encoder sees.
        k: list length; the catalogue's size where that is smaller.
        most: queries kept, a sample by ``seed``.
        seed: seed of the sample.
        filter_seen: items of a query's past are no candidates.
        context: columns of context codes, in the order of the query tower.
    """

    def __init__(
        self,
        queries: pa.Table,
        *,
        max_history: int,
        k: int,
        most: int,
        seed: int,
        filter_seen: bool = True,
        context: Sequence[str] = (),
    ) -> None:
        lengths = np.asarray(queries["targets"].combine_chunks().value_lengths())
        usable = np.flatnonzero(lengths > 0)
        if len(usable) > most:
            usable = np.sort(np.random.default_rng(seed).choice(usable, size=most, replace=False))
        kept = queries.take(pa.array(usable)).combine_chunks()
        self.size = len(usable)
        self.max_history = max_history
        self.arrays = query_arrays(kept, max_history, context)
        self.targets = _Lists(kept["targets"])
        self._seen = _Lists(kept["seen"])
        self._history = _Lists(kept["history"])
        self._filter_seen = filter_seen
        self._k = k

    @property
    def share_met_before(self) -> float:
        """Share of the targets that are in their query's past, in [0, 1]; 0 without targets."""
        everything = slice(0, self.size)
        wanted, seen = (lists.pairs(everything).astype(np.int64) for lists in (self.targets, self._seen))
        width = 1 + max(wanted[:, 1].max(initial=0), seen[:, 1].max(initial=0))
        met = np.isin(wanted @ [width, 1], seen @ [width, 1])
        return float(met.mean()) if len(met) else 0.0

    def recall(self, model: TwoTower, vectors: NDArray[np.float32], history_vectors: NDArray[np.float32]) -> float:
        """Return mean recall@k of ``model`` over the sample, in [0, 1]; needs at least one query."""
        catalogue = tf.constant(vectors)
        block = max(1, min(_MOST_ROWS, _SCORES // len(vectors)))
        total = 0.0
        for start in range(0, self.size, block):
            part = slice(start, min(start + block, self.size))
            encoded = encode_queries(model, self.arrays, history_vectors, part)
            barred = self._seen.pairs(part if self._filter_seen else slice(0, 0))
            top = top_rows(tf.constant(encoded), catalogue, barred, k=min(self._k, len(vectors)))
            total += self._recall_of(top.numpy(), part)
        return total / self.size

    def recall_by_repeat_bonus(
        self, model: TwoTower, vectors: NDArray[np.float32], history_vectors: NDArray[np.float32]
    ) -> dict[float, float]:
        """Return mean recall@k at each of `REPEAT_BONUSES`, added to the similarity of items of a query's history.

        For probes of which the past are candidates; arguments as `recall`.
        """
        catalogue = tf.constant(vectors)
        block = max(1, min(_MOST_ROWS, _SCORES // len(vectors)))
        nothing = self._seen.pairs(slice(0, 0))
        totals = dict.fromkeys(REPEAT_BONUSES, 0.0)
        for start in range(0, self.size, block):
            part = slice(start, min(start + block, self.size))
            encoded = encode_queries(model, self.arrays, history_vectors, part)
            rows = top_rows(tf.constant(encoded), catalogue, nothing, k=min(self._k, len(vectors))).numpy()
            scores = np.einsum("qd,qkd->qk", encoded, vectors[rows])
            own = [np.unique(one[-self.max_history :]) for one in self._history.lists(part)]
            for bonus in totals:
                lifted, _ = Repeats(vectors, bonus, self.max_history).lift(rows, scores, encoded, own)
                totals[bonus] += self._recall_of(lifted, part)
        return {bonus: total / self.size for bonus, total in totals.items()}

    def _recall_of(self, top: NDArray[np.int32], part: slice) -> float:
        pairs = self.targets.pairs(part)
        found = (top[pairs[:, 0]] == pairs[:, 1:]).any(axis=1)
        hits = np.bincount(pairs[:, 0], weights=found, minlength=len(top))
        return float((hits / np.bincount(pairs[:, 0], minlength=len(top))).sum())


class _Lists:
    """A list column, flat."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        lists = column.combine_chunks()
        self._values = np.asarray(lists.flatten(), dtype=np.int32)
        self._starts = np.concatenate([[0], np.cumsum(np.asarray(lists.value_lengths(), dtype=np.int64))])

    def pairs(self, part: slice) -> NDArray[np.int32]:
        """Return int32 [values, 2]: (list number counted from the start of ``part``, value)."""
        starts = self._starts[part.start : part.stop + 1]
        number = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        return np.stack([number, self._values[starts[0] : starts[-1]]], axis=1)

    def lists(self, part: slice) -> list[NDArray[np.int32]]:
        """Return each list of ``part`` as a view."""
        starts = self._starts[part.start : part.stop + 1]
        return np.split(self._values[starts[0] : starts[-1]], starts[1:-1] - starts[0])

    def first(self) -> NDArray[np.int32]:
        """Return the first value of each list, int32 [lists]; each list holds at least one."""
        first: NDArray[np.int32] = self._values[self._starts[:-1]]
        return first


@tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator, unused-ignore]
def top_rows(queries: Any, catalogue: Any, seen: Any, *, k: int) -> Any:
    """Return the rows of the k best items of each query that are not ``seen`` (query, item), int32 [queries, k].

    Best first, of equal scores the smaller row first, padded with -1.
    """
    scores = tf.linalg.matmul(queries, catalogue, transpose_b=True)
    past = tf.scatter_nd(seen, tf.ones(tf.shape(seen)[:1]), tf.shape(scores)) > 0
    best = tf.math.top_k(tf.where(past, -np.inf, scores), k=k)
    return tf.where(tf.math.is_finite(best.values), best.indices, -1)
