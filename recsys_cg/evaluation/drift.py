"""Drift: what a release answers to frozen probes, against its predecessor; and fresh queries, against the probes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.evaluation.probes import Answers

__all__ = ["compare_queries", "measure_drift"]

Floats = NDArray[np.float64]

_EXACT = 10_000
"""Product of two samples' sizes up to which the p-value is exact; the asymptotic one fails for single figures."""


def measure_drift(current: Answers, previous: Answers | None, *, k: int) -> dict[str, Any]:
    """Compare two releases on the same probes.

    Recall of the probes is recall of what their users chose next when they were frozen. Later releases were trained on
    those choices too, so it may rise; a fall means that known taste is lost.

    Args:
        current: of the release.
        previous: of its predecessor; None gives the figures of the release alone.
        k: list length.

    Returns:
        ``probes``; ``probe_recall@k`` and ``probe_index_recall@k`` (against exact search) of both; ``churn@k``: mean
        over probes of the share of the previous list that the current one lacks; for ``nearest_distance`` and
        ``query_norm`` the means and the two-sample Kolmogorov-Smirnov statistic with its p-value;
        ``mean_pairwise_similarity`` of both. A figure that cannot be had is None.

    Raises:
        EnvironmentMismatchError: SciPy is not installed.
    """
    if not current.item_ids:
        return {"probes": 0}
    result: dict[str, Any] = {
        "probes": len(current.item_ids),
        f"probe_recall@{k}": {"current": _mean(current.recall)},
        f"probe_index_recall@{k}": {"current": _mean(current.index_recall)},
        "mean_pairwise_similarity": {"current": current.mean_similarity},
    }
    if previous is None or len(current.item_ids) != len(previous.item_ids):
        return result | {
            "nearest_distance": {"mean": _mean(current.nearest_distance)},
            "query_norm": {"mean": _mean(current.query_norms)},
        }
    result[f"probe_recall@{k}"]["previous"] = _mean(previous.recall)
    result[f"probe_index_recall@{k}"]["previous"] = _mean(previous.index_recall)
    result["mean_pairwise_similarity"]["previous"] = previous.mean_similarity
    return result | {
        f"churn@{k}": _churn(current, previous),
        "nearest_distance": _two_samples(current.nearest_distance, previous.nearest_distance, "previous"),
        "query_norm": _two_samples(current.query_norms, previous.query_norms, "previous"),
    }


def compare_queries(fresh: Answers, frozen: Answers, *, k: int) -> dict[str, Any]:
    """Compare fresh queries with the frozen probes, both asked of one release.

    Returns:
        ``queries``; ``index_recall@k`` against exact search; for ``nearest_distance`` and ``query_norm`` the mean of
        the fresh queries, ``probe_mean`` and the two-sample test; ``mean_pairwise_similarity`` of the fresh queries.

    Raises:
        EnvironmentMismatchError: SciPy is not installed.
    """
    return {
        "queries": len(fresh.item_ids),
        f"index_recall@{k}": _mean(fresh.index_recall),
        "nearest_distance": _two_samples(fresh.nearest_distance, frozen.nearest_distance, "probe"),
        "query_norm": _two_samples(fresh.query_norms, frozen.query_norms, "probe"),
        "mean_pairwise_similarity": fresh.mean_similarity,
    }


def _churn(current: Answers, previous: Answers) -> float | None:
    kept = [
        (pc.sum(pc.is_in(old, value_set=new)).as_py() or 0) / len(old)
        for new, old in zip(current.item_ids, previous.item_ids, strict=True)
        if len(old)
    ]
    return 1.0 - float(np.mean(kept)) if kept else None


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _two_samples(now: Floats, then: Floats, other: str) -> dict[str, float | None]:
    try:
        from scipy.stats import ks_2samp  # noqa: PLC0415 - SciPy is of the report extra
    except ImportError as error:
        raise EnvironmentMismatchError("drift needs SciPy: pip install 'recsys-cg[report]'") from error
    result = {"ks": None, "p_value": None, "mean": _mean(now), f"{other}_mean": _mean(then)}
    now, then = now[~np.isnan(now)], then[~np.isnan(then)]
    if len(now) and len(then):
        # The last bits of a norm are no drift: compare at the precision of float32.
        few = len(now) * len(then) <= _EXACT
        test = ks_2samp(np.round(now, 6), np.round(then, 6), method="exact" if few else "asymp")
        result |= {"ks": float(test.statistic), "p_value": float(test.pvalue)}
    return result
