from __future__ import annotations

import pyarrow as pa

from recsys_cg.serving.eligibility import Availability


def availability(from_us: list[int | None], until_us: list[int | None]) -> Availability:
    return Availability(
        pa.chunked_array([pa.array(from_us, pa.int64())]), pa.chunked_array([pa.array(until_us, pa.int64())])
    )


def shown(found: Availability, time_us: int) -> list[bool]:
    mask = found.at(time_us)
    assert mask is not None
    return mask.tolist()


def test_no_limits_means_all_items():
    assert availability([None, None], [None, None]).at(5) is None
    assert availability([], []).at(5) is None


def test_an_item_is_available_from_its_first_moment_until_before_its_last():
    found = availability([10, None, None], [20, 20, None])
    assert shown(found, 9) == [False, True, True]
    assert found.at(10) is None
    assert found.at(19) is None
    assert shown(found, 20) == [False, False, True]


def test_times_before_1970_and_at_the_ends_of_time():
    found = availability([-5], [None])
    assert shown(found, -6) == [False]
    assert found.at(-5) is None
    assert shown(found, -(2**62)) == [False]
    assert found.at(2**62) is None


def test_the_same_span_gives_the_same_object_whatever_was_asked_between():
    found = availability([10, 20, 30, 40, 50, 60, None], [None] * 7)
    first = found.at(11)
    assert found.at(19) is first
    for time_us in (1, 21, 31, 41, 51, 61):
        found.at(time_us)
    assert shown(found, 11) == [True, False, False, False, False, False, True]
    assert found.at(60) is None
