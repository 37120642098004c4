"""Lookups in a release whose items are met again and again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_cg.serving.answer import Answer, Request
from recsys_cg.serving.lookup import CandidateLookup
from tests.serving.world import World, write_release

BONUS = 0.75


@pytest.fixture
def lookup(tower: Path, tmp_path: Path) -> CandidateLookup:
    contract = {"schema": 3, "repeat_bonus": BONUS}
    write_release(tmp_path / "release", World(tower, contract=contract, info={"filter_seen": False}))
    return CandidateLookup.open(tmp_path / "release")


@pytest.fixture
def plain(tower: Path, tmp_path: Path) -> CandidateLookup:
    write_release(tmp_path / "plain", World(tower, info={"filter_seen": False}))
    return CandidateLookup.open(tmp_path / "plain")


def scores(answer: Answer) -> dict[str, float]:
    return {one.item_id: float(one.score) for one in answer.candidates if one.score is not None}


def test_what_the_user_met_is_raised_by_the_bonus_and_nothing_else_is(
    lookup: CandidateLookup, plain: CandidateLookup
) -> None:
    history = ["c", "b", "b"]
    before, after = scores(plain.candidates(history=history, k=50)), scores(lookup.candidates(history=history, k=50))
    assert before.keys() == after.keys()
    for item, score in before.items():
        assert after[item] == pytest.approx(score + (BONUS if item in history else 0.0), abs=1e-6)
    assert list(after) == sorted(after, key=lambda item: -after[item])


def test_an_item_from_beyond_the_list_comes_in(lookup: CandidateLookup, plain: CandidateLookup) -> None:
    history = ["ä/🎬", "a", "b", "c"]
    ranked = [one.item_id for one in plain.candidates(history=history, k=50).candidates]
    own = set(history)
    found = [one.item_id for one in lookup.candidates(history=history, k=4).candidates]
    assert set(found) == own
    assert set(ranked[:4]) != own


def test_who_denies_seen_items_gets_none_and_no_bonus(lookup: CandidateLookup, plain: CandidateLookup) -> None:
    given = scores(lookup.candidates(history=["c", "b"], k=50, deny_seen=True))
    assert given == scores(plain.candidates(history=["c", "b"], k=50, deny_seen=True))
    assert not {"b", "c"} & given.keys()


def test_exclusions_allow_lists_and_availability_hold_for_own_items(lookup: CandidateLookup) -> None:
    history = ["a", "b", "soon", "gone"]
    assert set(scores(lookup.candidates(history=history, k=50, at=1_800_000_000.0))) & set(history) == {"a", "b"}
    assert "a" not in scores(lookup.candidates(history=history, k=50, exclude=["a"]))
    allowed = scores(lookup.candidates(history=history, k=50, allow=["b", "c"]))
    assert set(allowed) == {"b", "c"}


def test_what_the_encoder_reads_of_a_stored_history_is_raised(lookup: CandidateLookup, plain: CandidateLookup) -> None:
    # böb met a, b, c, ä/🎬, ab and a again; only the last four events are encoded.
    before, after = scores(plain.candidates(user_id="böb", k=50)), scores(lookup.candidates(user_id="böb", k=50))
    raised = {item for item in before if after[item] > before[item] + 0.5 * BONUS}
    assert raised == {"c", "ä/🎬", "ab", "a"}


def test_what_happened_after_the_request_is_not_met_yet(lookup: CandidateLookup, plain: CandidateLookup) -> None:
    history = [{"item": "a", "time": 100.0}, {"item": "b", "time": 300.0}]
    early, late = (scores(lookup.candidates(history=history, k=50, at=at)) for at in (200.0, 400.0))
    before = scores(plain.candidates(history=history, k=50, at=200.0))
    assert early["b"] == pytest.approx(before["b"], abs=1e-6)
    assert early["a"] == pytest.approx(before["a"] + BONUS, abs=1e-6)
    assert late["b"] > early["b"] + 0.5 * BONUS


def test_of_a_long_history_what_the_encoder_reads_is_raised(lookup: CandidateLookup, plain: CandidateLookup) -> None:
    history = ["a", "b", "c", "nothing known", "ä/🎬", "ab"]
    before, after = (scores(one.candidates(history=history, k=50)) for one in (plain, lookup))
    raised = {item for item in before if after[item] > before[item] + 0.5 * BONUS}
    assert raised == {"b", "c", "ä/🎬", "ab"}


def test_a_batch_answers_each_as_alone(lookup: CandidateLookup) -> None:
    asked = [
        {"history": ["c", "b"], "k": 3},
        {"user_id": "böb", "k": 5},
        {"history": ["a"], "deny_seen": True, "k": 4},
        {"history": ["nothing known"], "k": 2},
    ]
    together = lookup.candidates_batch([Request(**one) for one in asked])
    for one, answer in zip(asked, together, strict=True):
        alone = lookup.candidates(**one)
        assert [c.item_id for c in answer.candidates] == [c.item_id for c in alone.candidates]
        if answer.fallback is None:
            assert np.allclose([c.score for c in answer.candidates], [c.score for c in alone.candidates], atol=1e-6)


def test_what_goes_with_an_item_leaves_the_item_out(lookup: CandidateLookup) -> None:
    assert "a" not in scores(lookup.complementary("a", k=50))
