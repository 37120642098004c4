"""Carry a deliberate error from a Beam worker to the process that started the job.

Engines wrap an exception of a worker in their own, print its traceback and try the bundle again. So a worker that
meets bad data writes the error to the job's scratch folder and ends its bundle; later steps find it and do nothing; and
the starting process raises it as it was meant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from recsys_cg import errors
from recsys_cg.artifacts import write_text_atomically
from recsys_cg.errors import RecsysError

__all__ = ["Failures"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Failures:
    """Errors of a job, kept below ``directory``, which all workers share."""

    directory: Path

    def guard(self, produce: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """Yield what ``produce()`` yields; record a `RecsysError` and stop; yield nothing once any was recorded."""
        if self.any():
            return
        try:
            yield from produce()
        except RecsysError as error:
            self.record(error)

    def record(self, error: RecsysError) -> None:
        """Keep ``error`` for `raise_first`."""
        text = json.dumps({"type": type(error).__name__, "message": str(error)}, ensure_ascii=False)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        write_text_atomically(self.directory / f"{name}.json", text)

    def any(self) -> bool:
        """Tell whether an error was recorded."""
        return self.directory.is_dir() and any(self.directory.glob("*.json"))

    def raise_first(self) -> None:
        """Raise the first recorded error, by its message, as the type it had; do nothing when there is none."""
        entries = [json.loads(path.read_text(encoding="utf-8")) for path in self.directory.glob("*.json")]
        if entries:
            first = min(entries, key=lambda entry: str(entry["message"]))
            raise getattr(errors, first["type"], RecsysError)(first["message"])
