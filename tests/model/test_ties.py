"""Events of one time: shuffled among themselves, and in part predicted from one another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.model.inputs import Sequences
from recsys_cg.model.ties import mix_ties
from recsys_cg.schema import sequences_schema


def sequences(*users: tuple[list[int], list[int]]) -> Sequences:
    """Users as (items, times in seconds)."""
    rows = [
        {
            "user_id": f"u{number}",
            "item_rows": items,
            "times_us": [1_000_000 * time for time in times],
            "events": [item % 3 for item in items],
            "weights": [float(item) for item in items],
        }
        for number, (items, times) in enumerate(users)
    ]
    return Sequences.from_tables([pa.Table.from_pylist(rows, schema=sequences_schema)])


BASKETS = sequences(([10, 11, 12, 20, 21, 30], [1, 1, 1, 5, 5, 9]), ([40, 41], [1, 1]))


def test_in_order_each_event_is_predicted_from_the_one_before() -> None:
    mixed = mix_ties(BASKETS, share=1.0, seed=0, epoch=0)
    assert mixed.before.tolist() == [-1, 0, 1, 2, 3, 4, -1, 6]


def test_strictly_the_query_stays_before_the_basket() -> None:
    assert mix_ties(BASKETS, share=0.0, seed=0, epoch=0) is BASKETS
    assert BASKETS.before.tolist() == [-1, -1, -1, 2, 2, 4, -1, -1]


def test_events_stay_in_their_basket_with_their_code_and_weight() -> None:
    seen = set()
    for epoch in range(30):
        mixed = mix_ties(BASKETS, share=0.5, seed=0, epoch=epoch)
        assert sorted(mixed.items[:3]) == [10, 11, 12]
        assert sorted(mixed.items[3:5]) == [20, 21]
        assert mixed.items[5] == 30
        assert sorted(mixed.items[6:]) == [40, 41]
        assert mixed.codes.tolist() == [item % 3 for item in mixed.items]
        assert mixed.weights.tolist() == mixed.items.tolist()
        seen.add(tuple(mixed.items[:3].tolist()))
    assert len(seen) == 6


def test_a_basket_is_predicted_in_order_or_strictly_as_a_whole() -> None:
    kinds = {tuple(mix_ties(BASKETS, share=0.5, seed=0, epoch=epoch).before[:3].tolist()) for epoch in range(30)}
    assert kinds == {(-1, -1, -1), (-1, 0, 1)}


def test_the_gap_within_a_basket_is_zero_and_so_tells_the_two_apart() -> None:
    mixed = mix_ties(BASKETS, share=1.0, seed=0, epoch=0)
    assert mixed.gaps_s.tolist() == [0.0, 0.0, 4.0, 0.0, 4.0, 0.0, 0.0, 0.0]


def test_the_share_of_baskets_in_order_is_the_one_asked_for() -> None:
    many = sequences(*(([0, 1], [1, 1]) for _ in range(4000)))
    in_order = float((mix_ties(many, share=0.3, seed=1, epoch=0).before[1::2] >= 0).mean())
    assert in_order == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 4000))


def test_one_seed_and_epoch_give_one_arrangement() -> None:
    first, again, other = (mix_ties(BASKETS, share=0.5, seed=3, epoch=epoch).items.tolist() for epoch in (0, 0, 1))
    assert first == again
    assert any(mix_ties(BASKETS, share=0.5, seed=3, epoch=epoch).items.tolist() != first for epoch in range(1, 6))
    assert len(other) == len(first)


def test_events_at_different_times_are_left_alone() -> None:
    apart = sequences(([5, 6, 7], [1, 2, 3]))
    mixed = mix_ties(apart, share=1.0, seed=0, epoch=0)
    assert mixed.items.tolist() == [5, 6, 7]
    assert mixed.before.tolist() == [-1, 0, 1]
