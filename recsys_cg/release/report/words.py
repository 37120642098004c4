"""How figures and names are written for people, in HTML and Markdown alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

__all__ = [
    "ABSENT",
    "bucket_label",
    "count",
    "day",
    "duration",
    "flatten",
    "fraction",
    "gate_label",
    "interval",
    "milliseconds",
    "moment",
    "quantity",
    "signed",
    "size",
    "system_label",
    "typeset",
]

ABSENT: Final = "\u2013"
"""What stands where a figure is not known: never a made-up zero."""

_SCIENTIFIC = re.compile(r"\d(?:\.\d+)?e[+-]\d+")
_NEGATIVE = re.compile(r"(?<![\w-])-(?=\d)")
_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")

_SYSTEMS = {
    "two_tower": "This release",
    "two_tower_exact": "This release, exact search",
    "previous_release": "Previous release",
    "popularity": "Popularity",
    "popularity_recent": "Recent popularity",
    "item_knn": "Item k-NN",
    "ease": "EASE",
    "ials": "iALS",
}
_BUCKETS = {"overall": "All queries", "head": "Head", "torso": "Torso", "tail": "Tail", "cold": "Cold"}
_PLAIN = {"ks": "KS statistic", "p value": "p-value", "dim": "dimensions", "vectors": "number"}
_GATES = {
    "vectors_finite": "Vectors are finite",
    "vectors_unit_norm": "Vectors have unit norm",
    "stale_fraction": "No stale vector",
    "items_without_vector": "No item without a vector",
    "effective_rank": "Effective rank",
    "mean_similarity": "Mean similarity of items",
    "index_recall": "Index finds what exact search finds",
    "fill_rate": "Lists are full",
    "coverage": "Catalogue coverage",
    "user_overlap": "Users get lists of their own",
    "recall_drop": "Recall against the previous release",
    "tail_recall_drop": "Tail recall against the previous release",
    "churn": "Churn against the previous release",
}


def system_label(name: str) -> str:
    """Return what a reader calls a system, e.g. ``"Recent popularity"``."""
    return _SYSTEMS.get(name, _sentence(name))


def bucket_label(name: str) -> str:
    """Return what a reader calls a group of queries."""
    return _BUCKETS.get(name, _sentence(name))


def gate_label(name: str) -> str:
    """Return what a gate demands, in words."""
    if name.startswith("beats_"):
        return f"Beats {system_label(name.removeprefix('beats_')).lower()}"
    return _GATES.get(name, _sentence(name))


def _sentence(name: str) -> str:
    text = _plain(name)
    return text[:1].upper() + text[1:]


def _plain(name: str) -> str:
    text = str(name).replace("_", " ").strip()
    return _PLAIN.get(text, text)


def fraction(value: float | None) -> str:
    """Return a fraction with three decimals, or a dash."""
    return ABSENT if value is None else f"{value:.3f}".replace("-", "\u2212")


def signed(value: float | None) -> str:
    """Return a difference of fractions with its sign."""
    return ABSENT if value is None else f"{value:+.3f}".replace("-", "\u2212")


def interval(bounds: tuple[float, float] | None, *, sign: bool = False) -> str:
    """Return an interval, or an empty text."""
    if bounds is None:
        return ""
    return " to ".join(signed(bound) if sign else fraction(bound) for bound in bounds)


def count(value: float | None) -> str:
    """Return a whole number with separators, or a dash."""
    return ABSENT if value is None else f"{value:,.0f}"


def quantity(value: Any) -> str:
    """Return any single figure: whole numbers with separators, others to four significant digits, the rest as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ABSENT
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and 1 < abs(value) < 1e15):
        return f"{value:,.0f}".replace("-", "\u2212")
    if isinstance(value, float):
        if 1e4 <= abs(value) < 1e15:
            return f"{value:,.0f}".replace("-", "\u2212")
        return _power(f"{value:,.4g}").replace("-", "\u2212")
    return str(value)


def _power(text: str) -> str:
    """Return ``1.5e-07`` as 1.5 x 10 to the power of -7."""
    digits, _, exponent = text.partition("e")
    if not exponent:
        return text
    return f"{digits}\u2009\u00d7\u200910" + str(int(exponent)).translate(_RAISED)


def typeset(text: str) -> str:
    """Return prose with its negative numbers and powers of ten as people write them."""
    powers = _SCIENTIFIC.sub(lambda found: _power(found[0]), text)
    return _NEGATIVE.sub("\u2212", powers)


def duration(hours: Any) -> str:
    """Return a span of time in its largest fitting unit, e.g. ``5 min``, ``3.2 h`` or ``4.0 days``."""
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not math.isfinite(hours):
        return ABSENT
    if abs(hours) < 1:
        return f"{60 * hours:.0f} min".replace("-", "\u2212")
    text = f"{hours:.1f} h" if abs(hours) < 48 else f"{hours / 24:,.1f} days"
    return text.replace("-", "\u2212")


def milliseconds(value: Any) -> str:
    """Return a time given in milliseconds, in microseconds where it is shorter than one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ABSENT
    return f"{1000 * value:,.0f} \u00b5s" if value < 1 else f"{value:,.1f} ms"


def size(value: float | None) -> str:
    """Return a number of bytes in decimal units."""
    if value is None:
        return ABSENT
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def day(text: Any) -> str:
    """Return the date of an RFC 3339 time as e.g. ``29 Nov 2026``, or the text as it is."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text)
    return f"{parsed.day} {parsed:%b %Y}"


def moment(text: Any) -> str:
    """Return an RFC 3339 time as e.g. ``29 November 2026, 19:22 UTC``, or the text as it is."""
    try:
        parsed = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text)
    return f"{parsed.day} {parsed:%B %Y, %H:%M} UTC"


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of every figure below ``values``, nested ones as ``outer: inner``; lists become ranges.

    A measured value (a mapping with ``mean``) is one figure with its interval. Lists other than pairs are left out.
    """
    for key, value in values.items():
        label = f"{prefix}{_plain(key)}" if prefix else _sentence(key)
        if isinstance(value, Mapping) and "mean" in value and set(value) <= {"mean", "ci95"}:
            bounds = value.get("ci95")
            known = bounds if isinstance(bounds, list | tuple) and len(bounds) == 2 else ()
            yield label, quantity(value["mean"]) + (f" ({' to '.join(map(quantity, known))})" if known else "")
        elif isinstance(value, Mapping):
            yield from flatten(value, f"{label}: ")
        elif isinstance(value, list | tuple):
            if len(value) == 2 and all(isinstance(bound, int | float) for bound in value):
                yield label, " to ".join(map(quantity, value))
        else:
            yield label, quantity(value)
