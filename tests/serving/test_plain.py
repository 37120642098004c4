from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cg.config import ServingConfig
from recsys_cg.serving.answer import Request
from recsys_cg.serving.entries import HistoryColumns
from recsys_cg.serving.ids import IdIndex
from recsys_cg.serving.inputs import read_history
from recsys_cg.serving.requests import RequestModels, to_request

MODELS = RequestModels.of(ServingConfig(max_k=200, max_history=4))
IDS = IdIndex(pa.chunked_array([pa.array(["a", "b", "ä/🎬", "", "x" * 4096])]))
CODES = {"buy": 0, "view": 1}


def by_models(body: bytes) -> Request | None:
    try:
        return to_request(MODELS.candidates.model_validate_json(body))
    except ValidationError:
        return None


def assert_equal(one: Request, other: Request) -> None:
    fields = ("k", "user_id", "allow", "deny_seen", "at", "explain", "context")
    assert [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]
    assert list(one.exclude) == list(other.exclude)
    assert (one.history is None) == (other.history is None)
    if one.history is None or other.history is None:
        return
    first, second = (read_history(history, IDS, CODES, 10**15) for history in (one.history, other.history))
    for name in ("rows", "times_us", "events", "unknown", "unknown_events"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"history": []},
        {"history": None, "user_id": "ann", "k": 200},
        {"history": ["a", "nobody", "ä/🎬", ""]},
        {"history": [{"item": "b", "time": 2}, {"item": "a", "time": 1.5, "event": "view"}], "k": 1},
        {"history": [{"item": "a", "time": None, "event": "sold"}, {"event": None, "item": "b"}]},
        {"history": [{"item": "a", "time": -62135596800}, {"item": "a", "time": 253402300799}]},
        {"history": ["x" * 4096], "user_id": "x" * 4096},
    ],
)
def test_a_plain_body_is_read_as_the_models_read_it(body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    found, expected = MODELS.plain.read(text), by_models(text)
    assert found is not None
    assert expected is not None
    assert_equal(found, expected)


def test_objects_become_columns() -> None:
    found = MODELS.plain.read(b'{"history": [{"item": "a", "time": 7.25, "event": "view"}, {"item": "b", "time": 8}]}')
    assert found is not None
    assert found.history == HistoryColumns(["a", "b"], [7_250_000, 8_000_000], ["view", None])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"history": ["a"]} more',
        b'{"history": "a"}',
        b'{"history": ["a", 1]}',
        b'{"history": ["a", {"item": "a"}]}',
        b'{"history": ["a", "a", "a", "a", "a"]}',
        b'{"history": [{"item": 1}]}',
        b'{"history": [{"item": "a", "time": true}]}',
        b'{"history": [{"item": "a", "time": "1970-01-01T00:00:00Z"}]}',
        b'{"history": [{"item": "a", "time": NaN}]}',
        b'{"history": [{"item": "a", "time": 253402300800}]}',
        b'{"history": [{"item": "a", "time": 1e400}]}',
        b'{"history": [{"item": "a", "event": 1}]}',
        b'{"history": [{"item": "a", "where": "b"}]}',
        b'{"history": [{"time": 1}]}',
        b'{"history": ["\xff"]}',
        b'{"history": ["\\ud800"]}',
        b'{"k": 0}',
        b'{"k": 201}',
        b'{"k": true}',
        b'{"k": 1.0}',
        b'{"k": null}',
        b'{"user_id": 1}',
        b'{"user_id": "' + b"x" * 4097 + b'"}',
        b'{"history": ["' + b"x" * 4097 + b'"]}',
        b'{"history": [{"item": "' + b"x" * 4097 + b'"}]}',
        b'{"history": [{"item": "a", "event": "' + b"x" * 4097 + b'"}]}',
        b'{"allow": ["a"]}',
        b'{"deny_seen": false}',
        b'{"strange": 1}',
        b"[" * 100_000,
    ],
)
def test_everything_else_is_left_to_the_models(body: bytes) -> None:
    assert MODELS.plain.read(body) is None


VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.floats(),
    st.sampled_from(["a", "b", "ä/🎬", "nobody", "view", "1970-01-01T00:00:01Z"]),
)
ENTRY = st.one_of(
    st.sampled_from(["a", "b", "ä/🎬", "nobody"]),
    st.fixed_dictionaries({"item": st.sampled_from(["a", "b", "nobody"])}, optional={"time": VALUE, "event": VALUE}),
    st.dictionaries(st.sampled_from(["item", "time", "event", "where"]), VALUE, max_size=4),
    VALUE,
)
BODY = st.one_of(
    st.fixed_dictionaries({}, optional={"history": st.lists(ENTRY, max_size=5), "k": VALUE, "user_id": VALUE}),
    st.dictionaries(st.sampled_from(["history", "k", "user_id", "exclude", "at", "strange"]), VALUE, max_size=4),
)


@given(body=BODY)
@settings(max_examples=400)
def test_whatever_is_read_at_all_is_read_as_the_models_read_it(body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    found = MODELS.plain.read(text)
    if found is None:
        return
    expected = by_models(text)
    assert expected is not None, f"the models refuse {text!r}"
    assert_equal(found, expected)


def test_of_a_repeated_key_the_last_counts_for_both() -> None:
    text = b'{"k": 3, "history": ["a"], "k": 7, "history": ["b"]}'
    found, expected = MODELS.plain.read(text), by_models(text)
    assert found is not None
    assert expected is not None
    assert found.k == expected.k == 7
    assert_equal(found, expected)


def test_of_a_key_that_is_there_twice_the_first_may_be_nested_deeper_than_the_models_go() -> None:
    text = b'{"k": ' + b"[" * 300 + b"]" * 300 + b', "k": 5}'
    found = MODELS.plain.read(text)
    assert found is not None
    assert found.k == 5
    assert by_models(text) is None


def test_the_models_read_what_the_short_way_does_not() -> None:
    text = orjson.dumps({"history": [{"item": "a", "time": "1970-01-01T00:00:01Z"}], "allow": ["b"]})
    request = MODELS.read(text)
    assert request.allow == ["b"]
    assert request.history is not None
    assert read_history(request.history, IDS, CODES, 10**15).times_us.tolist() == [1_000_000]
    with pytest.raises(ValidationError, match="k"):
        MODELS.read(b'{"k": 0}')
