"""Systems side by side: paired comparisons, and the figures of single queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.config import EvaluationConfig
from recsys_cg.evaluation.metrics import TargetRanks, recall
from recsys_cg.evaluation.queries import QUERY, QuerySet
from recsys_cg.evaluation.significance import paired_test
from recsys_cg.schema import BUCKETS

__all__ = ["compare_systems", "tabulate"]


def compare_systems(
    names: Sequence[str],
    ranks: Sequence[Mapping[int, TargetRanks]],
    queries: QuerySet,
    buckets: NDArray[np.int8],
    *,
    config: EvaluationConfig,
    seed: int,
) -> list[dict[str, Any]]:
    """Compare the first system with each other one: recall at the primary k, overall and by bucket.

    Args:
        names: of the systems.
        ranks: of each system, k -> where it found the targets.
        queries: what was asked.
        buckets: [items] positions in `recsys_cg.schema.BUCKETS`.
        config: primary k and bootstrap.
        seed: of the bootstrap.

    Returns:
        One entry a system and group: ``system``, ``against``, ``group``, ``metric``, and what `paired_test` gives.
    """
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


def tabulate(
    names: Sequence[str],
    ranks: Sequence[Mapping[int, TargetRanks]],
    queries: QuerySet,
    buckets: NDArray[np.int8],
    k: int,
) -> pa.Table:
    """Return one row a system and query: the columns that `recsys_cg.evaluation.protocol.Evaluation` describes."""
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
