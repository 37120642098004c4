"""What a release can tell of an item: what both faces ask before and while they look up what goes with one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recsys_cg.errors import ArtifactMissingError
from recsys_cg.serving.answer import Answer
from recsys_cg.serving.lookup import CandidateLookup

__all__ = ["NoContentTowerError", "NoSuchItemError", "find_by_content", "require_item"]


class NoContentTowerError(Exception):
    """The release cannot embed an item that it does not have."""


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


def find_by_content(
    lookup: CandidateLookup, content: Mapping[str, object], k: int, *, at: float | str | datetime | None
) -> Answer:
    """Return `CandidateLookup.similar_content`.

    Raises:
        NoContentTowerError: the release's encoder reads no content.
        SearchError: as there.
    """
    try:
        return lookup.similar_content(content, k, at=at)
    except ArtifactMissingError as error:
        raise NoContentTowerError(f"the encoder of release {lookup.release.name} reads no content") from error
