"""What the command line says: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["print_result", "set_up_logging"]


def set_up_logging(*, quiet: bool = False) -> None:
    """Send the project's log lines to standard error, and keep third parties to warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s  %(message)s", datefmt="%H:%M:%S"))
    logger = logging.getLogger("recsys_cg")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False


def print_result(result: Mapping[str, Any], *, as_json: bool, text: str) -> None:
    """Print ``result`` as one JSON object, or ``text`` for a person."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False, default=str), flush=True)
    else:
        print(text, flush=True)
