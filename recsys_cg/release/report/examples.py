"""Example users: what they did, what they chose next, and what was retrieved for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_cg.release.reading import number
from recsys_cg.release.report import words

__all__ = ["ExampleUser", "ListedItem", "read_examples"]

_SHOWN = 12


@dataclass(frozen=True)
class ListedItem:
    """One title in a list; ``similarity`` is text, empty where none is known."""

    title: str
    note: str
    similarity: str
    is_target: bool


@dataclass(frozen=True)
class ExampleUser:
    """One user's lists."""

    user: str
    history: tuple[ListedItem, ...]
    earlier: int
    targets: tuple[ListedItem, ...]
    retrieved: tuple[ListedItem, ...]
    further: int


def read_examples(examples: Sequence[Mapping[str, Any]] | None) -> tuple[ExampleUser, ...]:
    """Return the users to show.

    Args:
        examples: mappings with ``user``, ``history`` (oldest first), ``targets`` and ``retrieved`` (best first); the
            three are lists of titles, or of mappings with ``title`` and optionally ``item_id`` (shown where the title
            is missing), ``bucket``, ``score`` and ``is_target``.
    """
    return tuple(_read(example) for example in examples or () if isinstance(example, Mapping))


def _read(example: Mapping[str, Any]) -> ExampleUser:
    history = [_item(entry, set()) for entry in example.get("history") or []]
    targets = [_item(entry, set()) for entry in example.get("targets") or []]
    wanted = {_identity(entry) for entry in example.get("targets") or []}
    retrieved = [_item(entry, wanted) for entry in example.get("retrieved") or []]
    return ExampleUser(
        user=str(example.get("user", "")),
        history=tuple(reversed(history[-_SHOWN:])),
        earlier=max(len(history) - _SHOWN, 0),
        targets=tuple(targets[:_SHOWN]),
        retrieved=tuple(retrieved[:_SHOWN]),
        further=max(len(retrieved) - _SHOWN, 0),
    )


def _identity(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return str(entry.get("item_id") or entry.get("title") or "")
    return str(entry)


def _item(entry: Any, wanted: set[str]) -> ListedItem:
    if not isinstance(entry, Mapping):
        return ListedItem(str(entry), "", "", str(entry) in wanted)
    title = entry.get("title") or entry.get("item_id") or ""
    score = number(entry.get("score"))
    is_target = entry.get("is_target") is True or _identity(entry) in wanted
    return ListedItem(
        str(title), str(entry.get("bucket") or ""), words.fraction(score) if score is not None else "", is_target
    )
