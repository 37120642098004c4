from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.model import validation
from recsys_cg.model.frameworks import tf
from recsys_cg.model.validation import RecallProbe
from recsys_cg.schema import queries_schema


class Mirror:
    """Answers a query with the history vector of its last item."""

    def encode_histories(self, inputs: dict[str, Any]) -> Any:
        last = inputs["length"].numpy() - 1
        return tf.constant(inputs["history"].numpy()[np.arange(len(last)), last])


def queries(records: list[tuple[list[int], list[int], list[int]]]) -> pa.Table:
    """(history, targets, seen)."""
    rows = [
        {
            "user_id": "u",
            "time_us": 10,
            "targets": targets,
            "history": history,
            "history_times_us": [0] * len(history),
            "history_events": [0] * len(history),
            "history_length": len(history),
            "seen": seen,
        }
        for history, targets, seen in records
    ]
    return pa.Table.from_pylist(rows, schema=queries_schema)


# Items on a line of falling similarity to item 0: 0, 1, 2, 3, 4.
ANGLES = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
VECTORS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1).astype(np.float32)


def recall(records: list[tuple[list[int], list[int], list[int]]], k: int, vectors: np.ndarray = VECTORS) -> float:
    probe = RecallProbe(queries(records), max_history=3, k=k, most=100, seed=0)
    return probe.recall(Mirror(), vectors, vectors)  # type: ignore[arg-type]


def test_recall_is_the_share_of_targets_among_the_first_k() -> None:
    # Without item 0, which was seen, the order is 1, 2, 3, 4.
    assert recall([([0], [1, 4], [0])], k=2) == 0.5
    assert recall([([0], [1], [0]), ([0], [4], [0])], k=3) == 0.5
    assert recall([([0], [4], [0])], k=4) == 1.0


def test_seen_items_are_no_candidates_and_never_hits() -> None:
    assert recall([([0], [2], [0, 1])], k=1) == 1.0
    assert recall([([0], [0], [0])], k=5) == 0.0


def test_seen_items_are_candidates_where_coming_back_counts() -> None:
    table = queries([([0], [0], [0]), ([0], [2], [0])])
    probe = RecallProbe(table, max_history=3, k=1, most=100, seed=0, filter_seen=False)
    assert probe.recall(Mirror(), VECTORS, VECTORS) == 0.5  # type: ignore[arg-type]


def test_the_share_of_targets_met_before_is_told() -> None:
    def share(records: list[tuple[list[int], list[int], list[int]]]) -> float:
        return RecallProbe(queries(records), max_history=3, k=1, most=100, seed=0).share_met_before

    assert share([([0], [1, 0], [0, 3]), ([0], [3], [0]), ([0], [4], [4])]) == 0.5
    assert share([([0], [1], [0])]) == 0.0
    assert share([]) == 0.0


def test_equal_scores_go_to_the_smaller_row_and_are_no_free_hits() -> None:
    same = np.ones((5, 2), dtype=np.float32) / np.sqrt(2.0).astype(np.float32)
    assert recall([([4], [3], [4])], k=2, vectors=same) == 0.0
    assert recall([([4], [1], [4])], k=2, vectors=same) == 1.0


def test_k_above_the_catalogue_finds_everything_not_seen() -> None:
    assert recall([([0], [1, 2, 3, 4], [0])], k=500) == 1.0


def test_queries_without_target_are_left_out() -> None:
    probe = RecallProbe(queries([([0], [], [0]), ([0], [1], [0])]), max_history=3, k=1, most=100, seed=0)
    assert probe.size == 1


def test_the_sample_is_seeded_and_bounded() -> None:
    table = queries([([0], [target], [0]) for target in (1, 2, 3, 4) for _ in range(10)])
    probes = [RecallProbe(table, max_history=3, k=1, most=7, seed=seed) for seed in (1, 1, 2)]
    assert [probe.size for probe in probes] == [7, 7, 7]
    first, again, other = (probe.targets.first().tolist() for probe in probes)
    assert first == again != other


@pytest.mark.parametrize("rows", [1, 2, 3, 1024])
def test_recall_does_not_depend_on_the_block(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(validation, "_MOST_ROWS", rows)
    records = [([0], [1], [0]), ([4], [1, 2], [4]), ([2], [3], [2, 1]), ([3], [0], [3]), ([1], [0, 2], [1])]
    assert recall(records, k=2) == pytest.approx((1 + 0.5 + 1 + 0 + 1) / 5)


def test_recall_by_repeat_bonus_counts_what_the_raised_lists_hold() -> None:
    # From item 0 on the similarities are 1, .995, .980, .955, .921. Item 4 was met, so a bonus above .08 puts it
    # before all that is new; the target of the second query is new, and loses its place to item 3 at .045 and more.
    # What was met before the three events that the encoder reads (item 2 of the first query) is not raised.
    records = [([2, 4, 4, 0], [4], [2, 4, 0]), ([3, 0], [1], [3, 0])]
    probe = RecallProbe(queries(records), max_history=3, k=2, most=100, seed=0, filter_seen=False)
    by_bonus = probe.recall_by_repeat_bonus(Mirror(), VECTORS, VECTORS)  # type: ignore[arg-type]
    assert by_bonus[0.0] == 0.5
    assert by_bonus[0.05] == 0.0
    assert by_bonus[0.1] == 0.5
    assert by_bonus[2.0] == 0.5
    assert list(by_bonus) == sorted(by_bonus)
