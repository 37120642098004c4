"""From the pieces of `bench_quality` to its tables and its figures with targets."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.quality_baselines import BASELINES
from tests.benchmarks.record import Figure, measure_figure

Values = dict[int, float]
COLUMNS = (
    ("overall", "recall@100"), ("head", "recall@100"), ("torso", "recall@100"), ("tail", "recall@100"),
    ("cold", "recall@100"), ("coverage", "catalogue_coverage@100"), ("overall", "hit_rate@10"), ("overall", "ndcg@10"),
)  # fmt: skip
OURS = "two_tower"
PEERS = (*BASELINES, "tfrs", "tfrs_logq")


class Results:
    """Every figure of the pieces, by set, system and seed.

    Args:
        pieces: what `tests.benchmarks.quality_run.run_piece` returned.
    """

    def __init__(self, pieces: Sequence[Mapping[str, Any]]) -> None:
        self._systems: dict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
        self._slices: dict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
        self._training: dict[str, dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
        for piece in pieces:
            for system, entry in piece["systems"].items():
                self._systems[piece["set"]][system][piece["seed"]] = entry
            for system, entry in piece["slices"].items():
                self._slices[piece["set"]][system][piece["seed"]] = entry
            if "training" in piece:
                self._training[piece["set"]][piece["variant"]][piece["seed"]] = piece["training"]

    @property
    def sets(self) -> list[str]:
        """Names of the sets."""
        return list(self._systems)

    def systems(self, name: str) -> list[str]:
        """Return the systems measured on a set, ours first."""
        return sorted(self._systems[name], key=lambda system: (system != OURS, system))

    def values(self, name: str, system: str, group: str, metric: str) -> Values:
        """Return seed -> value; a group without queries is left out."""
        found = {}
        for seed, entry in self._systems.get(name, {}).get(system, {}).items():
            value = entry[group].get(metric)
            mean = value["mean"] if isinstance(value, Mapping) else value
            if mean is not None:
                found[seed] = float(mean)
        return found

    def slice(self, name: str, system: str, kind: str) -> Values:
        """Return seed -> recall@100 of a slice."""
        found = self._slices.get(name, {}).get(system, {})
        return {seed: entry[kind]["recall@100"] for seed, entry in found.items() if kind in entry}

    def kinds(self, name: str, system: str) -> list[str]:
        """Return the slices of a system."""
        return sorted({kind for entry in self._slices.get(name, {}).get(system, {}).values() for kind in entry})

    def minutes(self, name: str, system: str) -> Values:
        """Return seed -> minutes of training."""
        return {seed: entry["minutes"] for seed, entry in self._training.get(name, {}).get(system, {}).items()}

    def best(self, name: str, group: str, metric: str) -> tuple[str, Values] | None:
        """Return the best system that is not ours by its mean over the seeds, and its values."""
        others = {system: self.values(name, system, group, metric) for system in self.systems(name)}
        others = {system: values for system, values in others.items() if values and system in PEERS}
        if not others:
            return None
        chosen = max(others, key=lambda system: statistics.mean(others[system].values()))
        return chosen, others[chosen]


def tabulate(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return set -> system -> ``"group metric"`` -> mean, smallest, largest over the seeds, and their number."""
    results = Results(pieces)
    tables: dict[str, Any] = {}
    for name in results.sets:
        tables[name] = {}
        for system in results.systems(name):
            row = {
                f"{group} {metric}": _spread(results.values(name, system, group, metric)) for group, metric in COLUMNS
            }
            row |= {
                f"{kind} recall@100": _spread(results.slice(name, system, kind)) for kind in results.kinds(name, system)
            }
            row["training minutes"] = _spread(results.minutes(name, system))
            tables[name][system] = {key: value for key, value in row.items() if value is not None}
    return tables


def _spread(values: Values) -> dict[str, Any] | None:
    if not values:
        return None
    numbers = list(values.values())
    shown = {"mean": statistics.mean(numbers), "low": min(numbers), "high": max(numbers)}
    return {key: float(f"{value:.5g}") for key, value in shown.items()} | {"seeds": len(numbers)}


def print_tables(tables: Mapping[str, Any]) -> None:
    """Print each set's table: the mean over the seeds, and half of the range where there are several."""
    for name, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows.values() for column in row))
        cells = [["", *columns]]
        cells += [[system, *(_cell(row.get(column)) for column in columns)] for system, row in rows.items()]
        widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
        print(f"\n{name}")
        for line in cells:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def _cell(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "-"
    half = (value["high"] - value["low"]) / 2
    return f"{value['mean']:.4f}" + (f" ±{half:.4f}" if value["seeds"] > 1 else "")


def make_figures(pieces: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the figures that have targets, of the sets that were measured."""
    results = Results(pieces)
    figures: list[Figure | None] = []
    for name in ("movielens-100k", "movielens-t"):
        judged = name == "movielens-t"
        figures += [
            _against_best(results, name, "overall", (">=", 1.2) if judged else None),
            _against_best(results, name, "tail", (">=", 1.75) if judged else None),
            _coverage(results, name, judged=judged),
            _alone(f"{name} training", results.minutes(name, OURS), "minutes", ("<=", 15.0) if judged else None),
        ]
    figures += _hidden(results)
    for name in ("movielens-l", "movielens-l-shuffled"):
        for metric, bound in (("hit_rate@10", 0.33), ("ndcg@10", 0.195)):
            target = (">=", bound) if name == "movielens-l" else None
            figures.append(_alone(f"{name} {metric}", results.values(name, OURS, "overall", metric), "share", target))
    for name, groups in (("globo", ("overall", "cold")), ("online-retail", ("overall", "tail"))):
        figures += [_against_best(results, name, group, (">", 1.0)) for group in groups]
    return [figure for figure in figures if figure is not None]


def _against_best(results: Results, name: str, group: str, target: tuple[str, float] | None) -> Figure | None:
    best = results.best(name, group, "recall@100")
    ours = results.values(name, OURS, group, "recall@100")
    if best is None:
        return None
    return _against(f"{name} {group} recall@100", ours, best, target)


def _coverage(results: Results, name: str, *, judged: bool) -> Figure | None:
    ours, ease = (results.values(name, system, "coverage", "catalogue_coverage@100") for system in (OURS, "ease"))
    return _against(f"{name} coverage@100", ours, ("ease", ease), (">=", 1.0) if judged else None)


def _against(name: str, ours: Values, peer: tuple[str, Values], target: tuple[str, float] | None) -> Figure | None:
    """Compare seed by seed; a baseline measured with fewer seeds stands for all by its mean."""
    label, values = peer
    if not ours or not values:
        return None
    mean = statistics.mean(values.values())
    peers = [values.get(seed, mean) for seed in ours]
    if min(peers) <= 0:
        return measure_figure(f"{name}, against {label}: 0", list(ours.values()), "share", target=target and (">", 0.0))
    return measure_figure(name, list(ours.values()), "share", against=label, peers=peers, target=target)


def _alone(name: str, values: Values, unit: str, target: tuple[str, float] | None) -> Figure | None:
    return measure_figure(name, list(values.values()), unit, target=target) if values else None


def _hidden(results: Results) -> list[Figure | None]:
    hidden = results.slice("hidden", OURS, "hidden")
    warm = results.slice("hidden", OURS, "warm")
    without = results.slice("hidden", "without_cold_start", "warm")
    loss = {seed: without[seed] - warm[seed] for seed in warm if seed in without}
    return [
        _alone("hidden 300 items recall@100", hidden, "share", (">=", 0.27)),
        _alone("hidden warm recall@100 lost to the hidden ones", loss, "share", ("<=", 0.02)),
    ]
