from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.data.popularity import assign_buckets, count_buckets, sampling_probabilities


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([50, 30, 20, 0], ["head", "torso", "tail", "cold"]),
        ([49, 2, 29, 20], ["head", "head", "torso", "tail"]),
        ([1, 1, 1, 1, 1, 1, 1, 1, 1, 1], ["head"] * 5 + ["torso"] * 3 + ["tail"] * 2),
        ([100], ["head"]),
        ([0, 0], ["cold", "cold"]),
        ([], []),
    ],
)
def test_head_is_the_smallest_prefix_of_half_the_events_and_torso_reaches_four_fifths(
    counts: list[int], expected: list[str]
) -> None:
    assert assign_buckets(np.array(counts, dtype=np.int64)).tolist() == expected


def test_all_four_buckets_are_named_also_when_empty() -> None:
    assert count_buckets(np.array(["head", "cold", "cold"])) == {"head": 1, "torso": 0, "tail": 0, "cold": 2}


def test_sampling_probabilities_sum_to_one_and_are_zero_without_events() -> None:
    assert sampling_probabilities(np.array([3, 1, 0])).tolist() == [0.75, 0.25, 0.0]
    assert sampling_probabilities(np.array([0, 0])).tolist() == [0.0, 0.0]
