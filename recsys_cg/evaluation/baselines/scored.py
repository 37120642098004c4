"""Turning scores into lists under the protocol's exclusions, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.evaluation.queries import EXCLUDE
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.evaluation.ranking import top_k

__all__ = ["recommend_by_score"]

Score = Callable[[pa.Table], NDArray[np.float32]]

_CELLS = 1 << 23


def recommend_by_score(
    score: Score, batch: pa.Table, k: int, items: int, allow: NDArray[np.bool_] | None
) -> NDArray[np.int32]:
    """Return the k best item_rows of each query by a dense score.

    Equal scores are ordered by item_row, that is by training popularity: what a baseline has no opinion about it
    fills with bestsellers.

    Args:
        score: queries table -> [queries, items] float32, which may be written to.
        batch: see `recsys_cg.evaluation.systems.System.recommend`.
        k: length of the lists.
        items: number of items.
        allow: mask of the candidates, or None.
    """
    step = max(1, _CELLS // max(items, 1))
    lists = np.full((batch.num_rows, k), -1, dtype=np.int32)
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)
        scores = score(part)
        excluded = Ragged.from_column(part, EXCLUDE)
        scores[excluded.owners, excluded.values] = -np.inf
        if allow is not None:
            scores[:, ~allow] = -np.inf
        lists[start : start + step] = top_k(scores, k)
    return lists
