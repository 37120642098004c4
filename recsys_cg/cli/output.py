"""What the command line says: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["accept_any_text", "one_line", "print_result", "set_up_logging"]


def set_up_logging(*, quiet: bool = False) -> None:
    """Send the project's log lines to standard error, and keep third parties to warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger = logging.getLogger("recsys_cg")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False


def accept_any_text() -> None:
    """Let output say what its encoding cannot (Latin-1, ASCII, half a surrogate pair of an argument) by escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def one_line(text: str) -> str:
    """Return ``text`` with what is no printable character (line breaks, terminal controls) as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_result(result: Mapping[str, Any], *, as_json: bool, text: str) -> None:
    """Print ``result`` as one JSON object, or ``text`` for a person."""
    if as_json:
        is_unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
        print(json.dumps(result, ensure_ascii=not is_unicode, allow_nan=False, default=str), flush=True)
    else:
        print(text, flush=True)
