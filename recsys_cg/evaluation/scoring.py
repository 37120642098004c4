"""From ranks to the figures of one system: means over queries, by group, with intervals over users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.evaluation.debiasing import Weights
from recsys_cg.evaluation.groups import Group
from recsys_cg.evaluation.metrics import METRICS, Metric, TargetRanks, compute
from recsys_cg.evaluation.significance import interval, ratios, resample_sums, sum_by_user

__all__ = ["score"]

Floats = NDArray[np.float64]


@dataclass
class _Columns:
    """Per-user sums, one column a figure, and which column divides which."""

    values: list[Floats] = field(default_factory=list)
    figures: list[tuple[tuple[str, ...], int, int]] = field(default_factory=list)

    def add(self, column: Floats) -> int:
        self.values.append(column)
        return len(self.values) - 1


def score(
    ranks: Mapping[int, TargetRanks],
    groups: Sequence[Group],
    weights: Weights,
    users: NDArray[np.int64],
    *,
    user_count: int,
    samples: int,
    seed: int,
    metrics: Mapping[str, Metric] = METRICS,
) -> dict[str, Any]:
    """Return the report's entry of one system.

    Args:
        ranks: k -> where each target was found in lists of k.
        groups: what to report separately.
        weights: one a target, for ``recall_ips``.
        users: [queries] code of the user.
        user_count: number of users.
        samples: draws of the bootstrap over users.
        seed: of the draws.
        metrics: name -> function.
    """
    entry: dict[str, Any] = {}
    columns = _Columns()
    for group in groups:
        place = entry
        for name in group.path[:-1]:
            place = place.setdefault(name, {})
        chosen = {k: each.keep(group.mask) for k, each in ranks.items()}
        counted = next(iter(chosen.values())).sizes > 0
        place[group.path[-1]] = {"queries": int(counted.sum()), "users": len(np.unique(users[counted]))}
        if counted.any():
            figures: dict[str, Any] = {"metrics": _metrics(chosen, metrics), "user_count": user_count}
            _add_figures(columns, group, chosen, weights.values[group.mask], users, **figures)
    if not columns.values:
        return entry
    sums = np.stack(columns.values, axis=1)
    totals = sums.sum(axis=0)
    drawn = resample_sums(sums, samples=samples, seed=seed)
    for path, top, bottom in columns.figures:
        if totals[bottom] <= 0:
            continue
        place = entry
        for name in path[:-1]:
            place = place[name]
        low, high = interval(ratios(drawn[:, top], drawn[:, bottom])) if place["users"] > 1 else (0.0, 1.0)
        place[path[-1]] = {"mean": float(totals[top] / totals[bottom]), "ci95": [low, high]}
    return entry


def _add_figures(
    columns: _Columns,
    group: Group,
    ranks: Mapping[int, TargetRanks],
    weights: Floats,
    users: NDArray[np.int64],
    *,
    metrics: Iterable[tuple[str, Floats]],
    user_count: int,
) -> None:
    first = next(iter(ranks.values()))
    counted = columns.add(_sum((first.sizes > 0).astype(np.float64), users, user_count))
    owners = users[first.owners]
    weighed = columns.add(_sum(weights, owners, user_count))
    for name, values in metrics:
        columns.figures.append(((*group.path, name), columns.add(sum_by_user(values, users, user_count)[0]), counted))
    for k, each in ranks.items():
        found = columns.add(_sum(weights * each.within(k), owners, user_count))
        columns.figures.append(((*group.path, f"recall_ips@{k}"), found, weighed))


def _sum(values: Floats, owners: NDArray[np.int64], count: int) -> Floats:
    return np.bincount(owners, weights=values, minlength=count).astype(np.float64)


def _metrics(ranks: Mapping[int, TargetRanks], metrics: Mapping[str, Metric]) -> Iterator[tuple[str, Floats]]:
    for k, each in ranks.items():
        for name, metric in metrics.items():
            yield f"{name}@{k}", compute(name, metric, each, k)
