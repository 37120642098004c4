"""What logged data cannot show, in plain words, fitted to what the report holds."""

# ruff: noqa: RUF001 - the apostrophes are typographic on purpose

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsys_cg.release.reading import TWO_TOWER, number, section
from recsys_cg.release.report import words

__all__ = ["list_limits"]


def list_limits(report: Mapping[str, Any]) -> list[str]:
    """Return one sentence or two for each thing that this report cannot know."""
    propensity = section(report, "protocol", "propensity")
    limits = [
        "Whether users would have liked something that they were never shown. The log holds the incumbent’s "
        "choices: a release that finds better items than the incumbent did is marked down for each of them.",
        "What publishing it will change. Offline recall ranks releases; only a test with live users, against the "
        "present system and through the ranker that follows, measures what they do.",
        "Why something was chosen. A position at the top of a page, an advertisement or a friend’s advice counts "
        "here like taste.",
        "How good the order within a list is for a person. This release generates candidates: its scores are "
        "similarities, not probabilities, and the ranking service orders them.",
    ]
    if propensity:
        limits.insert(1, _of_weights(propensity))
    cold = section(report, "systems", TWO_TOWER, "cold")
    if cold and not number(cold.get("queries")):
        limits.append(
            "How new items fare: no query of the test window has a target without training events, so nothing here "
            "speaks of them."
        )
    unseen = number(section(report, "protocol").get("users_unseen_in_training"))
    if unseen == 0:
        limits.append("How new users fare: every user of the test window was known in training.")
    elif unseen is not None:
        users = words.count(unseen)
        limits.append(f"Much about new users: {users} of the test window’s users were unknown in training.")
    return limits


def _of_weights(propensity: Mapping[str, Any]) -> str:
    source = str(propensity.get("source", ""))
    text = (
        "The true chance that an item was seen. The weighted recall leans on propensities, and it is right only as "
        "far as they are"
    )
    return f"{text} ({source})." if source else f"{text}."
