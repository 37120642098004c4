"""Queries from a file of lookup requests: what users ask now, in the rows of one release."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from recsys_cg.errors import DataError, SearchError, SourceError
from recsys_cg.schema import queries_schema
from recsys_cg.serving.context import context_inputs, read_context
from recsys_cg.serving.entries import parse_time
from recsys_cg.serving.inputs import History, read_history
from recsys_cg.serving.release import Release

__all__ = ["FreshQueries", "read_requests"]

LIMIT: Final = 10_000
"""Requests taken from a file, drawn by seed where it holds more."""


@dataclass(frozen=True)
class FreshQueries:
    """Requests as queries.

    Attributes:
        table: queries schema with the codes of the release's context features, those requests of which the release
            knows something; targets are not known.
        requests: requests read.
        entries: items in their histories.
        unknown_entries: those that the release does not have.
    """

    table: pa.Table
    requests: int
    entries: int
    unknown_entries: int

    def describe(self) -> dict[str, Any]:
        """Return ``{"requests", "without_known_history", "unknown_item_share"}``; the latter two in [0, 1] or None."""
        without = self.requests - self.table.num_rows
        return {
            "requests": self.requests,
            "without_known_history": without / self.requests if self.requests else None,
            "unknown_item_share": self.unknown_entries / self.entries if self.entries else None,
        }


def read_requests(path: Path, release: Release, *, now_us: int, seed: int) -> FreshQueries:
    """Read requests, one JSON object a line as ``POST /v1/candidates`` takes them.

    Of each ``history``, ``at`` and ``context`` are read.

    Args:
        path: the file; empty lines are passed over.
        release: whose rows and event codes the queries get.
        now_us: time of a request without ``at``.
        seed: of the draw where there are more than 10,000.

    Raises:
        SourceError: the file cannot be read.
        DataError: a line is no such request; the message names file and line.
    """
    lines = list(_lines(path))
    if len(lines) > LIMIT:
        lines = [lines[place] for place in np.sort(np.random.default_rng(seed).permutation(len(lines))[:LIMIT])]
    parsed = [_parse(path, number, line, release, now_us) for number, line in lines]
    known = [one for one in parsed if len(one.history.rows)]
    lists = [one.history.rows.tolist() for one in known]
    columns = {
        "user_id": pa.array([""] * len(known), pa.string()),
        "time_us": pa.array([one.at_us for one in known], pa.int64()),
        "targets": pa.array([[] for _ in known], pa.list_(pa.int32())),
        "history": pa.array(lists, pa.list_(pa.int32())),
        "history_times_us": pa.array([one.history.times_us.tolist() for one in known], pa.list_(pa.int64())),
        "history_events": pa.array([one.history.events.tolist() for one in known], pa.list_(pa.int8())),
        "history_length": pa.array([len(rows) for rows in lists], pa.int32()),
        "seen": pa.array(lists, pa.list_(pa.int32())),
    }
    table = pa.table(columns).cast(queries_schema)
    context = release.encoder.contract.context
    at_us = np.array([one.at_us for one in known], np.int64)
    codes = context_inputs(context, [one.context for one in known], at_us)
    for place, field in enumerate(context.schema):
        table = table.append_column(field, pa.array(codes[:, place]))
    unknown = sum(one.history.unknown for one in parsed)
    entries = unknown + sum(len(one.history.rows) for one in parsed)
    return FreshQueries(table, len(parsed), entries, unknown)


class _Parsed(NamedTuple):
    history: History
    at_us: int
    context: tuple[int, ...]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SourceError(f"{path} cannot be read: {reason}") from error


def _parse(path: Path, number: int, line: str, release: Release, now_us: int) -> _Parsed:
    try:
        request = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: no JSON: {error}") from error
    if not isinstance(request, Mapping):
        raise DataError(f"{path}, line {number}: a request is a JSON object with a history")
    try:
        at = request.get("at")
        at_us = now_us if at is None else parse_time(at)
        history = read_history(request.get("history") or [], release.ids, release.events, at_us).before(at_us)
        context = read_context(release.encoder.contract.context, request.get("context"))
        return _Parsed(history, at_us, context)
    except SearchError as error:
        raise DataError(f"{path}, line {number}: {error}") from error
