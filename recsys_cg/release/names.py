"""Names of releases: one path component, never a path."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from recsys_cg.errors import StoreError

__all__ = ["check_name", "is_name", "name_release"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def name_release(key: str, at: datetime | None = None) -> str:
    """Return e.g. ``20261129T192233Z-1a2b3c4d``: the UTC time and the first 8 hex digits of the stage ``key``.

    Names sort by time. ``at`` defaults to now; a time without a zone is taken as UTC.
    """
    moment = datetime.now(UTC) if at is None else at
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return check_name(f"{moment:%Y%m%dT%H%M%SZ}-{key[:8]}")


def is_name(text: str) -> bool:
    """Say whether ``text`` can name a release: letters, digits, ``.``, ``_``, ``-``; 1 to 100; no leading dot."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return ``text`` when it can name a release.

    Raises:
        StoreError: it cannot, for instance because it is a path.
    """
    if not is_name(text):
        raise StoreError(
            f"{text!r} is no release name: use letters, digits, '.', '_' and '-', at most 100 characters, "
            "not starting with '.', '_' or '-'"
        )
    return text
