"""The unit of work: a block of rows as an Arrow table, knowing where each row came from."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cg.errors import SourceError
from recsys_cg.schema import rejects_schema

__all__ = ["Block", "empty_rejects", "is_nested", "merge_counts", "naming_source", "reject_rows", "rejects_of"]


@dataclass(frozen=True)
class Block:
    """Raw rows of one file, as read.

    Attributes:
        table: the columns asked for, ``n`` rows, typed as the file types them (text files: strings).
        source: the file.
        numbers: int64 ``[n]``, the number of each row in its file, from 1, not counting a header.
        rejects: rows that could not be parsed at all, as `recsys_cg.schema.rejects_schema`; not among ``table``.
    """

    table: pa.Table
    source: str
    numbers: npt.NDArray[np.int64]
    rejects: pa.Table

    @property
    def rows(self) -> int:
        """Rows that this block stands for: those read and those refused while reading."""
        return int(self.table.num_rows + self.rejects.num_rows)


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Put ``source`` before the message of a `SourceError` that the block raises about one of its columns."""
    try:
        yield
    except SourceError as error:
        raise SourceError(f"{source}: {error}") from error


def empty_rejects() -> pa.Table:
    """Return a rejects table without rows."""
    return rejects_schema.empty_table()


def rejects_of(source: str, entries: Sequence[tuple[int, str, Any]]) -> pa.Table:
    """Build a rejects table from ``(row number, reason, record)``; a record is anything that JSON can say."""
    columns = {
        "source": [source] * len(entries),
        "row": [number for number, _, _ in entries],
        "reason": [reason for _, reason, _ in entries],
        "record": [json.dumps(record, ensure_ascii=False, default=_as_json) for _, _, record in entries],
    }
    return pa.table(columns, schema=rejects_schema)


def is_nested(record: Mapping[str, Any], columns: Iterable[str]) -> bool:
    """Tell whether ``record`` holds a list or an object in one of ``columns``."""
    return any(isinstance(record.get(name), list | dict) for name in columns)


def reject_rows(block: Block, reasons: Mapping[str, npt.NDArray[np.bool_]]) -> pa.Table:
    """Build the rejects of ``block``: each row under the first reason whose mask holds it, with its record as JSON.

    Python runs per refused row only.
    """
    entries: list[tuple[int, str, Any]] = []
    taken = np.zeros(block.table.num_rows, dtype=bool)
    for reason, mask in reasons.items():
        chosen = np.flatnonzero(mask & ~taken)
        taken |= mask
        if len(chosen):
            records = block.table.take(pa.array(chosen)).to_pylist()
            entries.extend(
                (int(number), reason, record) for number, record in zip(block.numbers[chosen], records, strict=True)
            )
    return rejects_of(block.source, sorted(entries, key=lambda entry: entry[0])) if entries else empty_rejects()


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, Decimal) else repr(value)


def merge_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up counts by name; the result is ordered by name."""
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + int(count)
    return dict(sorted(total.items()))
