from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.data.identifiers import hash_strings, to_strings
from recsys_cg.errors import SourceError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["007", "", None, "a,b\nc", "naïve 🎬"], ["007", None, None, "a,b\nc", "naïve 🎬"]),
        ([7, None], ["7", None]),
        ([17850.0, float("nan"), 1.5], ["17850", None, "1.5"]),
        ([True, False], ["true", "false"]),
        ([None], [None]),
        ([], []),
    ],
)
def test_identifiers_are_strings(values: list[object], expected: list[str | None]) -> None:
    assert to_strings(pa.array(values), "id").to_pylist() == expected


def test_big_integers_keep_every_digit() -> None:
    assert to_strings(pa.array([2**63 - 1, -5]), "id").to_pylist() == ["9223372036854775807", "-5"]


def test_nested_and_binary_columns_are_refused_by_name() -> None:
    with pytest.raises(SourceError, match="'user' holds list"):
        to_strings(pa.array([[1]]), "user")
    with pytest.raises(SourceError, match=r"'user'.*cannot be read as text"):
        to_strings(pa.array([b"\xff"]), "user")


def test_hashes_are_the_same_everywhere_and_do_not_depend_on_neighbours() -> None:
    strings = pa.array(["a", "", "user-1", "ü" * 50])
    known = hash_strings(strings)
    assert known[0] == 13906159068427031964  # a changed hash would move users between shards of old and new runs
    assert np.array_equal(hash_strings(strings.slice(2)), known[2:])
    assert np.array_equal(hash_strings(strings.take(pa.array([3, 0]))), known[[3, 0]])
    assert len(set(hash_strings(pa.array([f"u{i}" for i in range(10_000)])).tolist())) == 10_000


def test_hashing_whole_sees_the_last_byte_of_a_long_string() -> None:
    long = pa.array(["x" * 100 + "a", "x" * 100 + "b"])
    assert len(set(hash_strings(long).tolist())) == 1
    assert len(set(hash_strings(long, whole=True).tolist())) == 2


def test_hashes_spread_evenly() -> None:
    shards = hash_strings(pa.array([str(i) for i in range(8_000)])) % np.uint64(8)
    assert np.bincount(shards.astype(int), minlength=8).min() > 900


def test_one_long_text_is_hashed_whole_without_a_step_a_byte() -> None:
    longest = "x" * 5_000_000
    started = time.perf_counter()
    hashes = hash_strings(pa.array([longest, longest[:-1] + "y", "x" * 1025, "x" * 1024 + "y", "x"]), whole=True)
    assert time.perf_counter() - started < 5
    assert len(set(hashes.tolist())) == 5
    alone = hash_strings(pa.array([longest]), whole=True)
    assert alone[0] == hashes[0]
