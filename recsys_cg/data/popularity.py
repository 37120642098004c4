"""Popularity: counts in training time become sampling probabilities and the buckets head, torso, tail and cold."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from recsys_cg.schema import BUCKETS

__all__ = ["assign_buckets", "count_buckets", "sampling_probabilities"]

_HEAD_SHARE: Final = 0.5
_TORSO_SHARE: Final = 0.8


def sampling_probabilities(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return q, the share of training events of each item: ``q_i = c_i / sum(c)``; zeros when there are none.

    An item is met as an in-batch negative with this probability, so it is the q of the logQ correction
    (Yi et al. 2019, section 3).

    Example:
        >>> sampling_probabilities(np.array([6, 3, 1])).tolist()
        [0.6, 0.3, 0.1]
    """
    total = counts.sum()
    return counts / total if total else np.zeros(len(counts), dtype=np.float64)


def assign_buckets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    """Return the bucket of each item, whose counts come ordered from highest to lowest.

    Head is the smallest prefix with at least 50% of the training events, torso what follows up to the smallest
    prefix with at least 80%, tail the rest that has events, cold what has none.

    Args:
        counts: int64 ``[n]``, not increasing.

    Returns:
        strings ``[n]`` of `recsys_cg.schema.BUCKETS`.

    Example:
        >>> assign_buckets(np.array([5, 3, 1, 1, 0])).tolist()
        ['head', 'torso', 'tail', 'tail', 'cold']
    """
    before = np.cumsum(counts) - counts
    total = counts.sum()
    codes = np.where(before < _HEAD_SHARE * total, 0, np.where(before < _TORSO_SHARE * total, 1, 2))
    return np.array(BUCKETS)[np.where(counts > 0, codes, 3)]


def count_buckets(buckets: npt.NDArray[np.str_]) -> dict[str, int]:
    """Return the number of items in each bucket, all four named.

    Example:
        >>> count_buckets(np.array(["head", "tail", "tail"]))
        {'head': 1, 'torso': 0, 'tail': 2, 'cold': 0}
    """
    return {bucket: int((buckets == bucket).sum()) for bucket in BUCKETS}
