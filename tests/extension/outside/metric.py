"""A metric."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsys_cg.evaluation.metrics import TargetRanks

NOT_A_PART = 7


def first_page(ranks: TargetRanks, k: int) -> NDArray[np.float64]:
    """1 where a target is among the first half of the k, 0 elsewhere, averaged over queries."""
    return ranks.per_query(ranks.found(max(k // 2, 1)) > 0, 1.0)


def percentages(ranks: TargetRanks, k: int) -> NDArray[np.float64]:
    """A metric that forgot to be a fraction."""
    return ranks.per_query(100 * ranks.found(k), ranks.sizes)
