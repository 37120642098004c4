from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.data.impressions import impressions_schema
from recsys_cg.data.skips import skipped_items
from recsys_cg.schema import sequences_schema

ALONE = np.arange(10, dtype=np.int32)


def sequences(users: dict[str, list[tuple[int, int]]]) -> pa.Table:
    """(item_row, time) of each user's events."""
    rows = [
        {
            "user_id": user,
            "item_rows": [item for item, _ in events],
            "times_us": [time for _, time in events],
            "events": [0] * len(events),
            "weights": [1.0] * len(events),
        }
        for user, events in users.items()
    ]
    return pa.Table.from_pylist(rows, schema=sequences_schema)


def impressions(rows: Sequence[tuple[str, int, int, int | None]]) -> pa.Table:
    """(user, item_row, time, position)."""
    names = ("user_id", "item_row", "time_us", "position")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=impressions_schema)


def test_what_was_shown_with_the_taken_item_and_not_taken_was_skipped() -> None:
    found = skipped_items(
        sequences({"a": [(1, 12), (2, 25)]}),
        impressions([("a", 1, 10, 0), ("a", 3, 10, 1), ("a", 4, 10, 2), ("a", 5, 20, 0), ("a", 2, 20, 1)]),
        ALONE,
        most=3,
    )
    np.testing.assert_array_equal(found, [[3, 4, -1], [5, -1, -1]])


def test_only_the_latest_request_at_or_before_the_event_counts() -> None:
    shown = impressions([("a", item, time, 0) for time in (5, 10, 15) for item in (1, time // 5 + 1)])
    np.testing.assert_array_equal(skipped_items(sequences({"a": [(1, 10)]}), shown, ALONE, most=2), [[3, -1]])


def test_an_item_met_at_any_time_or_a_duplicate_of_one_was_not_skipped() -> None:
    twins = ALONE.copy()
    twins[4] = 1
    shown = impressions([("a", item, 10, item) for item in (1, 2, 3, 4)])
    found = skipped_items(sequences({"a": [(1, 10), (2, 99)]}), shown, twins, most=2)
    np.testing.assert_array_equal(found, [[3, -1], [3, -1]])


def test_of_duplicates_one_is_kept() -> None:
    twins = ALONE.copy()
    twins[4] = 3
    shown = impressions([("a", item, 10, item) for item in (1, 3, 4, 3)])
    np.testing.assert_array_equal(skipped_items(sequences({"a": [(1, 10)]}), shown, twins, most=3), [[3, -1, -1]])


def test_first_positions_come_first_then_the_latest_shown_and_the_rest_is_cut() -> None:
    shown = impressions(
        [("a", 5, 8, None), ("a", 6, 9, None), ("a", 7, 10, 3), ("a", 8, 10, 1), ("a", 1, 10, 0), ("a", 9, 7, 0)]
    )
    found = skipped_items(sequences({"a": [(1, 11)]}), shown, ALONE, most=3, span_us=2)
    np.testing.assert_array_equal(found, [[8, 7, 6]])


def test_nothing_shown_after_the_taken_item_counts() -> None:
    shown = impressions([("a", 1, 10, 0), ("a", 3, 11, 1)])
    np.testing.assert_array_equal(skipped_items(sequences({"a": [(1, 12)]}), shown, ALONE, most=1, span_us=9), [[-1]])


def test_users_are_kept_apart_and_the_order_of_rows_does_not_matter() -> None:
    rows = [(user, item, 10, item) for user in ("b", "a", "nobody") for item in (1, 2, 3)]
    rows += [("b", 9, 10, 9)]
    users = sequences({"a": [(1, 10)], "z": [(1, 10)], "b": [(2, 11)]})
    expected = [[2, 3, -1], [-1, -1, -1], [1, 3, 9]]
    np.testing.assert_array_equal(skipped_items(users, impressions(rows), ALONE, most=3), expected)
    np.testing.assert_array_equal(skipped_items(users, impressions(rows[::-1]), ALONE, most=3), expected)


def test_a_request_of_thousands_is_bounded_to_its_newest() -> None:
    many = np.arange(2000, dtype=np.int32)
    shown = impressions([("a", int(item), int(item), None) for item in many])
    found = skipped_items(sequences({"a": [(1999, 1999)]}), shown, many, most=400, span_us=10_000)
    np.testing.assert_array_equal(found[0, :255], np.arange(1998, 1743, -1))
    assert (found[0, 255:] == -1).all()


@pytest.mark.parametrize("users", [{}, {"a": []}, {"a": [(1, 10)]}])
def test_without_impressions_nothing_was_skipped(users: dict[str, list[tuple[int, int]]]) -> None:
    found = skipped_items(sequences(users), impressions_schema.empty_table(), ALONE, most=2)
    assert found.shape == (sum(map(len, users.values())), 2)
    assert (found == -1).all()
