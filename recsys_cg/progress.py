"""Progress of long work: a bar on a terminal, a plain line now and then in a log. Always on standard error."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Meter", "meter", "say"]

_LOG_EVERY_S = 10.0
_logger = logging.getLogger("recsys_cg")


class Meter(Protocol):
    """What a long job reports to."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Add ``amount`` units done; ``note`` replaces the text behind the bar, e.g. ``"loss 4.21"``."""


class _Bar:
    def __init__(self, description: str, total: int | None, unit: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - only a terminal pays for it
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} " + unit if total else "{task.completed:,.0f} " + unit),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(description, total=total, note="")
        self._progress.start()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._progress.update(self._task, advance=amount, note=note)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, description: str, total: int | None, unit: str) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._done = 0
        self._started = self._said = time.monotonic()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self._done += amount
        now = time.monotonic()
        if now - self._said >= _LOG_EVERY_S:
            self._said = now
            self._say(note)

    def _say(self, note: str) -> None:
        of = f" of {self._total:,}" if self._total else ""
        seconds = time.monotonic() - self._started
        say(f"{self._description}: {self._done:,}{of} {self._unit}, {seconds:.0f} s" + (f", {note}" if note else ""))

    def close(self) -> None:
        return


@contextmanager
def meter(description: str, *, total: int | None = None, unit: str = "") -> Iterator[Meter]:
    """Show progress of ``total`` units (None: unknown) while the block runs."""
    shown = _Bar(description, total, unit) if sys.stderr.isatty() else _Lines(description, total, unit)
    try:
        yield shown
    finally:
        shown.close()


def say(message: str) -> None:
    """Log one line that a person running the command should read."""
    _logger.info(message)
