"""Account for every row at the end of a job, and say what the dataset is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.beam.tallies import Tally
from recsys_cg.config import Config, DatasetConfig
from recsys_cg.data.popularity import count_buckets
from recsys_cg.errors import ConservationError, SourceError, TooManyRejectsError
from recsys_cg.schema import DatasetFiles, rejects_schema

__all__ = ["check_rejects", "finish"]


def check_rejects(section: str, path: str, counted: Tally, dataset: DatasetConfig) -> None:
    """Refuse a source of which too many rows are broken.

    Raises:
        TooManyRejectsError: the share of refused rows is above ``max_rejects``; each reason is told with its count
            and its first example.
        SourceError: the source holds no rows at all.
    """
    rows = counted["rows"]
    if not rows:
        raise SourceError(f"{path}: the source holds no rows")
    refused = sum(counted["rejected"].values())
    if refused <= dataset.max_rejects * rows:
        return
    lines = []
    for reason, count in counted["rejected"].items():
        source, row, record = counted["examples"][reason]
        lines.append(f"  {reason}: {count:,}, e.g. row {row} of {source}: {record[:300]}")
    raise TooManyRejectsError(
        f"{path}: {refused:,} of {rows:,} rows of [{section}] were refused ({refused / rows:.2%}; dataset.max_rejects "
        f"allows {dataset.max_rejects:.2%}):\n" + "\n".join(lines)
    )


def finish(config: Config, directory: Path, scratch: Path) -> dict[str, Any]:
    """Gather the rejects, check that rows in are rows accounted for, and return the manifest's info.

    Raises:
        ConservationError: they are not.
    """
    interactions, written = _read_json(scratch / "interactions.json"), _read_json(scratch / "written.json")
    refused = _gather_rejects(directory, scratch)
    more = written["more"]
    kept = more["train_events"] + more["validation_events"] + more["test_events"]
    filtered = dict(sorted({**interactions["filtered"], **written["filtered"]}.items()))
    rows = {"in": interactions["rows"], "kept": kept, "rejected": interactions["rejected"], "filtered": filtered}
    _check_conservation("interactions", rows, refused.get("interactions", 0))
    others = {"catalogue": _account("items", scratch, refused)} if config.items else {}
    if config.impressions is not None:
        others["impressions"] = _account("impressions", scratch, refused)
    table = pq.read_table(directory / DatasetFiles.ITEMS, columns=["bucket", "train_count"])
    counted = int(np.asarray(table.column("train_count")).sum())
    if counted != more["train_events"]:
        raise ConservationError(f"items count {counted} training events, sequences hold {more['train_events']}")
    return {
        "rows": rows,
        **others,
        "events": _read_json(scratch / "assembled.json")["events"],
        "windows": _read_json(scratch / "windows.json"),
        "items": table.num_rows,
        "users": interactions["more"]["users"],
        "buckets": count_buckets(np.array(table.column("bucket").to_pylist(), dtype=str)),
        "train_events": more["train_events"],
        "queries": {split: more[f"{split}_queries"] for split in ("validation", "test")},
        "max_history": config.dataset.max_history,
        "targets": config.dataset.targets,
    }


def _account(name: str, scratch: Path, refused: dict[str, int]) -> dict[str, Any]:
    counted = _read_json(scratch / f"{name}.json")
    rows = {
        "in": counted["rows"],
        "kept": counted["more"]["kept"],
        "rejected": counted["rejected"],
        "filtered": counted["filtered"],
    }
    _check_conservation(name, rows, refused.get(name, 0))
    return rows


def _read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def _gather_rejects(directory: Path, scratch: Path) -> dict[str, int]:
    target = directory / DatasetFiles.REJECTS / "part-00000.parquet"
    target.parent.mkdir()
    counts: dict[str, int] = {}
    tables = [rejects_schema.empty_table()]
    for folder in sorted((scratch / "rejects").glob("*")):
        found = [pq.ParquetFile(path).read() for path in sorted(folder.glob("*.parquet"))]
        counts[folder.name] = sum(table.num_rows for table in found)
        tables.extend(found)
    ordered = pa.concat_tables(tables).sort_by([("source", "ascending"), ("row", "ascending"), ("reason", "ascending")])
    pq.write_table(ordered, target, compression="zstd")
    return counts


def _check_conservation(name: str, rows: dict[str, Any], refused_written: int) -> None:
    rejected, filtered = sum(rows["rejected"].values()), sum(rows["filtered"].values())
    if rows["in"] != rows["kept"] + rejected + filtered or rejected != refused_written:
        raise ConservationError(
            f"{name}: {rows['in']} rows in, but {rows['kept']} kept + {rejected} rejected ({refused_written} written) "
            f"+ {filtered} filtered; this is a defect of recsys-cg: {rows}"
        )
