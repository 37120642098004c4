from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.errors import ArtifactCorruptError
from recsys_cg.serving import ids as module
from recsys_cg.serving.ids import IdIndex


def index(*names: str) -> IdIndex:
    return IdIndex(pa.chunked_array([pa.array(names[:2], pa.string()), pa.array(names[2:], pa.string())]))


def test_rows_follow_the_order_asked_and_unknown_is_minus_one():
    assert index("b", "a", "ä🎬", "").rows(["ä🎬", "x", "b", "", "b"]).tolist() == [2, -1, 0, 3, 0]


def test_names_follow_rows():
    assert index("b", "a", "ä🎬").names(np.array([2, 0, 2])) == ["ä🎬", "b", "ä🎬"]


def test_nothing_asked_and_nothing_known():
    assert index("a").rows([]).tolist() == []
    assert IdIndex(pa.chunked_array([], pa.string())).rows(["a"]).tolist() == [-1]
    assert len(IdIndex(pa.chunked_array([], pa.string()))) == 0


def test_an_id_that_is_there_twice_is_refused_with_both_rows():
    with pytest.raises(ArtifactCorruptError, match="'b' is there twice: rows 0 and 2"):
        index("b", "a", "b")


def test_a_lone_surrogate_is_unknown():
    assert index("a").rows(["\ud800"]).tolist() == [-1]


def test_ids_of_equal_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "hash", len, raising=False)
    names = ["aa", "bb", "c", "dd"]
    found = index(*names)
    assert found.rows([*names, "zz", "z", "zzz"]).tolist() == [0, 1, 2, 3, -1, -1, -1]


def test_many_ids_across_blocks():
    names = [f"item-{number}" for number in range(70_000)]
    found = index(*names)
    assert found.rows([names[69_999], names[65_536], names[65_535], "item-70000"]).tolist() == [
        69_999,
        65_536,
        65_535,
        -1,
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9, 1000])
def test_every_id_is_found_whatever_the_number_of_items(count: int):
    names = [f"{number}" for number in range(count)]
    found = index(*names)
    assert found.rows(names).tolist() == list(range(count))
    assert found.rows([f"no {number}" for number in range(2000)]).tolist() == [-1] * 2000


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 1, 2**63 - 1])
def test_a_hash_at_either_end_is_found(monkeypatch: pytest.MonkeyPatch, value: int):
    hashes = {"a": value, "b": 5, "c": -5, "x": value}
    monkeypatch.setattr(module, "hash", hashes.__getitem__, raising=False)
    assert index("b", "a", "c").rows(["a", "c", "x", "b"]).tolist() == [1, 2, -1, 0]
