from __future__ import annotations

import numpy as np

from recsys_cg.evaluation.histories import Histories
from tests.evaluation.tables import make_queries

SECOND = 1_000_000
QUERIES = make_queries(
    [
        {
            "targets": [0],
            "time": 20 * SECOND,
            "history": [4, 2, 3],
            "times": [0, 5 * SECOND, 12 * SECOND],
            "events": [1, 0, 2],
        },
        {"targets": [0], "time": 7 * SECOND},
        {"targets": [0], "time": 3 * SECOND, "history": [1], "times": [4 * SECOND]},
    ]
)


def test_histories_are_left_aligned_oldest_first_with_gaps_to_what_follows() -> None:
    histories = Histories.of(QUERIES, 4)
    assert histories.rows.tolist() == [[4, 2, 3, -1], [-1] * 4, [1, -1, -1, -1]]
    assert histories.gap_s.tolist() == [[5, 7, 8, 0], [0] * 4, [0] * 4]  # a clock that ran back gives no gap
    assert histories.event.tolist() == [[1, 0, 2, 0], [0] * 4, [0] * 4]
    assert histories.length.tolist() == [3, 0, 1]
    assert (histories.rows.dtype, histories.gap_s.dtype) == (np.int32, np.float32)


def test_the_most_recent_are_kept() -> None:
    histories = Histories.of(QUERIES, 2)
    assert histories.rows[0].tolist() == [2, 3]
    assert histories.gap_s[0].tolist() == [7, 8]
    assert histories.length.tolist() == [2, 0, 1]


def test_unknown_items_leave_and_the_gap_closes_over_them() -> None:
    histories = Histories.of(QUERIES, 4, known=np.array([True, False, False, True, True]))
    assert histories.rows[0].tolist() == [4, 3, -1, -1]
    assert histories.gap_s[0].tolist() == [12, 8, 0, 0]
    assert histories.length.tolist() == [2, 0, 0]


def test_vectors_are_looked_up_with_zeros_in_padding() -> None:
    vectors = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = Histories.of(QUERIES, 4).look_up(vectors)
    assert found.shape == (3, 4, 2)
    assert found[0].tolist() == [[8, 9], [4, 5], [6, 7], [0, 0]]
    assert (found[1] == 0).all()


def test_no_queries_and_no_items_give_empty_arrays() -> None:
    histories = Histories.of(make_queries([]), 4)
    assert histories.rows.shape == (0, 4)
    assert histories.look_up(np.zeros((0, 3), dtype=np.float32)).shape == (0, 4, 3)
