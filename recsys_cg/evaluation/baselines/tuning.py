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

__all__ = ["Ladder", "Tuner"]

Settings = Mapping[str, Any]
Make = Callable[[Settings], System]
Places = tuple[int, ...]


@dataclass(frozen=True)
class Ladder:
    """The values of one hyperparameter that may be tried, in an order in which neighbours are alike.

    Attributes:
        name: key in the settings.
        values: at least one.
        start: place of the default.
    """

    name: str
    values: tuple[Any, ...]
    start: int = 0

    def is_end(self, place: int) -> bool:
        """Return whether the value at ``place`` has no neighbour on one side."""
        return place in {0, len(self.values) - 1}


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

    def climb(self, make: Make, ladders: Sequence[Ladder]) -> System:
        """Return the system at a top of mean recall@k: no neighbouring value of any one hyperparameter is better.

        The climb begins at the ladders' starts and moves along one ladder at a time, as long as that is better.
        Without validation queries the starts are taken. `System.settings` says how many settings were tried, and
        names each hyperparameter whose best value is the first or last of several: there, more may lie beyond.

        Args:
            make: builds a system; its ``settings`` argument becomes part of the report.
            ladders: what may be chosen.
        """
        queries = self.queries
        if queries is None or not queries.count or all(len(ladder.values) == 1 for ladder in ladders):
            starts = {ladder.name: ladder.values[ladder.start] for ladder in ladders}
            return make({**starts, "chosen": "default"})
        known: dict[Places, float] = {}

        def measure(places: Places) -> float:
            if places not in known:
                system = make(_settings(ladders, places))
                (ranks,) = rank_queries([system], queries, self.items, [self.k], quiet=True)
                known[places] = float(np.mean(recall(ranks[self.k], self.k)))
            return known[places]

        best = _climb(measure, ladders)
        ends = [one.name for one, at in zip(ladders, best, strict=True) if len(one.values) > 1 and one.is_end(at)]
        chosen = (
            f"best of {len(known)} tried by recall@{self.k} = {known[best]:.4f} on {queries.count:,} validation queries"
        )
        if ends:
            chosen += f"; at the end of what was offered: {', '.join(ends)}"
        return make({**_settings(ladders, best), "chosen": chosen})


def _settings(ladders: Sequence[Ladder], places: Places) -> dict[str, Any]:
    return {ladder.name: ladder.values[place] for ladder, place in zip(ladders, places, strict=True)}


def _climb(measure: Callable[[Places], float], ladders: Sequence[Ladder]) -> Places:
    best: Places = tuple(ladder.start for ladder in ladders)
    is_top = False
    while not is_top:
        is_top = True
        for axis, ladder in enumerate(ladders):
            for step in (1, -1):
                while 0 <= (place := best[axis] + step) < len(ladder.values):
                    neighbour = (*best[:axis], place, *best[axis + 1 :])
                    if measure(neighbour) <= measure(best):
                        break
                    best, is_top = neighbour, False
    return best
