"""In which notation times are written, where it is not ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.times import is_absurd, parse_times

__all__ = ["find_notation", "fits", "is_written_time"]

_DATES: Final = ("%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%b %d, %Y", "%d %b %Y")
_CLOCKS: Final = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_OTHERS: Final = ("%m %d, %Y", "%Y%m%d", "%a %b %d %H:%M:%S %z %Y", "%a, %d %b %Y %H:%M:%S %z")
_PATTERNS: Final = (*(date + clock for date in _DATES for clock in _CLOCKS), *_OTHERS)
_EARLIEST: Final = 315_532_800_000_000  # 1980-01-01
_TRIED: Final = 50
_SHARE: Final = 0.9


def fits(texts: Sequence[str], unit: str) -> bool:
    """Tell whether nine in ten of ``texts`` are times from 1980 on, written or counted as ``unit`` says."""
    times = parse_times(pa.array(texts, pa.string()), unit)
    likely = pc.and_(pc.invert(is_absurd(times)), pc.greater_equal(times, _EARLIEST))
    good = int(pc.sum(pc.fill_null(likely, False)).as_py() or 0)
    return good > 0 and good >= _SHARE * len(texts)


def find_notation(texts: Sequence[str]) -> str | None:
    """Return the one pattern by which ``texts`` are times; None when none fits, or several (day or month first?).

    Example:
        >>> find_notation(["12/31/2010 8:26", "1/2/2011 10:00"])
        '%m/%d/%Y %H:%M'
    """
    found = [pattern for pattern in _PATTERNS if fits(texts[:_TRIED], pattern) and fits(texts, pattern)]
    return found[0] if len(found) == 1 else None


def is_written_time(text: str) -> bool:
    """Tell whether ``text`` is a time in some notation, ISO 8601 included."""
    return any(fits([text], unit) for unit in ("iso8601", *_PATTERNS))
