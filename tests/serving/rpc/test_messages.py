"""Messages as bytes: those of earlier versions still read, and values come as they were sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cg.config import ServingConfig
from recsys_cg.errors import SearchError, ServiceError
from recsys_cg.serving.answer import Answer, Candidate, Reason, Request
from recsys_cg.serving.entries import HistoryColumns
from recsys_cg.serving.rpc.messages import (
    is_by_column,
    pb,
    read_answer,
    read_request,
    write_batch,
    write_content_request,
    write_item_request,
    write_request,
    write_single,
)
from recsys_cg.serving.rpc.values import read_content, read_context

# Written with the messages of before there was a context.
EARLIER_REQUEST = (
    b"\n\x14\n\x12\n\x01c\x11\x00\x00\x00\x00\x00\x00\x1e@\x1a\x04view\x12\x03ann\x18\x07"
    b'"\x01a*\x07\n\x01b\n\x02ab0\x019\x00\x00\x00\x00\x00\x00!@@\x02'
)
EARLIER_SIMILAR = b"\n\x02ab\x10\x02\x19\x00\x00\x00\x00\x00\x00!@"
EARLIER_ANSWER = (
    b'\n\x01r\x12"\n\x01a\x12\x01A\x1d\x00\x00\x00?"\x04head*\x0f\n\x01b\x12\x01B\x19\x00\x00\x00\x00\x00\x00\xd0?'
    b"\x1a\x0cunknown_user \x01(\x020\x039\x00\x00\x00\x00\x00\x00\xe0?"
)

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


def exactly(value: object) -> str:
    """Return text that differs where 1, 1.0 and true, or 0.0 and -0.0, do."""
    return json.dumps(value, sort_keys=True)


def test_a_request_of_an_earlier_version_is_read():
    message = pb.CandidatesRequest.FromString(EARLIER_REQUEST)
    assert read_request(message, ServingConfig()) == Request(
        history=HistoryColumns(["c"], [7_500_000], ["view"]),
        user_id="ann",
        k=7,
        exclude=["a"],
        allow=["b", "ab"],
        deny_seen=True,
        at=8.5,
        explain=2,
        context=None,
    )
    similar = pb.SimilarRequest.FromString(EARLIER_SIMILAR)
    assert (similar.item_id, similar.k, similar.at) == ("ab", 2, 8.5)


def test_what_says_nothing_new_is_written_as_before():
    request = {
        "history": [{"item": "c", "time": 7.5, "event": "view"}],
        "user_id": "ann",
        "k": 7,
        "exclude": ["a"],
        "allow": ["b", "ab"],
        "deny_seen": True,
        "at": 8.5,
        "explain": 2,
    }
    assert write_request(request).SerializeToString() == EARLIER_REQUEST
    assert pb.SimilarRequest(item_id="ab", k=2, at=8.5).SerializeToString() == EARLIER_SIMILAR


def test_an_answer_of_an_earlier_version_is_read():
    assert read_answer(pb.CandidatesAnswer.FromString(EARLIER_ANSWER)) == Answer(
        release="r",
        candidates=(Candidate("a", "A", 0.5, "head"),),
        fallback="unknown_user",
        shortfall=1,
        unknown=2,
        unknown_events=3,
        because=((Reason("b", "B", 0.25),),),
    )


BUCKETS = ("head", "torso", "tail", "cold")
SCORES = st.floats(-1.0, 1.0, width=32)


def rows(scores: st.SearchStrategy[float | None]) -> st.SearchStrategy[tuple[Candidate, ...]]:
    row = st.builds(Candidate, TEXTS, st.none() | TEXTS, scores, st.sampled_from(BUCKETS))
    return st.lists(row, max_size=5).map(tuple)


@settings(deadline=None)
@given(rows(SCORES) | rows(st.none()), st.booleans())
def test_an_answer_comes_as_it_was_written_by_row_and_by_column(candidates: tuple[Candidate, ...], by_column: bool):
    answer = Answer("r", candidates, "unknown_user", 1, 2, 3)
    message = pb.CandidatesAnswer.FromString(write_single(0.0, by_column=by_column)([answer]))
    assert message.HasField("columns") == by_column
    assert len(message.candidates) == (0 if by_column else len(candidates))
    assert read_answer(message) == answer


def test_each_answer_of_a_batch_is_written_as_it_was_asked_for():
    answers = [Answer("r", (Candidate(name, None, 0.5, "tail"),)) for name in "ab"]
    message = pb.BatchAnswer.FromString(write_batch(0.0, by_column=[True, False])(answers))
    assert [one.HasField("columns") for one in message.answers] == [True, False]
    assert [read_answer(one) for one in message.answers] == answers


def test_columns_that_make_no_sense_are_an_error_of_the_service():
    for columns in (
        pb.CandidateColumns(item_ids=["a"], titles=["A"], buckets=[9]),
        pb.CandidateColumns(item_ids=["a"], titles=["A"], buckets=[0]),
        pb.CandidateColumns(item_ids=["a", "b"], titles=["A"], buckets=[1]),
        pb.CandidateColumns(item_ids=["a"], titles=["A"], buckets=[1], untitled=[1]),
    ):
        with pytest.raises(ServiceError, match="not one that this version reads"):
            read_answer(pb.CandidatesAnswer(release="r", columns=columns))


def test_how_an_answer_is_written_is_no_argument():
    with pytest.raises(SearchError, match="by_column"):
        write_request({"by_column": False})


def test_columns_are_asked_for_except_where_reasons_are():
    assert is_by_column(write_request({"k": 3}))
    assert not is_by_column(write_request({"k": 3, "explain": 1}))
    assert not is_by_column(pb.CandidatesRequest(by_column=True, explain=1))
    assert not is_by_column(pb.CandidatesRequest.FromString(EARLIER_REQUEST))
    assert is_by_column(write_item_request(pb.SimilarRequest, item_id="a"))


@settings(deadline=None)
@given(st.dictionaries(TEXTS, JSON, min_size=1, max_size=4))
def test_content_comes_as_it_was_sent(content: dict[str, Any]):
    sent = write_content_request(content, k=1).SerializeToString()
    assert exactly(read_content(pb.SimilarContentRequest.FromString(sent).content)) == exactly(content)


@settings(deadline=None)
@given(st.dictionaries(TEXTS, SCALARS | TEXTS, max_size=4))
def test_a_context_comes_as_it_was_sent(context: dict[str, Any]):
    sent = write_request({"context": context}).SerializeToString()
    assert exactly(read_context(pb.CandidatesRequest.FromString(sent).context)) == exactly(context or None)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_a_number_beyond_64_bits_goes_as_text_where_that_is_the_same(value: int):
    assert read_context(write_request({"context": {"device": value}}).context) == {"device": str(value)}
    with pytest.raises(SearchError, match=r"content\.price: a whole number of more than 64 bits"):
        write_content_request({"price": value})


@pytest.mark.parametrize("context", [{1: "tv"}, {"device": "\ud800"}, {"\ud800": 1}, {"device": b"tv"}, {None: 1}])
def test_a_context_that_no_message_holds_is_refused(context: Any):
    with pytest.raises(SearchError):
        write_request({"context": context})
    with pytest.raises(SearchError):
        write_content_request(context)
