"""Systems that a release must be compared with: fitted on the training window, fed with each query's history.

None of them knows a user by name: new users, and what a user did after training, count through the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.config import EvaluationConfig
from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.evaluation.baselines.popularity import Popularity, RecentPopularity, events_of
from recsys_cg.evaluation.baselines.sessions import Sessions
from recsys_cg.evaluation.baselines.tuning import Ladder, Tuner
from recsys_cg.evaluation.queries import prepare_queries
from recsys_cg.evaluation.systems import System
from recsys_cg.progress import say

__all__ = ["fit_baselines"]

Settings = Mapping[str, Any]

_DECAY = Ladder("decay", (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0), 4)
_SMALL_ITEMS = 5_000
_SMALL_EVENTS = 5_000_000


class _SkippedError(Exception):
    """A baseline cannot be run here; the message is the reason, for the report."""


@dataclass(frozen=True)
class _Ground:
    """What every baseline is fitted from."""

    sessions: Sessions
    train_counts: NDArray[np.int64]
    evaluation: Sequence[pa.Table]
    config: EvaluationConfig
    tuner: Tuner
    thorough: bool
    seed: int

    @property
    def is_small(self) -> bool:
        """Whether fitting once more is cheap."""
        return self.sessions.items <= _SMALL_ITEMS and len(self.sessions.times_us) <= _SMALL_EVENTS

    def ladder(self, name: str, values: tuple[Any, ...], start: int) -> Ladder:
        """Return all values where each may be fitted, else the default alone."""
        ladder = Ladder(name, values, start)
        return ladder if self.thorough or self.is_small else Ladder(name, (values[start],))


def fit_baselines(
    items: pa.Table,
    sequences: pa.Table,
    config: EvaluationConfig,
    *,
    validation: pa.Table,
    test: pa.Table,
    seed: int,
    thorough: bool = False,
) -> tuple[list[System], dict[str, str]]:
    """Fit the baselines that ``config.baselines`` names.

    Hyperparameters are chosen by recall@primary_k on at most ``config.tuning_queries`` validation queries: see
    `recsys_cg.evaluation.baselines.tuning.Tuner.climb`. With more than 5,000 items or 5 million training events only
    the weight of a history item's age is tried. `System.settings` says what was chosen.

    Args:
        items: items schema; item_rows by training popularity.
        sequences: training sequences.
        config: which baselines, and their limits.
        validation: validation queries; none is allowed.
        test: test queries. Nothing is fitted to them; ``popularity_recent`` counts their events once they are past.
        seed: of iALS and of the sample of validation queries.
        thorough: try every hyperparameter whatever the size, and more of them: for benchmarks.

    Returns:
        The systems, in the order of ``config.baselines``, and for each that could not be fitted the reason.
    """
    tuning = prepare_queries(
        validation, items, filter_seen=config.filter_seen, max_queries=config.tuning_queries, seed=seed
    )
    ground = _Ground(
        sessions=Sessions.of(sequences, items.num_rows),
        train_counts=items.column("train_count").to_numpy(),
        evaluation=(validation, test),
        config=config,
        tuner=Tuner(tuning, items.num_rows, config.primary_k),
        thorough=thorough,
        seed=seed,
    )
    systems: list[System] = []
    skipped: dict[str, str] = {}
    for name in config.baselines:
        say(f"baseline {name}")
        try:
            systems.append(_FITS[name](ground))
        except (_SkippedError, EnvironmentMismatchError) as reason:
            skipped[name] = str(reason)
        except ModuleNotFoundError as error:
            skipped[name] = f"{error.name} is not installed: pip install 'recsys-cg[report]'"
    return systems, skipped


def _fit_popularity(ground: _Ground) -> System:
    return Popularity(ground.train_counts)


def _fit_recent(ground: _Ground) -> System:
    times, rows = events_of(ground.sessions, ground.evaluation)
    return RecentPopularity(times, rows, ground.sessions.items, hours=ground.config.recent_hours)


def _fit_knn(ground: _Ground) -> System:
    from recsys_cg.data.co_occurrence import windowed_co_occurrence  # noqa: PLC0415 - needs SciPy, of the report extra
    from recsys_cg.evaluation.baselines.knn import ItemKnn, co_occurrence, nearest  # noqa: PLC0415

    @lru_cache(maxsize=2)
    def counts(window: int | None) -> Any:
        if window is None:
            return co_occurrence(ground.sessions)
        met = ground.sessions.item_rows
        return windowed_co_occurrence(met.values, met.owners, ground.sessions.items, window=window, decay=0.95)

    @lru_cache(maxsize=1)
    def neighbours(window: int | None, shrink: float, kept: int) -> Any:
        return nearest(counts(window), ground.train_counts, shrink=shrink, neighbours=kept)

    def make(settings: Settings) -> System:
        near = neighbours(settings["window"], settings["shrink"], settings["neighbours"])
        return ItemKnn(near, decay=settings["decay"], settings=settings)

    windows = (5, 10, 20, 50, None) if ground.is_small else (2, 5, 10, 20, 50)
    return ground.tuner.climb(
        make,
        [
            _DECAY,
            ground.ladder("window", windows, windows.index(20)),
            ground.ladder("shrink", (0.0, 1.0, 10.0, 100.0, 1000.0), 2),
            ground.ladder("neighbours", (50, 100, 200, 500, 1000), 1),
        ],
    )


def _fit_ease(ground: _Ground) -> System:
    from recsys_cg.evaluation.baselines.ease import Ease, fit_ease  # noqa: PLC0415 - needs SciPy, of the report extra

    limit = ground.config.ease_max_items
    if ground.sessions.items > limit:
        raise _SkippedError(
            f"the catalogue has {ground.sessions.items:,} items, more than evaluation.ease_max_items = {limit:,}"
        )
    fit = lru_cache(maxsize=2)(lambda regularisation: fit_ease(ground.sessions, regularisation))

    def make(settings: Settings) -> System:
        weights, known = fit(settings["lambda"])
        return Ease(weights, known, ground.sessions.items, decay=settings["decay"], settings=settings)

    lambdas = ground.ladder("lambda", (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0), 3)
    return ground.tuner.climb(make, [_DECAY, lambdas])


def _fit_ials(ground: _Ground) -> System:
    from recsys_cg.evaluation.baselines.ials import Ials, fit_item_factors  # noqa: PLC0415 - needs the report extra

    @lru_cache(maxsize=2)
    def fit(dim: int, alpha: float, regularisation: float) -> Any:
        return fit_item_factors(
            ground.sessions, dim=dim, alpha=alpha, regularisation=regularisation, iterations=10, seed=ground.seed
        )

    def make(settings: Settings) -> System:
        alpha, regularisation = settings["alpha"], settings["regularisation"]
        return Ials(
            fit(settings["dim"], alpha, regularisation),
            alpha=alpha,
            regularisation=regularisation,
            decay=settings["decay"],
            settings=settings,
        )

    dims = Ladder("dim", (32, 64, 128, 256), 1) if ground.thorough else Ladder("dim", (64,))
    return ground.tuner.climb(
        make,
        [
            _DECAY,
            ground.ladder("alpha", (0.5, 2.0, 10.0, 40.0, 160.0), 2),
            ground.ladder("regularisation", (0.1, 1.0, 10.0, 100.0, 1000.0), 1),
            dims,
        ],
    )


_FITS: Mapping[str, Callable[[_Ground], System]] = {
    "popularity": _fit_popularity,
    "popularity_recent": _fit_recent,
    "item_knn": _fit_knn,
    "ease": _fit_ease,
    "ials": _fit_ials,
}
