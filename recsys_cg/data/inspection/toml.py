"""Values as TOML text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["as_toml"]


def as_toml(value: Any) -> str:
    """Return ``value`` (text, number, truth, list, mapping) on one line of TOML, mappings as inline tables."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_as_key(name)} = {as_toml(held)}" for name, held in value.items() if held is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(held) for held in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _as_key(name: str) -> str:
    is_bare = bool(name) and name.isascii() and all(sign.isalnum() or sign in "_-" for sign in name)
    return name if is_bare else as_toml(name)
