"""Between the ``Value`` of lookup.proto and what JSON holds: context of a request, content of an item.

``google.protobuf.Struct`` is not used: its only number is a double, and the id 9007199254740993 would come as another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import LONGEST_ID
from recsys_cg.serving.context import ContextValue

__all__ = ["read_content", "read_context", "write_content", "write_context"]

_MOST_FEATURES, _MOST_COLUMNS = 64, 256
_DEEPEST = 30  # of 100 levels that protobuf reads an object takes three
_INT64 = range(-(2**63), 2**63)


def read_context(given: Mapping[str, Any]) -> dict[str, ContextValue] | None:
    """Return the context that a map of ``Value`` holds; None when it is empty.

    Raises:
        SearchError: there are more entries, or longer ones, than HTTP takes, or a value is no scalar or not finite.
    """
    if not given:
        return None
    if len(given) > _MOST_FEATURES:
        raise SearchError(f"context: {len(given)} entries; at most {_MOST_FEATURES} are taken")
    return {_check_name("context", name): _read_scalar(name, value) for name, value in given.items()}


def _read_scalar(name: str, message: Any) -> ContextValue:
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    if kind in ("list_value", "object_value"):
        raise SearchError(f"context.{_shown(name)}: text, a number, a boolean or null is due, not {kind[:-6]}")
    value: ContextValue = getattr(message, kind)
    if isinstance(value, str) and len(value) > LONGEST_ID:
        raise SearchError(f"context.{_shown(name)}: {len(value)} characters; at most {LONGEST_ID} are taken")
    if isinstance(value, float):
        _check_finite(f"context.{_shown(name)}", value)
    return value


def read_content(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a catalogue that a map of ``Value`` holds.

    Raises:
        SearchError: there is no column, there are more than HTTP takes, or a name is too long.
    """
    if not 1 <= len(given) <= _MOST_COLUMNS:
        raise SearchError(f"content: {len(given)} columns; 1 to {_MOST_COLUMNS} are taken")
    return {_check_name("content", name): _read_value(value) for name, value in given.items()}


def _read_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "list_value":
        return [_read_value(one) for one in message.list_value.values]
    if kind == "object_value":
        return {name: _read_value(one) for name, one in message.object_value.fields.items()}
    return getattr(message, kind)


def _check_name(what: str, name: str) -> str:
    if len(name) > LONGEST_ID:
        raise SearchError(f"{what}: a name of {len(name)} characters; at most {LONGEST_ID} are taken")
    return name


def write_context(into: Any, context: Mapping[str, ContextValue]) -> None:
    """Put a context into a map of ``Value``.

    Raises:
        SearchError: it is no mapping, or a value cannot be sent; the message names it.
        TypeError, ValueError: a name is no text.
    """
    for name, value in _entries("context", context):
        is_large = isinstance(value, int) and value not in _INT64
        _write_value(into[name], str(value) if is_large else value, f"context.{_shown(name)}")


def write_content(into: Any, content: Mapping[str, object]) -> None:
    """Put a row of a catalogue into a map of ``Value``; raises as `write_context`."""
    for name, value in _entries("content", content):
        _write_value(into[name], value, f"content.{_shown(name)}")


def _entries(what: str, given: object) -> list[tuple[Any, Any]]:
    if not isinstance(given, Mapping):
        raise SearchError(f"{what} is a mapping of names to values, not {type(given).__name__}")
    return list(given.items())


def _write_value(message: Any, value: object, where: str, depth: int = 0) -> None:
    if isinstance(value, list | tuple | Mapping) and depth >= _DEEPEST:
        raise SearchError(f"{where}: lists and objects nest {_DEEPEST} deep at most")
    if isinstance(value, list | tuple):
        message.list_value.SetInParent()
        for one in value:
            _write_value(message.list_value.values.add(), one, where, depth + 1)
    elif isinstance(value, Mapping):
        message.object_value.SetInParent()
        for name, one in value.items():
            _write_value(message.object_value.fields[name], one, where, depth + 1)
    elif value is not None:
        _write_scalar(message, value, where)


def _write_scalar(message: Any, value: object, where: str) -> None:
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        if value not in _INT64:
            raise SearchError(f"{where}: a whole number of more than 64 bits cannot be sent")
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = _check_finite(where, value)
    elif isinstance(value, str):
        message.string_value = value
    else:
        raise SearchError(f"{where}: a value of JSON is due, not {type(value).__name__}")


def _check_finite(where: str, value: float) -> float:
    if not math.isfinite(value):
        raise SearchError(f"{where}: {value} is no finite number")
    return value


def _shown(name: object) -> str:
    return str(name)[:80]
