"""Run systems over the same queries and measure them the same way.

Queries stream through in batches: the lists of a batch are turned into the rank of each target and into exposure
counts, and dropped. Memory grows with the queries and with the items, not with their product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.config import EvaluationConfig
from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import DataError
from recsys_cg.evaluation.comparison import compare_systems, tabulate
from recsys_cg.evaluation.debiasing import Exposures, Weights, match_impressions, popularity_propensity, weigh
from recsys_cg.evaluation.definitions import define
from recsys_cg.evaluation.exposure import Exposure
from recsys_cg.evaluation.groups import bucket_codes, category_groups, groups_of
from recsys_cg.evaluation.metrics import choose_metrics
from recsys_cg.evaluation.queries import QuerySet, prepare_queries
from recsys_cg.evaluation.retrieval import BATCH_ROWS, rank_queries
from recsys_cg.evaluation.scoring import score
from recsys_cg.evaluation.systems import System

__all__ = ["Evaluation", "evaluate", "evaluate_systems"]

_OVERLAP_USERS = 1000
_OVERLAP_PAIRS = 2000


@dataclass(frozen=True)
class Evaluation:
    """What was measured.

    Attributes:
        report: the parts ``protocol``, ``systems``, ``coverage`` and ``comparisons`` of report.json.
        per_query: one row a system and query: ``system``, ``query`` (row of the queries table given), ``user_id``,
            ``time_us``, ``rank`` (from 0, of the best placed target; null where none was found), ``recall`` at the
            primary k, and ``recall_<bucket>`` (null where the query has no target in the bucket).
    """

    report: dict[str, Any]
    per_query: pa.Table


def evaluate(  # noqa: PLR0917 - the tables of one dataset
    systems: Sequence[System],
    queries: pa.Table,
    items: pa.Table,
    sequences: pa.Table,
    config: EvaluationConfig,
    seed: int,
    **options: Any,
) -> dict[str, Any]:
    """Return the report of `evaluate_systems`, without the figures of single queries."""
    return evaluate_systems(systems, queries, items, sequences, config, seed, **options).report


def evaluate_systems(  # noqa: PLR0917 - the tables of one dataset
    systems: Sequence[System],
    queries: pa.Table,
    items: pa.Table,
    sequences: pa.Table,
    config: EvaluationConfig,
    seed: int,
    *,
    cutoff_us: int | None = None,
    skipped: Mapping[str, str] | None = None,
    impressions: pa.Table | None = None,
    features: FeatureSet | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Evaluation:
    """Measure ``systems`` on the same queries against the whole catalogue.

    Args:
        systems: with distinct names; the first is compared with each of the others.
        queries: queries schema; their targets and seen items are rows of ``items``.
        items: items schema.
        sequences: training sequences; tells which users training knew.
        config: k, filtering, bootstrap.
        seed: of the query sample, the bootstrap and the sampled pairs of users.
        cutoff_us: start of the window that the queries come from; default: the time of the first query.
        skipped: systems that could not be run -> why, kept in the report.
        impressions: what was shown, as `recsys_cg.evaluation.debiasing.match_impressions` takes it.
        features: what the items' content columns were encoded with; needed by ``config.by``.
        batch_rows: most queries a batch; the figures do not depend on it.

    Raises:
        DataError: two systems of one name; a list that holds an item twice, or what is no item; a target that is none.
        ConfigError: ``config.by`` names what is no categorical feature, ``config.metrics`` what is no metric.
    """
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise DataError(f"two systems share a name: {', '.join(names)}")
    metrics = choose_metrics(config.metrics)
    chosen = prepare_queries(queries, items, filter_seen=config.filter_seen, max_queries=config.max_queries, seed=seed)
    buckets, counts = bucket_codes(items), items.column("train_count").to_numpy()
    exposed = None if impressions is None else match_impressions(chosen, impressions)
    weights = _weights(chosen, counts, config, exposed)
    groups = groups_of(chosen, buckets, None if exposed is None else exposed.is_random)
    groups += category_groups(chosen, items, features, config.by)
    sampled, pairs = _sample_pairs(chosen, seed)
    exposures = [Exposure(items.num_rows, config.k, sampled) for _ in systems]
    ranks = rank_queries(systems, chosen, items.num_rows, config.k, exposures, batch_rows=batch_rows)
    candidates = chosen.lifetimes.ever_alive(chosen.times)
    sums: dict[str, Any] = {"user_count": chosen.user_count, "samples": config.bootstrap_samples, "seed": seed}
    measured = {
        system.name: score(found, groups, weights, chosen.users, **sums, metrics=metrics) | _settings(system)
        for system, found in zip(systems, ranks, strict=True)
    }
    shown: dict[str, Any] = {"candidates": candidates, "buckets": buckets, "train_counts": counts, "pairs": pairs}
    report = {
        "protocol": _describe(chosen, candidates, sequences, weights, config=config, seed=seed, cutoff_us=cutoff_us),
        "systems": measured | {name: {"skipped": why} for name, why in (skipped or {}).items()},
        "coverage": _measure_all(names, exposures, **shown, primary_k=config.primary_k),
        "comparisons": compare_systems(names, ranks, chosen, buckets, config=config, seed=seed),
    }
    return Evaluation(report, tabulate(names, ranks, chosen, buckets, config.primary_k))


def _measure_all(names: Sequence[str], exposures: Sequence[Exposure], **shown: Any) -> dict[str, Any]:
    return {name: exposure.measure(**shown) for name, exposure in zip(names, exposures, strict=True)}


def _settings(system: System) -> dict[str, Any]:
    return {"settings": dict(system.settings)} if system.settings else {}


def _sample_pairs(queries: QuerySet, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ([samples] ascending query positions of distinct users, [pairs, 2] positions in the former)."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(queries.count)
    _, firsts = np.unique(queries.users[shuffled], return_index=True)
    chosen = rng.permutation(shuffled[firsts])[:_OVERLAP_USERS]
    if len(chosen) < 2:
        return np.sort(chosen), np.zeros((0, 2), dtype=np.int64)
    left = rng.integers(0, len(chosen), _OVERLAP_PAIRS)
    right = (left + rng.integers(1, len(chosen), _OVERLAP_PAIRS)) % len(chosen)
    return np.sort(chosen), np.stack((left, right), axis=1)


def _weights(
    queries: QuerySet, train_counts: NDArray[np.int64], config: EvaluationConfig, exposed: Exposures | None
) -> Weights:
    targets = queries.targets
    sizes = targets.lengths[targets.owners]
    if exposed is not None and not np.isnan(exposed.propensities).all():
        source = "logged with the impressions; targets without a logged impression are left out"
        return weigh(exposed.propensities, sizes, clip=config.propensity_clip, source=source)
    source = (
        "modelled from popularity: ((training count + 1) / the largest) ^ "
        f"{config.propensity_exponent:g}; no propensity was logged"
    )
    propensities = popularity_propensity(train_counts, config.propensity_exponent)
    return weigh(propensities[targets.values], sizes, clip=config.propensity_clip, source=source)


def _describe(
    queries: QuerySet,
    candidates: NDArray[np.bool_],
    sequences: pa.Table,
    weights: Weights,
    *,
    config: EvaluationConfig,
    seed: int,
    cutoff_us: int | None,
) -> dict[str, Any]:
    users = pc.unique(queries.table.column("user_id"))
    known = pc.sum(pc.is_in(users, value_set=sequences.column("user_id").combine_chunks())).as_py() or 0
    cutoff = int(queries.times[0]) if cutoff_us is None and queries.count else cutoff_us
    return {
        "split": config.split,
        "cutoff": None if cutoff is None else _rfc3339(cutoff),
        "k": list(config.k),
        "primary_k": config.primary_k,
        "queries": queries.count,
        "users": queries.user_count,
        "users_unseen_in_training": queries.user_count - known,
        "candidates": int(candidates.sum()),
        "filter_seen": config.filter_seen,
        "selection": queries.selection,
        "propensity": weights.summary,
        "bootstrap_samples": config.bootstrap_samples,
        "seed": seed,
        "definitions": define(config.k, config.primary_k, choose_metrics(config.metrics)),
    }


def _rfc3339(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
