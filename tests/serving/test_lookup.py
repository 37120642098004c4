from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_cg.errors import ReleaseNotFoundError, SearchError, StoreError
from recsys_cg.serving.answer import Answer, Request
from recsys_cg.serving.entries import HistoryEvent
from recsys_cg.serving.lookup import CandidateLookup
from tests.serving.world import Y2020_S, Y2025_S, Y2030_S, World, point_at, publish_release, write_release

HALF = math.sqrt(0.5)


@pytest.fixture(scope="module")
def lookup(release_path: Path) -> CandidateLookup:
    return CandidateLookup.open(release_path)


def ids(answer: Answer) -> list[str]:
    return [one.item_id for one in answer.candidates]


def scores(answer: Answer) -> list[float | None]:
    return [one.score for one in answer.candidates]


def test_the_nearest_items_come_first_and_ties_go_to_the_lower_row(lookup: CandidateLookup):
    answer = lookup.candidates(history=["a"], k=4)
    assert ids(answer) == ["ab", "ac", "b", "c"]
    assert scores(answer) == pytest.approx([HALF, HALF, 0, 0], abs=1e-6)
    assert (answer.fallback, answer.shortfall, answer.unknown) == (None, 0, 0)
    assert answer.release == "20260101T000000Z-00000001"


def test_a_candidate_carries_title_and_bucket(lookup: CandidateLookup):
    answer = lookup.candidates(history=["ä/🎬"], k=3, deny_seen=False)
    assert answer.candidates[0][:2] == ("ä/🎬", "Ünïcode <b>&amp;")
    assert answer.candidates[0].bucket == "torso"
    assert lookup.candidates(history=["b"], k=9, allow=["c"]).candidates[0].title is None


def test_seen_items_are_denied_unless_asked_for(lookup: CandidateLookup):
    assert "a" not in ids(lookup.candidates(history=["a"], k=9))
    assert ids(lookup.candidates(history=["a"], k=1, deny_seen=False)) == ["a"]


@pytest.mark.parametrize(("filter_seen", "first"), [(False, "a"), (True, "ab")])
def test_a_request_that_does_not_say_is_answered_as_the_release_was_measured(
    tower: Path, tmp_path: Path, filter_seen: bool, first: str
):
    write_release(tmp_path / "release", World(tower, info={"filter_seen": filter_seen}))
    repeats = CandidateLookup.open(tmp_path / "release")
    assert ids(repeats.candidates(history=["a"], k=1)) == [first]
    assert ids(repeats.candidates(history=["a"], k=1, deny_seen=not filter_seen)) != [first]


def test_excluded_items_are_left_out_and_unknown_ids_do_nothing(lookup: CandidateLookup):
    assert ids(lookup.candidates(history=["a"], k=2, exclude=["ab", "nothing", "\ud800"])) == ["ac", "b"]


def test_only_allowed_items_are_answered(lookup: CandidateLookup):
    answer = lookup.candidates(history=["a"], k=3, allow=["c", "ac", "a", "nothing", "c"])
    assert (ids(answer), answer.shortfall) == (["ac", "c"], 1)
    answer = lookup.candidates(history=["a"], k=3, allow=[])
    assert (ids(answer), answer.shortfall) == ([], 3)


def test_k_beyond_what_is_eligible_gives_all_and_says_how_many_are_missing(lookup: CandidateLookup):
    answer = lookup.candidates(history=["a"], k=10**9)
    assert sorted(ids(answer)) == sorted(["b", "c", "ä/🎬", "ab", "ac", "cold"])
    assert answer.shortfall == 10**9 - 6


def test_items_are_answered_only_while_they_are_available(lookup: CandidateLookup):
    def asked(at: float, fallback: bool) -> list[str]:
        return ids(lookup.candidates(history=None if fallback else ["a"], k=99, deny_seen=False, at=at))

    for fallback in (False, True):
        assert {"soon", "gone"} & set(asked(Y2020_S - 1, fallback)) == {"gone"}
        assert {"soon", "gone"} & set(asked(Y2020_S, fallback)) == set()
        assert {"soon", "gone"} & set(asked(Y2030_S, fallback)) == {"soon"}
    assert "soon" not in ids(lookup.similar("a", 99, at=Y2025_S))
    assert "soon" in ids(lookup.similar("a", 99, at="2030-01-01T00:00:00Z"))
    assert ids(lookup.candidates(history=["a"], k=9, allow=["soon", "b"], at=Y2025_S)) == ["b"]


def test_time_event_and_order_reach_the_tower(lookup: CandidateLookup):
    history = [{"item": "a", "time": Y2025_S, "event": "view"}, {"item": "b", "time": Y2025_S + 1000, "event": "buy"}]
    answer = lookup.candidates(history=history, k=1, at=Y2025_S + 1500, deny_seen=False, allow=["a"])
    older, newer = 2 * math.exp(-1.0), math.exp(-0.5)
    assert scores(answer) == pytest.approx([older / math.hypot(older, newer)], abs=1e-6)


def test_only_the_last_events_are_encoded_and_all_are_denied(lookup: CandidateLookup):
    answer = lookup.candidates(history=["a", "b", "b", "b", "b"], k=9)
    assert scores(answer)[0] == pytest.approx(HALF, abs=1e-6)
    assert "a" not in ids(answer)


def test_unknown_items_in_a_history_are_left_out_and_counted(lookup: CandidateLookup):
    answer = lookup.candidates(history=["nothing", "a", "", "\ud800"], k=1)
    assert (ids(answer), answer.unknown, answer.fallback) == (["ab"], 3, None)


POPULAR = ["a", "c", "b", "ä/🎬", "ab", "ac", "cold"]


def test_an_empty_history_gets_popular_items_without_score(lookup: CandidateLookup):
    for answer in (lookup.candidates(history=[], k=9), lookup.candidates(k=9)):
        assert (ids(answer), answer.fallback, answer.shortfall) == (POPULAR, "empty_history", 2)
        assert set(scores(answer)) == {None}


def test_a_history_of_unknown_items_gets_popular_items(lookup: CandidateLookup):
    answer = lookup.candidates(history=["x", "y"], k=2)
    assert (ids(answer), answer.fallback, answer.unknown) == (["a", "c"], "unknown_items", 2)


def test_an_unknown_user_gets_popular_items(lookup: CandidateLookup):
    answer = lookup.candidates(user_id="nobody", k=2, exclude=["a"], allow=["a", "b", "cold"])
    assert (ids(answer), answer.fallback) == (["b", "cold"], "unknown_user")


def test_a_stored_history_is_encoded_and_denied(lookup: CandidateLookup):
    answer = lookup.candidates(user_id="u" * 900, k=2, at=5e-6)
    assert (ids(answer), answer.fallback) == (["ac", "cold"], None)


def test_older_items_than_the_stored_history_are_denied_too(lookup: CandidateLookup):
    assert set(ids(lookup.candidates(user_id="böb", k=9))) == {"ac", "cold"}


def test_a_given_history_wins_and_what_is_stored_stays_denied(lookup: CandidateLookup):
    answer = lookup.candidates(history=["c"], user_id="ann", k=9)
    assert ids(answer)[:2] == ["ac", "cold"]
    assert {"a", "b", "c"}.isdisjoint(ids(answer))
    assert ids(lookup.candidates(history=["c"], user_id="ann", k=1, deny_seen=False)) == ["c"]


def test_what_happened_after_the_time_asked_for_is_not_used(lookup: CandidateLookup):
    answer = lookup.candidates(user_id="ann", k=1, deny_seen=False, at=0.0015)
    assert ids(answer) == ["b"]
    assert lookup.candidates(user_id="ann", k=1, at=0.0005).fallback == "empty_history"


def test_a_release_without_histories_knows_no_user(tower: Path, tmp_path: Path):
    write_release(tmp_path / "r", World(tower, sequences=None))
    lookup = CandidateLookup.open(tmp_path / "r")
    assert lookup.candidates(user_id="ann", k=1).fallback == "unknown_user"


def test_the_nearest_history_items_explain_a_candidate(lookup: CandidateLookup):
    answer = lookup.candidates(history=["b", "a", "c"], k=1, allow=["ab"], explain=2)
    assert [[reason.item_id for reason in reasons] for reasons in answer.because] == [["a", "b"]]
    assert [reason.similarity for reason in answer.because[0]] == pytest.approx([HALF, HALF], abs=1e-6)
    assert lookup.candidates(k=1, explain=2).because == ()


def test_a_batch_answers_as_each_alone(lookup: CandidateLookup):
    requests = [
        Request(history=["a"], k=3),
        Request(history=[], k=2),
        Request(history=["c"], k=9, allow=["ac", "b"]),
        Request(user_id="böb", k=5, at=Y2025_S),
        Request(history=["b"], k=1, exclude=["ab"], at=Y2030_S),
        Request(user_id="nobody", k=1),
        Request(history=["a", "b"], k=7, at=Y2020_S - 1),
        Request(history=["c"], k=2, allow=["cold", "b"]),
    ]
    together = lookup.candidates_batch(requests)
    for request, answer in zip(requests, together, strict=True):
        alone = lookup.candidates(**vars(request))
        assert ids(answer) == ids(alone)
        assert (answer.fallback, answer.shortfall) == (alone.fallback, alone.shortfall)
    assert lookup.candidates_batch([]) == []


def test_complementary_items_are_the_candidates_of_a_history_of_one(lookup: CandidateLookup):
    answer = lookup.complementary("a", 2)
    assert ids(answer) == ids(lookup.candidates(history=["a"], k=2)) == ["ab", "ac"]
    assert "a" not in ids(lookup.complementary("a", 99))
    assert "soon" not in ids(lookup.complementary("a", 99, at=Y2025_S))
    assert "a" in ids(lookup.complementary("gone", 9, at=Y2025_S))
    assert ids(lookup.complementary("a", 2, event="view")) == ["ab", "ac"]


@pytest.mark.parametrize(("item", "event", "said"), [("zz", None, "no item 'zz'"), ("a", "sip", "no event 'sip': buy")])
def test_what_complements_nothing_known_is_refused(lookup: CandidateLookup, item: str, event: str | None, said: str):
    with pytest.raises(SearchError, match=said):
        lookup.complementary(item, event=event)


def test_similar_items_leave_the_item_itself_out(lookup: CandidateLookup):
    answer = lookup.similar("ab", 3)
    assert ids(answer) == ["a", "b", "ac"]
    assert scores(answer) == pytest.approx([HALF, HALF, 0.5], abs=1e-6)
    with pytest.raises(SearchError, match="has no item 'zz'"):
        lookup.similar("zz", 3)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"k": 0}, "k = 0: ask for at least 1"),
        ({"k": -3}, "k = -3"),
        ({"k": True}, "k = True"),
        ({"k": 2.0}, "k = 2.0 is not an integer"),
        ({"k": "5"}, "is not an integer"),
        ({"history": "abc"}, "a list of items"),
        ({"history": [1]}, "not int"),
        ({"user_id": 5}, "user_id is text, not int"),
        ({"exclude": "abc"}, "exclude is a list of item ids, not str"),
        ({"exclude": [None]}, "exclude holds item ids"),
        ({"allow": {"a": 1}}, "allow is a list of item ids, not dict"),
        ({"allow": [["a"]]}, "allow holds item ids"),
        ({"at": float("inf")}, "time inf"),
        ({"at": "now"}, "time 'now'"),
        ({"explain": -1}, "explain = -1"),
        ({"explain": True}, "explain = True"),
    ],
)
def test_an_impossible_request_is_refused_by_name(lookup: CandidateLookup, request_: dict, message: str):
    with pytest.raises(SearchError, match=message):
        lookup.candidates(**({"history": ["a"], "k": 1} | request_))


def test_a_release_without_items_answers_nothing(tower: Path, tmp_path: Path):
    items = World(tower).items[:1]
    write_release(tmp_path / "r", World(tower, items=items, sequences=None))
    lookup = CandidateLookup.open(tmp_path / "r")
    assert lookup.candidates(history=["a"], k=3) == Answer(lookup.release.name, (), None, 3)
    assert ids(lookup.candidates(history=["a"], k=3, deny_seen=False)) == ["a"]


def test_a_store_is_followed_to_its_current_release(tower: Path, store_path: Path):
    assert CandidateLookup.open(str(store_path)).release.name == "20260101T000000Z-00000001"
    publish_release(store_path, World(tower, name="20260102T000000Z-00000002"))
    assert CandidateLookup.open(store_path).release.name == "20260102T000000Z-00000002"
    point_at(store_path, "20260101T000000Z-00000001")
    assert CandidateLookup.open(store_path).release.name == "20260101T000000Z-00000001"


def test_a_store_that_leads_nowhere_is_refused(store_path: Path, tmp_path: Path):
    point_at(store_path, "20990101T000000Z-00000009")
    with pytest.raises(ReleaseNotFoundError, match="20990101T000000Z-00000009"):
        CandidateLookup.open(store_path)
    point_at(store_path, "../../etc")
    with pytest.raises(StoreError, match="no release name"):
        CandidateLookup.open(store_path)
    with pytest.raises(StoreError, match="neither a release nor a store"):
        CandidateLookup.open(tmp_path / "nowhere")


def modules_after(program: str, *arguments: str) -> set[str]:
    """Return which heavy modules a process has after running ``program``."""
    heavy = ("tensorflow", "apache_beam", "tf_keras", "tensorflow_recommenders", "pandas")
    program += f"\nimport sys\nprint([name for name in {heavy} if sys.modules.get(name) is not None])"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stdout.replace("'", '"')))


def test_lookup_imports_no_tensorflow_and_no_beam(release_path: Path):
    program = (
        "import sys\n"
        "from recsys_cg.serving import client\n"
        "from recsys_cg.serving.lookup import CandidateLookup\n"
        "assert CandidateLookup.open(sys.argv[1]).candidates(history=['a'], k=1).candidates[0].item_id == 'ab'"
    )
    assert modules_after(program, str(release_path)) <= {"pandas"}


def test_the_service_does_without_pandas_too(release_path: Path):
    program = (
        "import os, sys\n"
        "from recsys_cg.config import ServingConfig\n"
        "from recsys_cg.serving import service\n"
        "from recsys_cg.serving.follower import Follower\n"
        "os.environ[service._STORE], os.environ[service._CONFIG] = sys.argv[1], ServingConfig().model_dump_json()\n"
        "service.make_app()\n"
        "assert Follower(sys.argv[1]).check()"
    )
    assert modules_after(program, str(release_path)) == set()


def test_a_batch_of_every_kind_of_history_answers_each_as_if_alone(lookup: CandidateLookup):
    """Plain ids and events are looked up together for the whole batch, the other kinds one by one."""
    requests = [
        Request(history=["a", "?", "b"], k=3, exclude=["c"]),
        Request(history=[HistoryEvent("b", 5_000_000, "buy"), HistoryEvent("a", 1_000_000)], k=2, at=9.0),
        Request(history=[{"item": "c"}, "a"], k=3),
        Request(history=[], k=2),
        Request(history=("ab",), k=4, allow=["a", "b"]),
        Request(user_id="ann", k=3, deny_seen=False),
        Request(history=["nothing known"], k=2),
        Request(k=9),
        Request(history=["a"], k=1, explain=1),
    ]
    assert lookup.candidates_batch(requests) == [lookup.candidates_batch([one])[0] for one in requests]
    assert lookup.candidates_batch([]) == []
