"""Fitting the bonus of what trends to the vectors of a release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.config import Config
from recsys_cg.errors import DataError
from recsys_cg.progress import say
from recsys_cg.trends import TREND_BONUSES, FadingCounts, RankedTrends

if TYPE_CHECKING:
    from recsys_cg.data.dataset import Dataset
    from recsys_cg.index.base import Retriever
    from recsys_cg.repeats import Repeats

__all__ = ["fit_trends"]

_QUERIES = 2000


def fit_trends(
    config: Config,
    dataset: Dataset,
    encode: Callable[[pa.Table], NDArray[np.float32]],
    load: Callable[[], Retriever],
    *,
    vectors: NDArray[np.float32],
    repeats: Repeats | None,
) -> Mapping[str, Any] | None:
    """Return what a release's manifest says of trends; None where ``index.trend_half_life_hours`` is not set.

    Of `recsys_cg.trends.TREND_BONUSES` the one is taken at which most of the targets of 2,000 validation queries are
    found, each query with the counts of its own time, in lists as the evaluation makes them. Every release fits its
    own: how much similarities tell of the items of the hour depends on how long ago the encoder was trained.

    Args:
        config: ``[index]``, ``[evaluation]`` and ``[project]`` are read.
        dataset: of the release, row for row.
        encode: queries table -> float32 [queries, dim], unit norm.
        load: opens the index of the release; called where there is something to fit.
        vectors: float32 [items, dim], unit norm.
        repeats: how items of the history are ranked.

    Returns:
        ``{"half_life_hours", "bonus", "validation_recall"}``; the latter by bonus, null where the bonus was given.

    Raises:
        DataError: there is no validation query to fit on, and no ``index.trend_bonus``.
    """
    from recsys_cg.evaluation import TwoTowerSystem
    from recsys_cg.evaluation.metrics import recall
    from recsys_cg.evaluation.queries import prepare_queries
    from recsys_cg.evaluation.retrieval import rank_queries

    half_life, given, seed = config.index.trend_half_life_hours, config.index.trend_bonus, config.project.seed
    if half_life is None:
        return None
    if given is not None:
        return {"half_life_hours": half_life, "bonus": given, "validation_recall": None}
    validation = dataset.queries("validation")
    if not len(validation):
        raise DataError(
            "index.trend_half_life_hours needs validation queries to fit its bonus: set index.trend_bonus instead"
        )
    queries = prepare_queries(
        validation, dataset.items, filter_seen=config.evaluation.filter_seen, max_queries=_QUERIES, seed=seed
    )
    counts = FadingCounts.of(dataset.iter_sequences(), [validation], half_life_hours=half_life)
    rows, retriever = np.arange(len(dataset.items), dtype=np.int32), load()
    systems = [
        TwoTowerSystem(
            str(bonus),
            encode,
            retriever,
            item_rows=rows,
            items=len(rows),
            seed=seed,
            repeats=repeats,
            trends=RankedTrends(vectors, bonus, counts),
        )
        for bonus in TREND_BONUSES
    ]
    k = min(config.index.k, len(rows))
    say(f"release: fitting the bonus of what trends, by a half-life of {half_life:g} hours")
    ranks = rank_queries(systems, queries, len(rows), [k], quiet=True)
    found = {bonus: float(np.mean(recall(one[k], k))) for bonus, one in zip(TREND_BONUSES, ranks, strict=True)}
    best = max(found, key=lambda bonus: found[bonus])  # of equal ones the smallest
    say(f"trend bonus {best:g}: validation recall@{k} {found[0.0]:.4f} without, {found[best]:.4f} with it")
    return {
        "half_life_hours": half_life,
        "bonus": best,
        "validation_recall": {f"{bonus:g}": round(value, 6) for bonus, value in found.items()},
    }
