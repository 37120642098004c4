"""Folding in, on a made-up world in which an item's vector is a known turn of the mean of its queries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recsys_cg.geometry import l2_normalise
from recsys_cg.schema import sequences_schema
from recsys_cg.workflow.folding import choose_events, fit_map, fold_in, query_table

SECOND = 1_000_000


def sequences(*users: tuple[list[int], list[int]]) -> pa.Table:
    """Users as (item rows, seconds)."""
    columns = [
        [f"u{place}" for place in range(len(users))],
        [rows for rows, _ in users],
        [[SECOND * one for one in times] for _, times in users],
        [[0] * len(rows) for rows, _ in users],
        [[1.0] * len(rows) for rows, _ in users],
    ]
    return pa.table(columns, schema=sequences_schema)


def wanted(items: int, *rows: int) -> np.ndarray:
    mask = np.zeros(items, dtype=np.bool_)
    mask[list(rows)] = True
    return mask


def test_the_last_choices_of_an_item_are_taken_whoever_made_them() -> None:
    tables = [sequences(([0, 5], [1, 2]), ([1, 5, 5], [1, 3, 9])), sequences(([2, 5], [1, 4]))]
    events = choose_events(tables, wanted(6, 5), most=3)
    assert events.tolist() == [[5, 0, 1, 2], [5, 1, 0, 1], [5, 0, 1, 1]]


def test_a_choice_without_a_past_says_nothing() -> None:
    events = choose_events([sequences(([5, 5, 0, 5], [1, 1, 1, 2]))], wanted(6, 5), most=9)
    assert events.tolist() == [[5, 0, 0, 3]]


def test_nobody_and_nothing_wanted_give_no_event() -> None:
    assert choose_events([sequences()], wanted(3, 1), most=9).shape == (0, 4)
    assert choose_events([sequences(([0, 1], [1, 2]))], wanted(3, 2), most=9).shape == (0, 4)


def test_a_query_knows_only_what_came_strictly_before_and_the_last_of_it() -> None:
    tables = [sequences(([0, 1, 2, 3, 4], [1, 2, 3, 3, 5]))]
    table = query_table(tables, np.array([[3, 0, 0, 3], [4, 0, 0, 4]]), 3)
    assert table["history"].to_pylist() == [[0, 1], [1, 2, 3]]
    assert table["history_times_us"].to_pylist() == [[SECOND, 2 * SECOND], [2 * SECOND, 3 * SECOND, 3 * SECOND]]
    assert table["time_us"].to_pylist() == [3 * SECOND, 5 * SECOND]
    assert table["history_length"].to_pylist() == [2, 4]


def test_context_is_that_of_the_choice() -> None:
    table = sequences(([0, 1, 2], [1, 2, 3])).append_column("c_device", pa.array([[7, 8, 9]], pa.list_(pa.int32())))
    assert query_table([table], np.array([[2, 0, 0, 2]]), 9)["c_device"].to_pylist() == [9]


def test_a_linear_map_is_found_and_its_constant_is_not_held_small() -> None:
    rng = np.random.default_rng(0)
    features = np.concatenate([rng.normal(size=(200, 3)), np.ones((200, 1))], axis=1)
    weights = np.array([[1.0, 0.0], [0.0, 2.0], [0.5, 0.5], [9.0, -9.0]])
    np.testing.assert_allclose(fit_map(features, features @ weights), weights, atol=1e-3)


TURN = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
ITEMS, NEW = 120, (100, 101)


def make_world() -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Each item is chosen after item 0 to 99 of its own direction; items 100 and 101 are as items 3 and 8."""
    rng = np.random.default_rng(1)
    directions = l2_normalise(rng.normal(size=(ITEMS, 3)))
    directions[list(NEW)] = directions[[3, 8]]
    users = [([row, row], [1, 2]) for row in range(100) for _ in range(6)]
    users += [([3, 100], [1, 2])] * 6 + [([8, 101], [1, 2])] * 6
    return sequences(*users), directions, l2_normalise(directions @ TURN)


def fold(counts: np.ndarray, is_known: np.ndarray, vectors: np.ndarray):  # type: ignore[no-untyped-def]
    table, directions, _ = make_world()

    def encode(queries: pa.Table) -> np.ndarray:
        return directions[[history[-1] for history in queries["history"].to_pylist()]]

    return fold_in(counts, is_known, vectors, [table], encode, max_history=5, seed=0)


def test_a_new_item_lies_where_its_queries_say() -> None:
    _, _, vectors = make_world()
    counts = np.where(np.arange(ITEMS) < 102, 6, 0)
    is_known = np.arange(ITEMS) < 100
    strange = vectors.copy()
    strange[list(NEW)] = [1, 0, 0]
    found = fold(counts, is_known, strange)
    assert found.rows.tolist() == list(NEW)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_less(0.97, np.einsum("ij,ij->i", found.vectors, vectors[list(NEW)]))


def test_nothing_is_folded_without_new_items_or_without_enough_known_ones() -> None:
    _, _, vectors = make_world()
    counts = np.where(np.arange(ITEMS) < 102, 6, 0)
    assert fold(counts, counts > 0, vectors) is None
    assert fold(counts, np.arange(ITEMS) < 20, vectors) is None
    assert fold(np.zeros(ITEMS, dtype=np.int64), np.arange(ITEMS) < 100, vectors) is None
