"""Counts that travel through a job, so that every row that came in is accounted for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.blocks import merge_counts

__all__ = ["Tally", "merge_tallies", "tally"]

Tally = dict[str, Any]
"""``{"rows": n, "filtered": {reason: n}, "rejected": {reason: n}, "examples": {reason: [source, row, record]},
"more": {name: n}}``"""


def tally(
    *, rows: int = 0, filtered: dict[str, int] | None = None, rejects: pa.Table | None = None, **more: int
) -> Tally:
    """Make a tally; ``more`` are counts of other names."""
    rejected: dict[str, int] = {}
    examples: dict[str, list[Any]] = {}
    if rejects is not None:
        rejected = {one["values"]: one["counts"] for one in pc.value_counts(rejects.column("reason")).to_pylist()}
        ordered = rejects.sort_by([("source", "ascending"), ("row", "ascending")])
        for reason in rejected:
            (first,) = ordered.slice(pc.index(ordered.column("reason"), reason).as_py(), 1).to_pylist()
            examples[reason] = [first["source"], first["row"], first["record"]]
    return {
        "rows": rows,
        "filtered": dict(filtered or {}),
        "rejected": rejected,
        "examples": examples,
        "more": dict(more),
    }


def merge_tallies(parts: Iterable[Tally]) -> Tally:
    """Add tallies up; of each reason's examples the first by source and row is kept. Associative, any order."""
    found = list(parts)
    examples: dict[str, list[Any]] = {}
    for part in found:
        for reason, example in part["examples"].items():
            examples[reason] = min(example, examples.get(reason, example), key=lambda one: (one[0], one[1]))
    return {
        "rows": sum(part["rows"] for part in found),
        "filtered": merge_counts(part["filtered"] for part in found),
        "rejected": merge_counts(part["rejected"] for part in found),
        "examples": examples,
        "more": merge_counts(part["more"] for part in found),
    }
