"""What a person should look at: negatives that may have been wanted, and items that are one thing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import interval_of, number, section
from recsys_cg.release.report import words

__all__ = ["DuplicatesView", "MinedView", "read_duplicates", "read_mined"]

_SHOWN = 24
_GROUPS = 12


@dataclass(frozen=True)
class MinedView:
    """The audit of mined negatives; a row is (history, mined title, rank, similarity, was it met later)."""

    summary: str
    rows: tuple[tuple[str, str, str, str, bool], ...]


@dataclass(frozen=True)
class DuplicatesView:
    """Near-duplicates of the catalogue; a group is its titles and its similarity as text."""

    summary: str
    groups: tuple[tuple[tuple[str, ...], str], ...]


def read_mined(record: Mapping[str, Any] | None, pairs: Sequence[Mapping[str, Any]] | None) -> MinedView | None:
    """Return the audit, or None where nothing was mined.

    Args:
        record: the encoder's training record, with ``mined_negatives``.
        pairs: rows of ``mined_negatives.csv``.
    """
    found = section(record, "mined_negatives")
    sampled, later = number(found.get("sampled")), number(found.get("later_interacted"))
    if sampled is None or later is None:
        return None
    share = number(found.get("false_negative_share"))
    bounds = interval_of(found)
    text = f"Of {words.count(sampled)} mined items, {words.count(later)} were met by their user later"
    if share is not None:
        between = f", 95% interval {bounds[0]:.1%} to {bounds[1]:.1%}" if bounds else ""
        text += f" ({share:.1%}{between})"
    text += (
        ": wanted after all. Training masks what a user met in its own window, and cannot know of the rest; more may"
    )
    text += " be wanted and never have been shown."
    return MinedView(text, tuple(_mined_row(pair) for pair in (pairs or ())[:_SHOWN]))


def _mined_row(pair: Mapping[str, Any]) -> tuple[str, str, str, str, bool]:
    return (
        str(pair.get("anchor_titles") or ""),
        str(pair.get("mined_title") or pair.get("mined_item_id") or ""),
        words.count(number(pair.get("rank"))),
        words.fraction(number(pair.get("score"))),
        pair.get("later_interacted") is True,
    )


def read_duplicates(report: Mapping[str, Any]) -> DuplicatesView | None:
    """Return the near-duplicates of ``catalogue.near_duplicates``, or None where they were not looked for."""
    found = section(report, "catalogue", "near_duplicates")
    items, groups = number(found.get("items")), number(found.get("groups"))
    searched, least = number(found.get("searched")), number(found.get("least_similarity"))
    if items is None or groups is None:
        return None
    among = f" Looked at: {words.count(searched)} items." if searched is not None else ""
    bound = f" of at least {words.quantity(least)}" if least is not None else ""
    text = f"No two items have a similarity{bound}.{among}"
    if items:
        text = (
            f"{words.count(items)} items have a similarity{bound} with another one; they form {_groups(groups)}.{among}"
        )
    shown = [group for group in found.get("examples") or () if isinstance(group, Mapping)][:_GROUPS]
    return DuplicatesView(text, tuple(_group(group) for group in shown))


def _groups(count: float) -> str:
    return "one group" if count == 1 else f"{words.count(count)} groups"


def _group(group: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    items = [item for item in group.get("items") or () if isinstance(item, Mapping)]
    titles = tuple(str(item.get("title") or item.get("item_id") or "") for item in items)
    more = number(group.get("size"))
    if more is not None and more > len(titles):
        titles = (*titles, f"and {words.count(more - len(titles))} more")
    return titles, words.fraction(number(group.get("similarity")))
