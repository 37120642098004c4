"""Beam jobs; the only part that imports Apache Beam. Every transform takes and gives Arrow blocks."""

from __future__ import annotations

import logging
import sys

from recsys_cg.errors import EnvironmentMismatchError

if sys.flags.optimize >= 2:
    raise EnvironmentMismatchError(
        "Apache Beam cannot be imported without docstrings: unset PYTHONOPTIMIZE, or leave out python -OO"
    )

# Importing Beam logs a warning about a Google client library that nothing here uses.
_level = logging.root.manager.disable
logging.disable(logging.WARNING)
try:
    import apache_beam as _beam  # noqa: F401
finally:
    logging.disable(_level)
