"""Choosing a baseline's hyperparameters by the validation queries, never by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsys_cg.evaluation.metrics import recall
from recsys_cg.evaluation.queries import QuerySet
from recsys_cg.evaluation.retrieval import rank_queries
from recsys_cg.evaluation.systems import System

__all__ = ["Tuner"]

Settings = Mapping[str, Any]
Make = Callable[[Settings], System]


@dataclass(frozen=True)
class Tuner:
    """Validation queries to choose by.

    Attributes:
        queries: prepared validation queries, None or empty when there are none to choose by.
        items: number of items.
        k: recall@k decides.
    """

    queries: QuerySet | None
    items: int
    k: int

    def choose(self, make: Make, options: Sequence[Settings]) -> System:
        """Return the system of the option with the highest mean recall@k; ties go to the earlier option.

        Without validation queries, or with one option, it is the first.

        Args:
            make: builds a system; its ``settings`` argument becomes part of the report.
            options: at least one, the default first.
        """
        if self.queries is None or not self.queries.count or len(options) == 1:
            return make({**options[0], "chosen": "default"})
        best, best_value = options[0], -1.0
        for settings in options:
            (ranks,) = rank_queries([make(settings)], self.queries, self.items, [self.k], quiet=True)
            value = float(np.mean(recall(ranks[self.k], self.k)))
            if value > best_value:
                best, best_value = settings, value
        chosen = (
            f"best of {len(options)} by recall@{self.k} = {best_value:.4f} on {self.queries.count:,} validation queries"
        )
        return make({**best, "chosen": chosen})
