"""What a look through a store finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DAMAGED", "NOTHING_LEFT", "Finding"]

DAMAGED: Final = "publish it again under another name, or delete it when nobody needs it"
NOTHING_LEFT: Final = "publish a release: no earlier one can be trusted"


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        path: the file, directory or object.
        problem: what is wrong with it.
        mend: what was done, or with ``apply=False`` would be done, or what a person must do.
        is_mended: it was done.
        is_serious: readers are served nothing, or something that cannot be trusted.
    """

    path: str
    problem: str
    mend: str
    is_mended: bool = False
    is_serious: bool = False
