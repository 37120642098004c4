"""Names of releases: one path component, never a path."""

from __future__ import annotations

import re

from recsys_cg.errors import StoreError

__all__ = ["check_name", "is_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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
