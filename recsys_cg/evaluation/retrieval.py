"""Run systems over queries, batch by batch, and keep the rank of each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from recsys_cg.evaluation.exposure import Exposure
from recsys_cg.evaluation.metrics import TargetRanks, check_lists, rank_targets
from recsys_cg.evaluation.queries import Batch, QuerySet
from recsys_cg.evaluation.systems import System
from recsys_cg.progress import meter

__all__ = ["BATCH_ROWS", "rank_queries"]

_T = TypeVar("_T")

BATCH_ROWS = 1024


def rank_queries(
    systems: Sequence[System],
    queries: QuerySet,
    items: int,
    ks: Sequence[int],
    exposures: Sequence[Exposure] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    quiet: bool = False,
) -> list[dict[int, TargetRanks]]:
    """Run the systems over the queries and return, for each k, where each system found the targets.

    Args:
        systems: run side by side, batch by batch.
        queries: prepared queries.
        items: number of items.
        ks: lengths of the lists.
        exposures: one a system, to be filled; None: not counted.
        batch_rows: most queries a batch.
        quiet: show no progress.
    """
    depths = [[max(ks)] if getattr(system, "nests", True) else sorted(set(ks)) for system in systems]
    ranks = [{k: np.full(len(queries.targets.values), -1, dtype=np.int32) for k in depth} for depth in depths]
    shown = nullcontext() if quiet else meter("evaluate", total=queries.count, unit="queries")
    with shown as progress:
        for batch in queries.batches(batch_rows):
            stop = batch.first + batch.table.num_rows
            targets = queries.targets.slice(batch.first, stop)
            places = slice(*queries.targets.offsets[[batch.first, stop]])
            for position, system in enumerate(systems):
                lists = {k: _recommend(system, batch, k, items) for k in depths[position]}
                for k, found in ranks[position].items():
                    found[places] = rank_targets(lists[k], targets)
                if exposures is not None:
                    exposures[position].add({k: _at_depth(lists, k) for k in ks}, batch.first)
            if progress is not None:
                progress.advance(batch.table.num_rows)
    owners = queries.targets.owners
    by_depth = [{k: TargetRanks(found, owners, queries.count) for k, found in each.items()} for each in ranks]
    return [{k: _at_depth(each, k) for k in ks} for each in by_depth]


def _recommend(system: System, batch: Batch, k: int, items: int) -> NDArray[np.int32]:
    lists = system.recommend(batch.table, k, batch.allow)
    check_lists(lists, queries=batch.table.num_rows, k=k, items=items, system=system.name)
    return lists


def _at_depth(by_depth: Mapping[int, _T], k: int) -> _T:
    """Return the entry of ``k``, or of the longest list where only that was asked for."""
    return by_depth.get(k, by_depth[max(by_depth)])
