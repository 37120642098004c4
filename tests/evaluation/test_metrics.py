from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from numpy.typing import NDArray

from recsys_cg.errors import DataError
from recsys_cg.evaluation import metrics
from recsys_cg.evaluation.metrics import METRICS, TargetRanks, check_lists, rank_targets
from recsys_cg.evaluation.ragged import Ragged


def ranks_of(*queries: list[int]) -> TargetRanks:
    lists = Ragged.from_lengths(np.array([r for q in queries for r in q], dtype=np.int32), [len(q) for q in queries])
    return TargetRanks(lists.values, lists.owners, len(queries))


def test_every_metric_of_one_list_has_the_value_worked_out_by_hand() -> None:
    # Three targets, found at ranks 2 and 4 of the list (from 1); the third is not there.
    ranks = ranks_of([1, 3, -1])
    assert metrics.recall(ranks, 4)[0] == pytest.approx(2 / 3, abs=1e-15)
    assert metrics.hit_rate(ranks, 4)[0] == 1.0
    assert metrics.precision(ranks, 4)[0] == 0.5
    assert metrics.reciprocal_rank(ranks, 4)[0] == 0.5
    gained = 1 / math.log2(3) + 1 / math.log2(5)
    ideal = 1 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert metrics.ndcg(ranks, 4)[0] == pytest.approx(gained / ideal, abs=1e-15)
    assert metrics.average_precision(ranks, 4)[0] == pytest.approx((1 / 2 + 2 / 4) / 3, abs=1e-15)


def test_a_target_at_rank_k_counts_and_one_behind_it_does_not() -> None:
    ranks = ranks_of([9], [10])
    for name, metric in METRICS.items():
        inside, outside = metric(ranks, 10)
        assert inside > 0, name
        assert outside == 0, name


def test_ideal_ndcg_stops_at_k_when_there_are_more_targets_than_places() -> None:
    assert metrics.ndcg(ranks_of([0, 1, -1, -1, -1]), 2)[0] == pytest.approx(1.0, abs=1e-15)
    assert metrics.recall(ranks_of([0, 1, -1, -1, -1]), 2)[0] == 0.4


def test_the_order_of_the_targets_does_not_matter() -> None:
    a, b = ranks_of([4, 0, 2]), ranks_of([0, 2, 4])
    for metric in METRICS.values():
        assert metric(a, 5)[0] == metric(b, 5)[0]


@pytest.mark.parametrize("name", METRICS)
def test_a_query_without_target_is_nan_and_not_zero(name: str) -> None:
    values = METRICS[name](ranks_of([], [0], []), 10)
    assert np.isnan(values).tolist() == [True, False, True]
    assert METRICS[name](ranks_of(), 10).shape == (0,)


def test_metrics_are_fractions_and_grow_with_k_where_they_must() -> None:
    rng = np.random.default_rng(3)
    ranks = ranks_of(*(sorted(rng.choice(np.arange(-1, 60), 4, replace=False).tolist()) for _ in range(200)))
    for name, metric in METRICS.items():
        at = [metric(ranks, k) for k in (1, 5, 20, 60)]
        assert all(((values >= 0) & (values <= 1)).all() for values in at), name
        if name in {"recall", "hit_rate", "mrr", "map"}:
            assert all((low <= high + 1e-12).all() for low, high in itertools.pairwise(at)), name


def test_targets_are_ranked_by_item_whatever_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = np.array([[5, 2, 9], [1, -1, -1], [-1, -1, -1]], dtype=np.int32)
    targets = Ragged.from_lengths(np.array([9, 7, 5, 1, 0]), [3, 1, 1])
    assert rank_targets(lists, targets).tolist() == [2, -1, 0, 0, -1]
    monkeypatch.setattr(metrics, "_COMPARISONS", 1)
    assert rank_targets(lists, targets).tolist() == [2, -1, 0, 0, -1]


def test_lists_that_no_metric_may_count_are_refused_by_name() -> None:
    def check(lists: list[list[int]], k: int = 3) -> None:
        check_lists(np.array(lists, dtype=np.int32), queries=len(lists), k=k, items=10, system="mine")

    check([[1, 2, 3], [4, -1, -1], [-1, -1, -1]])
    for bad, words in (
        ([[1, 2, 1]], "'mine' recommended item_row 1 twice"),
        ([[1, -1, 2]], "'mine' returned padding"),
        ([[1, 2, 10]], "'mine' returned an item_row outside"),
        ([[1, -2, -1]], "'mine' returned an item_row outside"),
    ):
        with pytest.raises(DataError, match=words):
            check(bad)
    with pytest.raises(DataError, match="shape"):
        check([[1, 2, 3]], k=4)


def random_lists(seed: int, queries: int, k: int, items: int) -> tuple[NDArray[np.int32], list[list[int]]]:
    rng = np.random.default_rng(seed)
    lists = np.stack([rng.permutation(items)[:k] for _ in range(queries)]).astype(np.int32)
    targets = [sorted(rng.choice(items, size=rng.integers(1, 12), replace=False).tolist()) for _ in range(queries)]
    return lists, targets


def test_metrics_agree_with_ranx_on_random_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # compiling ranx takes a minute, running it as Python a second
    with warnings.catch_warnings():
        # numba and ir_datasets, which ranx imports, warn about their own use of NumPy and of imports
        warnings.simplefilter("ignore")
        ranx = pytest.importorskip("ranx")
        lists, targets = random_lists(seed=11, queries=150, k=40, items=90)
        qrels = ranx.Qrels({f"q{i:03}": {str(t): 1 for t in rows} for i, rows in enumerate(targets)})
        run = ranx.Run({f"q{i:03}": {str(item): float(-place) for place, item in enumerate(row)}
                        for i, row in enumerate(lists.tolist())})  # fmt: skip
        names = {"recall": "recall", "hit_rate": "hit_rate", "ndcg": "ndcg", "mrr": "mrr", "precision": "precision",
                 "map": "map"}  # fmt: skip
        wanted = [f"{theirs}@{k}" for theirs in names.values() for k in (1, 7, 40)]
        ranx.evaluate(qrels, run, wanted, return_mean=False)
    lengths = [len(rows) for rows in targets]
    flat = Ragged.from_lengths(np.array([t for rows in targets for t in rows]), lengths)
    ranks = TargetRanks(rank_targets(lists, flat), flat.owners, flat.rows)
    for ours, theirs in names.items():
        for k in (1, 7, 40):
            scores = run.scores[f"{theirs}@{k}"]
            expected = np.array([scores[f"q{i:03}"] for i in range(len(targets))])
            np.testing.assert_allclose(METRICS[ours](ranks, k), expected, rtol=0, atol=1e-9, err_msg=f"{ours}@{k}")
