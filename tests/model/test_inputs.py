from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.errors import DataError
from recsys_cg.model.inputs import Sequences, fitting_rows, pack_batch, steps_per_epoch, stream_epoch
from recsys_cg.schema import sequences_schema

S = 1_000_000


def table(users: list[tuple[list[int], list[int]]]) -> pa.Table:
    """Sequences of (item_rows, times in seconds)."""
    return pa.table(
        {
            "user_id": [f"u{index}" for index in range(len(users))],
            "item_rows": [rows for rows, _ in users],
            "times_us": [[time * S for time in times] for _, times in users],
            "events": [[0] * len(rows) for rows, _ in users],
            "weights": [[1.0] * len(rows) for rows, _ in users],
        },
        schema=sequences_schema,
    )


def random_sequences(users: int, *, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, users)
    return Sequences.from_tables(
        [
            table([(rng.integers(0, 99, n).tolist(), np.sort(rng.integers(0, 20, n)).tolist()) for n in part])
            for part in np.array_split(lengths, 3)
        ]
    )


def test_the_query_of_a_target_is_the_last_event_strictly_before_it() -> None:
    # Times: 5, 5, 7, 7, 9. The tied first events have no history; both events at 7 are asked at place 1.
    sequences = Sequences.from_tables([table([([10, 11, 12, 13, 14], [5, 5, 7, 7, 9])])])
    np.testing.assert_array_equal(sequences.before, [-1, -1, 1, 1, 3])
    np.testing.assert_array_equal(sequences.gaps_s, [0.0, 2.0, 0.0, 2.0, 0.0])


def test_users_do_not_see_one_another() -> None:
    sequences = Sequences.from_tables([table([([1, 2], [1, 2]), ([3, 4], [2, 3])])])
    np.testing.assert_array_equal(sequences.before, [-1, 0, -1, 2])
    np.testing.assert_array_equal(sequences.gaps_s, [1.0, 0.0, 1.0, 0.0])
    np.testing.assert_array_equal(sequences.starts, [0, 2, 4])


def test_pack_lays_users_end_to_end_and_pads_the_rest() -> None:
    sequences = Sequences.from_tables([table([([1, 2, 3], [1, 2, 3]), ([4, 5], [1, 2])])])
    batch = pack_batch(sequences, np.array([3, 4, 0, 1, 2]), shape=(2, 4))
    np.testing.assert_array_equal(batch["items"], [[4, 5, 1, 2], [3, 0, 0, 0]])
    np.testing.assert_array_equal(batch["segment"], [[1, 1, 0, 0], [0, -1, -1, -1]])
    # Position 4 starts a row: its history lies in the row before, so it is no target here.
    np.testing.assert_array_equal(batch["weight"], [[1, 1, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(batch["query"], [8, 0, 8, 2, 0, 0, 0, 0])


def test_own_items_are_the_whole_training_history_of_each_user_of_the_batch() -> None:
    sequences = Sequences.from_tables([table([([1, 2, 3], [1, 2, 3]), ([4, 5], [1, 2])])])
    batch = pack_batch(sequences, np.array([2, 3]), shape=(1, 4))  # one event of each user
    pairs = set(zip(batch["own_segment"].tolist(), batch["own_item"].tolist(), strict=True))
    assert pairs == {(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)}


def test_event_weights_weigh_targets() -> None:
    one = table([([1, 2], [1, 2])]).set_column(4, "weights", pa.array([[0.5, 3.0]], pa.list_(pa.float32())))
    batch = pack_batch(Sequences.from_tables([one]), np.array([0, 1]), shape=(1, 2))
    np.testing.assert_array_equal(batch["weight"], [[0.5, 3.0]])


@pytest.mark.parametrize("shape", [(2, 5), (4, 16), (1, 2), (64, 64)])
def test_an_epoch_holds_every_event_once(shape: tuple[int, int]) -> None:
    sequences = random_sequences(40)
    batches = list(stream_epoch(sequences, shape=shape, seed=1, epoch=0))
    assert len(batches) == steps_per_epoch(sequences, shape=shape)
    held = np.concatenate([batch["items"][batch["segment"] >= 0] for batch in batches])
    np.testing.assert_array_equal(np.sort(held), np.sort(sequences.items))


def test_a_query_is_of_the_same_user_and_row_and_strictly_earlier() -> None:
    sequences = random_sequences(40)
    times = np.concatenate([np.cumsum(sequences.gaps_s[start:stop]) for start, stop in
                            zip(sequences.starts[:-1], sequences.starts[1:], strict=True)])  # fmt: skip
    assert len(times) == sequences.events
    places = np.arange(100)
    batch = pack_batch(sequences, places, shape=(10, 10))
    segment = batch["segment"].reshape(-1)
    for position in np.flatnonzero(batch["weight"].reshape(-1) > 0):
        query = int(batch["query"][position])
        if query < 100:
            assert query < position
            assert query // 10 == position // 10
            assert segment[query] == segment[position]
            assert sequences.before[position] == query
        else:
            assert sequences.before[position] == -1


def test_epochs_are_functions_of_seed_and_number() -> None:
    sequences = random_sequences(40)

    def epoch(**options: int) -> list[np.ndarray]:
        return [batch["items"] for batch in stream_epoch(sequences, shape=(2, 8), **{"seed": 1, "epoch": 3, **options})]

    first = epoch()
    np.testing.assert_array_equal(np.stack(first), np.stack(epoch()))
    assert (np.stack(first) != np.stack(epoch(epoch=4))).any()
    assert (np.stack(first) != np.stack(epoch(seed=2))).any()


def test_no_sequence_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DataError, match="no training sequence"):
        Sequences.from_tables([sequences_schema.empty_table()])


def test_empty_shards_and_users_of_no_event_are_passed_over() -> None:
    sequences = Sequences.from_tables([sequences_schema.empty_table(), table([([], []), ([1, 2], [1, 2]), ([], [])])])
    (batch,) = stream_epoch(sequences, shape=(1, 4), seed=0, epoch=0)
    np.testing.assert_array_equal(batch["items"], [[1, 2, 0, 0]])
    np.testing.assert_array_equal(batch["weight"], [[1, 1, 0, 0]])


def test_small_logs_take_small_steps_and_large_ones_full_steps() -> None:
    # 4 to 32 rows of 100 events, at least 400 steps an epoch where 4 rows allow it.
    assert fitting_rows(80_000, length=100) == 4
    assert fitting_rows(800_000, length=100) == 20
    assert fitting_rows(20_000_000, length=100) == 32
    assert fitting_rows(800_000, length=100, replicas=3) == 21
    assert fitting_rows(1, length=2) == 4
