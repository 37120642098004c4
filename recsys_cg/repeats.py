"""Items that a user comes back to: how they are ranked among those that are new to the user.

Where people buy, play or read the same again, what a user met is the best guess of what comes next, and the longer the
history the less of it a query vector can hold: the sum of a hundred unit vectors in 64 dimensions lies about as near to
strangers as to its own terms. A lookup has the history at hand, so what the query tower cannot say is added to the
score: a bonus for every item of the history that the encoder reads, one number of the encoder, fitted on validation
queries. It is the repeat mode of RepeatNet (Ren et al. 2019) reduced to what an index of dot products can serve. What
the user met longer ago gets none: on Online Retail a bonus for everything ever bought found less. NumPy only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsys_cg.bonuses import Raised, lift_lists

__all__ = ["REPEAT_BONUSES", "Repeats"]

REPEAT_BONUSES: Final = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0)
"""Bonuses that are tried; 2, the width of the range of a cosine, ranks all that the user met before all else."""


class Repeats(NamedTuple):
    """What it takes to rank items of the history among new ones.

    Attributes:
        vectors: float32 [items, dim], unit norm.
        bonus: of the encoder.
        max_history: events of a history that the encoder reads, the last ones.
    """

    vectors: NDArray[np.float32]
    bonus: float
    max_history: int

    def raised(self, own: NDArray[np.int32]) -> Raised:
        """Return the bonus of ``own``, distinct rising rows of the history that the encoder reads."""
        return Raised(own, np.full(len(own), self.bonus, np.float32))

    def lift(
        self,
        rows: NDArray[np.int32],
        scores: NDArray[np.float32],
        queries: NDArray[np.float32],
        own: Sequence[NDArray[np.int32]],
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return `recsys_cg.bonuses.lift_lists` of a batch of results, each query with rows of its ``own``."""
        return lift_lists(rows, scores, queries, [self.raised(mine) for mine in own], vectors=self.vectors)
