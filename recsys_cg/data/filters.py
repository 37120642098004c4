"""Row filters of the project file: ``column op literal``, parsed here, run by Arrow, and never evaluated as code."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.identifiers import to_strings
from recsys_cg.data.values import numeric_column
from recsys_cg.errors import ConfigError

__all__ = ["Filter", "apply_filters", "parse_filter", "parse_filters"]

_FORM: Final = re.compile(
    r"""^\s*(?P<column>"(?:[^"\\]|\\.)+"|`[^`]+`|[^\s=!<>"'`]+)\s*(?P<op>==|!=|>=|<=|>|<|\bin\b)\s*(?P<literal>.+?)\s*$""",
    re.DOTALL,
)
_COMPARE: Final = {
    "==": pc.equal,
    "!=": pc.not_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}

Literal = str | int | float | bool


@dataclass(frozen=True)
class Filter:
    """One condition that a row must meet to be kept.

    Attributes:
        column: column of the source.
        op: one of ``== != > >= < <= in``.
        values: what it is compared with; several for ``in`` only, all strings, all booleans or all numbers.
        text: the filter as written.
    """

    column: str
    op: str
    values: tuple[Literal, ...]
    text: str

    @property
    def is_numeric(self) -> bool:
        """Whether the column is compared as a number; otherwise it is compared as text."""
        return not isinstance(self.values[0], str | bool)


def parse_filters(texts: Sequence[str]) -> tuple[Filter, ...]:
    """Parse each filter; see `parse_filter`."""
    return tuple(parse_filter(text) for text in texts)


def parse_filter(text: str) -> Filter:
    """Parse ``column op literal``, e.g. ``quantity > 0``, ``event in ["click", "buy"]`` or ``"unit price" <= 9.5``.

    A column with spaces or signs stands in double quotes or backticks. A literal is a number, ``true``, ``false``, a
    string in single or double quotes, or for ``in`` a list of these in brackets.

    Raises:
        ConfigError: the text has another form; the message shows the form.

    Example:
        >>> parsed = parse_filter('event in ["click", "buy"]')
        >>> parsed.column, parsed.values
        ('event', ('click', 'buy'))
    """
    match = _FORM.match(text)
    if match is None:
        raise _malformed(text, "no comparison found")
    column = match["column"]
    if column[0] in '"`':
        column = json.loads(column) if column[0] == '"' else column[1:-1]
    values = _parse_list(text, match["literal"]) if match["op"] == "in" else (_parse_literal(text, match["literal"]),)
    kinds = {str if isinstance(value, str) else bool if isinstance(value, bool) else float for value in values}
    if len(kinds) > 1:
        raise _malformed(text, "a list holds strings or numbers, not both")
    if match["op"] not in ("==", "!=", "in") and kinds != {float}:
        raise _malformed(text, f"{match['op']} compares numbers")
    return Filter(column, match["op"], values, text)


def _malformed(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"interactions.filters: {text!r}: {why}; write column op literal with op one of == != > >= < <= in, "
        """e.g. 'quantity > 0' or 'event in ["click", "buy"]'"""
    )


def _parse_literal(text: str, literal: str) -> Literal:
    if literal.startswith("'") and literal.endswith("'") and len(literal) > 1 and "'" not in literal[1:-1]:
        return literal[1:-1]
    try:
        value = json.loads(literal)
    except json.JSONDecodeError:
        value = None
    if isinstance(value, str) or (isinstance(value, bool | int | float) and math.isfinite(value)):
        return value
    raise _malformed(text, f"{literal} is no number and no quoted string")


def _parse_list(text: str, literal: str) -> tuple[Literal, ...]:
    if not (literal.startswith("[") and literal.endswith("]")):
        raise _malformed(text, "in takes a list in brackets")
    pieces = re.findall(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,\s"']+)\s*(,|$)""", literal[1:-1])
    whole = re.sub(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,\s"']+)\s*(,|$)""", "", literal[1:-1]).strip()
    if not pieces or whole:
        raise _malformed(text, "the list cannot be read")
    return tuple(_parse_literal(text, piece) for piece, _ in pieces)


def apply_filters(filters: Sequence[Filter], table: pa.Table) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which rows meet every filter, and which hold text where a filter needs a number.

    A missing value (null, an empty cell) meets no filter, ``!=`` included.

    Returns:
        ``(kept, broken)``, bool ``[n]`` each; a broken row is not kept.
    """
    kept = np.ones(table.num_rows, dtype=bool)
    broken = np.zeros(table.num_rows, dtype=bool)
    for condition in filters:
        column = table.column(condition.column).combine_chunks()
        if condition.is_numeric:
            values, unreadable = _numbers(column, condition.column)
            broken |= unreadable
        else:
            values = to_strings(column, condition.column)
        kept &= _meets(condition, values)
    return kept & ~broken, broken


def _meets(condition: Filter, values: pa.Array) -> npt.NDArray[np.bool_]:
    literals = [_as_text(value) for value in condition.values] if not condition.is_numeric else list(condition.values)
    if condition.op == "in":
        wanted = pa.array(literals, type=values.type)
        return np.asarray(pc.is_in(values, value_set=wanted, skip_nulls=True), dtype=bool)
    met = _COMPARE[condition.op](values, pa.scalar(literals[0], type=values.type))
    return np.asarray(pc.fill_null(met, False), dtype=bool)


def _as_text(value: Literal) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(column: pa.Array, name: str) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Read a column as numbers, and tell which rows hold something else than a number or nothing."""
    numbers = numeric_column(column, name)
    is_text = not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
    present = to_strings(column, name) if is_text else column
    return numbers, np.asarray(pc.and_(present.is_valid(), numbers.is_null()), dtype=bool)
