"""Recall against exact search, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.index.base import SearchResult
from recsys_cg.index.recall import Truth, find_truth, recall_by_bucket, recall_by_query, summarise
from tests.contracts.retriever import make_queries, make_vectors


def truth(rows: list[list[int]], scores: list[list[float]]) -> Truth:
    exact = SearchResult(np.int32(rows), np.float32(scores), np.full(len(rows), len(rows[0]), dtype=np.int32))
    return Truth(np.zeros((len(rows), 2), dtype=np.float32), exact)


def test_recall_is_the_share_that_scores_no_worse_than_the_last_exact_result() -> None:
    found = np.float32([[0.9, 0.8, 0.5, 0.4], [0.7, np.nan, np.nan, np.nan]])
    exact = truth([[0, 1, 2, 3], [4, 5, 6, 7]], [[0.9, 0.8, 0.7, 0.6], [0.7, 0.6, 0.5, 0.4]])
    assert recall_by_query(exact, found).tolist() == [2 / 4, 1 / 4]


def test_a_tie_at_the_end_counts_whichever_row_was_kept() -> None:
    exact = truth([[0, 1]], [[0.9, 0.5]])
    assert recall_by_query(exact, np.float32([[0.9, 0.5]])).tolist() == [1.0]


def test_a_summary_holds_the_mean_and_its_normal_interval() -> None:
    report = summarise(np.array([1.0, 0.5, 1.0, 0.5]))
    half = 1.959963984540054 * (1 / np.sqrt(12)) / 2
    assert report["mean"] == 0.75
    assert report["ci95"] == pytest.approx([0.75 - half, 1.0])
    assert summarise(np.array([0.5]))["ci95"] == [0.0, 1.0]


def test_recall_by_bucket_pools_neighbours_and_makes_up_none() -> None:
    exact = truth([[0, 1], [0, 2]], [[0.9, 0.8], [0.9, 0.8]])
    report = recall_by_bucket(exact, np.int32([[0, 5], [4, 2]]), np.array([0.5, 0.5]), ["a", "b", "b", "c", "c", "c"])
    assert report["a"]["mean"] == 1 / 2
    assert report["a"]["neighbours"] == 2
    assert report["b"]["mean"] == 1 / 2
    assert report["c"] == {"neighbours": 0}


def test_a_list_that_is_full_by_score_is_full_in_every_bucket() -> None:
    report = recall_by_bucket(truth([[0, 1]], [[0.9, 0.8]]), np.int32([[0, 2]]), np.array([1.0]), ["a", "b", "c"])
    assert report["b"]["mean"] == 1.0


def test_truth_is_cut_to_the_number_of_vectors_and_joins() -> None:
    found = find_truth(make_vectors()[:5], make_queries(3, 0), 100)
    assert found.k == 5
    assert found.join(found).exact.rows.shape == (6, 5)
