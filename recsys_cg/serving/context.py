"""The context of a request: from what a caller says of it to the codes that the query tower reads."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.data.context import ContextFeature, ContextSet
from recsys_cg.data.identifiers import to_strings
from recsys_cg.errors import SearchError

__all__ = ["FROM_TIME", "ContextValue", "context_inputs", "read_context"]

ContextValue = str | int | float | bool | None

FROM_TIME: Final = -1
"""Stands for the code that the time of the request tells."""

_LONGEST_VALUE: Final = 4096
_RANGES: Final = {"hour_of_day": (0, 23, 1), "day_of_week": (1, 7, 0)}


def read_context(context: ContextSet, given: Mapping[str, ContextValue] | None) -> tuple[int, ...]:
    """Return the codes of what is said of a request, in the order of the features.

    A categorical value is text, or a number or boolean that is read as the log's would be (``3`` and ``"3"`` are one
    value); one that training never met gets the code of its hash bucket. An hour is 0 to 23, a day 1 (Monday) to 7
    (Sunday). What is not said, or said to be None or empty, is not known: code 0, or `FROM_TIME` for hour and day.

    Args:
        context: the features of the release's encoder.
        given: values by the names of features; None says nothing.

    Raises:
        SearchError: the release has no context features, no such feature, or a value is of another type or range.
    """
    if not given:
        if given is not None and not isinstance(given, Mapping):
            raise SearchError(f"context is a mapping of names to values, not {type(given).__name__}")
        return _nothing(context)
    if not isinstance(given, Mapping):
        raise SearchError(f"context is a mapping of names to values, not {type(given).__name__}")
    for name in given:
        if name not in context.names:
            raise SearchError(_unknown(name, context.names))
    codes = zip(context.features, _nothing(context), strict=True)
    return tuple(_read(feature, given.get(feature.name), absent) for feature, absent in codes)


def _nothing(context: ContextSet) -> tuple[int, ...]:
    return tuple(FROM_TIME if feature.is_derived else 0 for feature in context.features)


def _unknown(name: object, names: Sequence[str]) -> str:
    if not names:
        return f"context {str(name)[:80]!r} was given, and this release was trained without context features"
    near = difflib.get_close_matches(str(name)[:80], names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"the release has: {', '.join(names)}"
    return f"the release has no context feature {str(name)[:80]!r}; {hint}"


def _read(feature: ContextFeature, value: object, absent: int) -> int:
    if value is None or value == "":
        return absent
    if feature.is_derived:
        return _read_number(feature, value)
    text = _text(feature.name, value)
    if not text:
        return absent
    return feature.code_of(text)


def _text(name: str, value: object) -> str:
    """Return a value as `recsys_cg.data.identifiers.to_strings` reads it from a column."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SearchError(f"context {name!r}: {value} is no value")
        return str(to_strings(pa.array([value]), name)[0])
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise SearchError(f"context {name!r} is text, a number or a boolean, not {type(value).__name__}")
    if len(value) > _LONGEST_VALUE:
        raise SearchError(f"context {name!r} has {len(value):,} characters; at most {_LONGEST_VALUE:,} are read")
    return value.strip()


def _read_number(feature: ContextFeature, value: object) -> int:
    low, high, shift = _RANGES[feature.kind]
    text = value.strip() if isinstance(value, str) else value
    number = int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 4 else text
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise SearchError(f"context {feature.name!r} is a {feature.kind}, {low} to {high}, not {str(value)[:40]!r}")
    return number + shift


def context_inputs(
    context: ContextSet, codes: Sequence[tuple[int, ...]], at_us: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the query tower's input ``context``.

    Args:
        context: the features.
        codes: of each request, of `read_context`.
        at_us: int64 [batch], time of each request, microseconds UTC.

    Returns:
        int32 [batch, features].
    """
    inputs = np.array(codes, dtype=np.int32).reshape(len(codes), len(context))
    for place, feature in enumerate(context.features):
        if feature.is_derived:
            untold = inputs[:, place] == FROM_TIME
            if untold.any():
                inputs[untold, place] = feature.encode_times(at_us[untold])
    return inputs
