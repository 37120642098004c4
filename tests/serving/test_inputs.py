from __future__ import annotations

from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cg.errors import SearchError
from recsys_cg.serving.entries import HistoryEvent, names_of, parse_time
from recsys_cg.serving.ids import IdIndex
from recsys_cg.serving.inputs import history_inputs, read_history

IDS = IdIndex(pa.chunked_array([pa.array(["a", "b", "c"])]))
CODES = {"buy": 0, "view": 1}
AT = 10_000_000
VECTORS = np.array([[1, 10], [2, 20], [3, 30]], np.float32)


def read(entries: object):
    return read_history(entries, IDS, CODES, AT)  # type: ignore[arg-type]


def test_plain_ids_happen_at_the_time_of_the_query():
    history = read(["c", "a"])
    assert history.rows.tolist() == [2, 0]
    assert history.times_us.tolist() == [AT, AT]
    assert history.events.tolist() == [0, 0]


def test_unknown_items_are_left_out_and_counted():
    history = read(["x", "b", "y"])
    assert (history.rows.tolist(), history.unknown) == ([1], 2)


def test_entries_that_all_have_a_time_are_sorted_and_ties_stay_as_given():
    history = read([{"item": "a", "time": 3}, {"item": "b", "time": 1, "event": "view"}, {"item": "c", "time": 1}])
    assert history.rows.tolist() == [1, 2, 0]
    assert history.times_us.tolist() == [1_000_000, 1_000_000, 3_000_000]
    assert history.events.tolist() == [1, 0, 0]


def test_an_entry_without_a_time_takes_the_time_of_the_next():
    history = read([{"item": "a"}, {"item": "b", "time": 4}, "c"])
    assert history.rows.tolist() == [0, 1, 2]
    assert history.times_us.tolist() == [4_000_000, 4_000_000, AT]


def test_an_unknown_event_counts_as_the_first_and_is_counted():
    history = read([{"item": "a", "event": "share"}, HistoryEvent("b", 1, "view")])
    assert (history.events.tolist(), history.unknown_events) == ([0, 1], 1)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("abc", "a list of items, not str"),
        ({"item": "a"}, "a list of items, not dict"),
        (None, "a list of items, not NoneType"),
        ([7], "not int"),
        ([{"id": "a"}], "not 'id'"),
        ([{"item": 7}], "not int"),
        ([{"time": 7}], "'item' of a history entry is an id"),
        ([{"item": "a", "event": 3}], "'event' of a history entry"),
        ([{"item": "a", "time": float("nan")}], "nan"),
        ([{"item": "a", "time": 1e300}], "1e\\+300"),
        ([{"item": "a", "time": True}], "not bool"),
        ([{"item": "a", "time": "yesterday"}], "'yesterday' is neither"),
        ([{"item": "a", "time": [1]}], "not list"),
    ],
)
def test_what_is_no_history_is_refused(entries: object, message: str):
    with pytest.raises(SearchError, match=message):
        read(entries)


def test_times_are_read_as_microseconds():
    assert parse_time(1.5) == 1_500_000
    assert parse_time(-1) == -1_000_000
    assert parse_time("1970-01-01T00:00:01Z") == 1_000_000
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    assert parse_time("1970-01-01T00:00:02") == 2_000_000
    assert parse_time(datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)) == 3_000_000


def inputs(rows, times, events, lengths, at, max_history=2):
    return history_inputs(
        np.array(rows, np.int32),
        np.array(times, np.int64),
        np.array(events, np.int32),
        np.array(lengths),
        np.array(at),
        vectors=VECTORS,
        max_history=max_history,
    )


def test_the_last_events_stand_left_aligned_oldest_first():
    tensors = inputs([0, 1, 2], [0, 2_000_000, 5_000_000], [1, 1, 0], [3], [6_500_000])
    assert tensors["history"].tolist() == [[[2, 20], [3, 30]]]
    assert tensors["gap_s"].tolist() == [[3.0, 1.5]]
    assert tensors["event"].tolist() == [[1, 0]]
    assert tensors["length"].tolist() == [2]


def test_what_lies_behind_the_length_is_zero():
    tensors = inputs([2], [0], [1], [1], [4_000_000], max_history=3)
    assert tensors["history"].tolist() == [[[3, 30], [0, 0], [0, 0]]]
    assert tensors["gap_s"].tolist() == [[4.0, 0.0, 0.0]]
    assert tensors["event"].tolist() == [[1, 0, 0]]


def test_a_batch_mixes_empty_short_and_long_histories():
    tensors = inputs(
        [0, 1, 2, 0], [1_000_000, 2_000_000, 3_000_000, 9_000_000], [0] * 4, [0, 3, 0, 1], [0, 5_000_000, 0, 9_000_000]
    )
    assert tensors["length"].tolist() == [0, 2, 0, 1]
    assert tensors["gap_s"].tolist() == [[0, 0], [1, 2], [0, 0], [0, 0]]
    assert tensors["history"][1].tolist() == [[2, 20], [3, 30]]
    assert not tensors["history"][[0, 2]].any()


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_a_history_alone_is_laid_out_as_in_a_batch(length: int):
    rows, times, events = [2, 0, 1][:length], [1_500_000, 9_000_000, 4_000_000][:length], [1, 0, 1][:length]
    alone = inputs(rows, times, events, [length], [10_000_000])
    batch = inputs(rows + rows, times + times, events + events, [length, length], [10_000_000, 10_000_000])
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], batch[name][1], err_msg=name)
        assert value.dtype == batch[name].dtype


def test_time_that_runs_backwards_gives_no_negative_gap():
    assert inputs([0, 1], [9_000_000, 3_000_000], [0, 0], [2], [1_000_000])["gap_s"].tolist() == [[0.0, 0.0]]


def test_only_empty_histories_and_no_history_at_all():
    assert inputs([], [], [], [0, 0], [1, 1])["length"].tolist() == [0, 0]
    assert inputs([], [], [], [], [])["history"].shape == (0, 2, 2)


def test_types_are_those_of_the_tower():
    kinds = {name: value.dtype for name, value in inputs([0], [0], [0], [1], [0]).items()}
    assert kinds == {"history": np.float32, "gap_s": np.float32, "event": np.int32, "length": np.int32}


TIMES = st.one_of(
    st.none(),
    st.floats(-62_135_596_800.0, 253_402_300_799.0),
    st.floats(1.79e9, 1.8e9).map(lambda time: round(time, 6)),
    st.integers(-62_135_596_800, 253_402_300_799),
    st.sampled_from(["2026-01-01", "x", True, float("nan"), float("inf"), 1e300, -1e12]),
)
ENTRIES = st.fixed_dictionaries(
    {"item": st.sampled_from(["a", "b", "c", "ä/🎬", "nobody", "", 5, None])},
    optional={"time": TIMES, "event": st.sampled_from([None, "buy", "view", "unheard", 7]), "rating": st.just(1)},
)


@given(entries=st.lists(ENTRIES, max_size=6), clean=st.booleans())
def test_dictionaries_are_read_as_any_mapping_is(entries: list[dict[str, object]], clean: bool) -> None:
    if clean:  # otherwise nearly every list is refused
        for entry in entries:
            entry.pop("rating", None)
            entry["item"] = str(entry["item"])
            if not isinstance(entry.get("event"), str | None):
                entry["event"] = None
            if not isinstance(time := entry.get("time"), float) or not -1e10 < time < 1e10:
                entry["time"] = 0.5

    def outcome(given: list[object]) -> object:
        try:
            found = read_history(given, IDS, {"buy": 0, "view": 1}, 10**15)  # type: ignore[arg-type]
        except SearchError as error:
            return str(error)
        lists = [column.tolist() for column in (found.rows, found.times_us, found.events)]
        return [*lists, found.unknown, found.unknown_events]

    assert outcome(list(entries)) == outcome(list(map(MappingProxyType, entries)))
    assert names_of(entries) == (
        [entry["item"] for entry in entries]
        if entries and all(isinstance(entry["item"], str) for entry in entries)
        else None
    )
