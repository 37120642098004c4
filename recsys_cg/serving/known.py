"""Whether a release knows an item: what both faces ask before they look up what goes with one."""

from __future__ import annotations

from recsys_cg.serving.lookup import CandidateLookup

__all__ = ["NoSuchItemError", "require_item"]


class NoSuchItemError(Exception):
    """The release has no item of that id."""


def require_item(lookup: CandidateLookup, item_id: str) -> str:
    """Return ``item_id``, an item of the lookup's release.

    Raises:
        NoSuchItemError: the release has no such item; the message names both.
    """
    if lookup.find(item_id) is None:
        raise NoSuchItemError(f"release {lookup.release.name} has no item {item_id!r}")
    return item_id
