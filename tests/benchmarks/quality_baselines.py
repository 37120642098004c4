"""Baselines that a set of `bench_quality` adds to the product's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation import System
from recsys_cg.evaluation.baselines.ease import Ease, fit_ease
from recsys_cg.evaluation.baselines.popularity import RecentPopularity, events_of
from recsys_cg.evaluation.baselines.sessions import Sessions
from recsys_cg.evaluation.baselines.tuning import Ladder, Tuner
from recsys_cg.evaluation.queries import prepare_queries
from tests.benchmarks.quality_sets import QualitySet

RECENT_HOURS = {"globo": {"popularity_last_hour": 1.0, "popularity_last_day": 24.0}}
_EASE_ITEMS = 12_000


def more_baselines(
    quality: QualitySet,
    dataset: Dataset,
    skipped: dict[str, str],
    *,
    validation: pa.Table,
    test: pa.Table,
    seed: int,
) -> list[System]:
    """Return recent popularity over other windows where the set asks for it, and EASE where all items were too many.

    EASE then knows the 12,000 items with most training events; the others score 0. It leaves ``skipped``.
    """
    sessions = Sessions.of(dataset.sequences(), dataset.items.num_rows)
    systems: list[System] = []
    times, rows = events_of(sessions, (validation, test))
    for name, hours in RECENT_HOURS.get(quality.name, {}).items():
        recent = RecentPopularity(times, rows, sessions.items, hours=hours)
        recent.name = name
        systems.append(recent)
    if "ease" in skipped:
        systems.append(_truncated_ease(quality, dataset, sessions, validation, seed))
        del skipped["ease"]
    return systems


def _truncated_ease(
    quality: QualitySet, dataset: Dataset, sessions: Sessions, validation: pa.Table, seed: int
) -> System:
    settings = quality.config.evaluation
    popular = sessions.item_rows.keep(sessions.item_rows.values < _EASE_ITEMS)  # rows are in order of popularity
    known = Sessions(popular, sessions.times_us[sessions.item_rows.values < _EASE_ITEMS], sessions.items)
    tuning = prepare_queries(
        validation, dataset.items, filter_seen=settings.filter_seen, max_queries=settings.tuning_queries, seed=seed
    )

    @lru_cache(maxsize=1)
    def fit(regularisation: float) -> Any:
        return fit_ease(known, regularisation)

    def make(chosen: Mapping[str, Any]) -> System:
        weights, rows = fit(chosen["lambda"])
        return Ease(weights, rows, sessions.items, decay=chosen["decay"], settings={**chosen, "items": _EASE_ITEMS})

    decays = Ladder("decay", (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95), 3)
    lambdas = Ladder("lambda", (30.0, 100.0, 300.0, 1000.0, 3000.0), 2)
    return Tuner(tuning, sessions.items, settings.primary_k).climb(make, [decays, lambdas])
