"""The baselines of `bench_quality`: the product's own, and what some sets add to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from recsys_cg.data.dataset import Dataset
from recsys_cg.evaluation import System
from recsys_cg.evaluation.baselines import fit_baselines
from recsys_cg.evaluation.baselines.ease import Ease, fit_ease
from recsys_cg.evaluation.baselines.popularity import RecentPopularity, events_of
from recsys_cg.evaluation.baselines.sessions import Sessions
from recsys_cg.evaluation.baselines.tuning import Ladder, Tuner
from recsys_cg.evaluation.queries import prepare_queries
from tests.benchmarks.quality_sets import QualitySet

RECENT_HOURS = {"popularity_last_hour": 1.0, "popularity_last_day": 24.0}
BASELINES = ("popularity", "popularity_recent", *RECENT_HOURS, "item_knn", "ease", "ials")
_EASE_ITEMS = 12_000


def fit_baseline(name: str, quality: QualitySet, dataset: Dataset, seed: int) -> System:
    """Fit one baseline, every hyperparameter tuned on validation queries (fewer of them in a quick bench).

    Where a catalogue is too large for EASE, it knows the 12,000 items with most training events; the others score 0.

    Raises:
        RuntimeError: a library is missing.
    """
    validation, test = dataset.queries("validation"), dataset.queries("test")
    if name in RECENT_HOURS:
        sessions = Sessions.of(dataset.sequences(), dataset.items.num_rows)
        times, rows = events_of(sessions, (validation, test))
        recent = RecentPopularity(times, rows, sessions.items, hours=RECENT_HOURS[name])
        recent.name = name
        return recent
    config = quality.config.evaluation.model_copy(update={"baselines": [name]})
    systems, skipped = fit_baselines(
        dataset.items, dataset.sequences(), config,
        validation=validation, test=test, seed=seed, thorough=not quality.overrides,
    )  # fmt: skip
    if systems:
        return systems[0]
    if name != "ease":
        raise RuntimeError(f"{name}: {skipped[name]}")
    return _truncated_ease(quality, dataset, validation, seed)


def _truncated_ease(quality: QualitySet, dataset: Dataset, validation: pa.Table, seed: int) -> System:
    settings = quality.config.evaluation
    sessions = Sessions.of(dataset.sequences(), dataset.items.num_rows)
    is_popular = sessions.item_rows.values < _EASE_ITEMS  # rows are in order of popularity
    known = Sessions(sessions.item_rows.keep(is_popular), sessions.times_us[is_popular], sessions.items)
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
