"""Small projects on disk, and what a dataset directory says, for the tests of the jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.beam.dataset import build_dataset
from recsys_cg.config import Config, load_config

__all__ = ["EVENTS", "build", "read_dataset", "write_project"]

EVENTS = """user_id,item_id,timestamp,event
ann,x,1,view
ann,"y,1",2,view
ann,"y,1",2,buy
bob,x,3,view
bob,z,3,view
cid,x,4,view
cid,007,5,view
ann,z,6,view
bob,007,8,view
ann,x,8,buy
cid,new,9,view
"""


def write_project(folder: Path, text: str = "", *, events: str | None = EVENTS, name: str = "events.csv") -> Path:
    """Write a project file and its events; ``text`` follows the interactions section."""
    folder.mkdir(parents=True, exist_ok=True)
    if events is not None:
        (folder / name).write_text(events, encoding="utf-8")
    path = folder / "project.toml"
    path.write_text(f'[interactions]\npath = "{name}"\n{text}', encoding="utf-8")
    return path


def build(project: Path | Config, directory: Path, *overrides: str, runner: tuple[str, ...] = ()) -> dict[str, Any]:
    """Build the dataset of ``project`` into ``directory``."""
    directory.mkdir(parents=True)
    config = load_config(project, overrides) if isinstance(project, Path) else project
    return build_dataset(config, directory, runner=runner)


def read_dataset(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table of a dataset, in an order that shards do not decide."""
    folders = ["sequences", "histories", "queries/validation", "queries/test", "rejects", "impressions"]
    tables = {"items": pq.read_table(directory / "items.parquet")}
    for folder in folders:
        parts = sorted((directory / folder).glob("part-*.parquet"))
        if parts:
            tables[folder] = pa.concat_tables([pq.ParquetFile(part).read() for part in parts])
    return {
        name: sorted(table.to_pylist(), key=repr) if name != "items" else table.to_pylist()
        for name, table in tables.items()
    }
