"""Run systems over the same queries and measure them the same way.

Queries stream through in batches: the lists of a batch are turned into the rank of each target and into exposure
counts, and dropped. Memory grows with the queries and with the items, not with their product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.config import EvaluationConfig
from recsys_cg.errors import DataError
from recsys_cg.evaluation.debiasing import Exposures, Weights, match_impressions, popularity_propensity, weigh
from recsys_cg.evaluation.definitions import define
from recsys_cg.evaluation.exposure import Exposure
from recsys_cg.evaluation.metrics import TargetRanks, check_lists, rank_targets, recall
from recsys_cg.evaluation.queries import QUERY, Batch, QuerySet, prepare_queries
from recsys_cg.evaluation.scoring import groups_of, score
from recsys_cg.evaluation.significance import paired_test
from recsys_cg.evaluation.systems import System
from recsys_cg.progress import meter
from recsys_cg.schema import BUCKETS

__all__ = ["Evaluation", "bucket_codes", "evaluate", "evaluate_systems", "rank_queries"]

_T = TypeVar("_T")
_BATCH = 1024
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
    batch_rows: int = _BATCH,
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
        impressions: what was shown, with propensities or the mark of random exposure where they were logged; see
            `recsys_cg.evaluation.debiasing.match_impressions`.
        batch_rows: most queries a batch; the figures do not depend on it.

    Raises:
        DataError: two systems of one name, a list that holds an item twice or no item at all, a target that is no
            item.
    """
    names = [system.name for system in systems]
    if len(set(names)) < len(names):
        raise DataError(f"two systems share a name: {', '.join(names)}")
    chosen = prepare_queries(queries, items, filter_seen=config.filter_seen, max_queries=config.max_queries, seed=seed)
    sampled, pairs = _sample_pairs(chosen, seed)
    exposures = [Exposure(items.num_rows, config.k, sampled) for _ in systems]
    ranks = rank_queries(systems, chosen, items.num_rows, config.k, exposures, batch_rows=batch_rows)
    buckets = bucket_codes(items)
    counts = items.column("train_count").to_numpy()
    exposed = None if impressions is None else match_impressions(chosen, impressions)
    weights = _weights(chosen, counts, config, exposed)
    lengths = chosen.table.column("history_length").to_numpy()[chosen.targets.owners]
    groups = groups_of(buckets[chosen.targets.values], lengths, None if exposed is None else exposed.is_random)
    report: dict[str, Any] = {"protocol": {}, "systems": {}, "coverage": {}, "comparisons": []}
    candidates = chosen.lifetimes.ever_alive(chosen.times)
    for system, found, exposure in zip(systems, ranks, exposures, strict=True):
        report["systems"][system.name] = score(
            found,
            groups,
            weights,
            chosen.users,
            user_count=chosen.user_count,
            samples=config.bootstrap_samples,
            seed=seed,
        ) | ({"settings": dict(system.settings)} if system.settings else {})
        report["coverage"][system.name] = exposure.measure(
            candidates=candidates, buckets=buckets, train_counts=counts, pairs=pairs, primary_k=config.primary_k
        )
    report["systems"] |= {name: {"skipped": why} for name, why in (skipped or {}).items()}
    report["protocol"] = _describe(
        chosen, candidates, sequences, weights, config=config, seed=seed, cutoff_us=cutoff_us
    )
    report["comparisons"] = _compare(names, ranks, chosen, buckets, config=config, seed=seed)
    return Evaluation(report, _per_query(names, ranks, chosen, buckets, config.primary_k))


def rank_queries(
    systems: Sequence[System],
    queries: QuerySet,
    items: int,
    ks: Sequence[int],
    exposures: Sequence[Exposure] | None = None,
    *,
    batch_rows: int = _BATCH,
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


def bucket_codes(items: pa.Table) -> NDArray[np.int8]:
    """Return [items] position of each item's bucket in `recsys_cg.schema.BUCKETS`."""
    codes = pc.index_in(items.column("bucket"), value_set=pa.array(BUCKETS))
    if codes.null_count:
        raise DataError(f"items: column bucket holds a value outside {', '.join(BUCKETS)}")
    result: NDArray[np.int8] = codes.to_numpy().astype(np.int8)
    return result


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
        "definitions": define(config.k, config.primary_k),
    }


def _rfc3339(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _compare(
    names: Sequence[str],
    ranks: Sequence[Mapping[int, TargetRanks]],
    queries: QuerySet,
    buckets: NDArray[np.int8],
    *,
    config: EvaluationConfig,
    seed: int,
) -> list[dict[str, Any]]:
    """Compare the first system with each other one: recall at the primary k, overall and by bucket."""
    codes = buckets[queries.targets.values]
    masks = {"overall": np.ones(len(codes), dtype=np.bool_)} | {b: codes == i for i, b in enumerate(BUCKETS)}
    result = []
    for name, found in zip(names[1:], ranks[1:], strict=True):
        for group, mask in masks.items():
            a, b = (recall(each[config.primary_k].keep(mask), config.primary_k) for each in (ranks[0], found))
            test = paired_test(a, b, queries.users, samples=config.bootstrap_samples, seed=seed)
            about = {"system": names[0], "against": name, "group": group, "metric": f"recall@{config.primary_k}"}
            result.append(about | test)
    return result


def _per_query(
    names: Sequence[str],
    ranks: Sequence[Mapping[int, TargetRanks]],
    queries: QuerySet,
    buckets: NDArray[np.int8],
    k: int,
) -> pa.Table:
    codes = buckets[queries.targets.values]
    tables = []
    for name, found in zip(names, (each[k] for each in ranks), strict=True):
        best = np.full(queries.count, np.iinfo(np.int32).max, dtype=np.int32)
        hit = found.ranks >= 0
        np.minimum.at(best, found.owners[hit], found.ranks[hit])
        columns = {
            "system": pa.array([name] * queries.count, pa.string()).dictionary_encode(),
            "query": queries.table.column(QUERY),
            "user_id": queries.table.column("user_id"),
            "time_us": queries.table.column("time_us"),
            "rank": pa.array(best, mask=best == np.iinfo(np.int32).max),
            "recall": pa.array(recall(found, k)),
        }
        for code, bucket in enumerate(BUCKETS):
            values = recall(found.keep(codes == code), k)
            columns[f"recall_{bucket}"] = pa.array(values, mask=np.isnan(values))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables).unify_dictionaries() if tables else pa.table({})
