"""Group rows by user without holding them in memory: the rows go to files, and Beam groups the names of the files.

Beam's in-process runner keeps everything that is grouped in memory several times over; measured on 20M events it took
as much as pandas. The files lie in the job's scratch folder, which all workers share, as Arrow IPC that is
memory-mapped by whoever sorts the group. A bundle that is worked on twice leaves a file that nobody names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa

from recsys_cg.data.interactions import split_by_shard

__all__ = ["GroupByUser", "read_spilled"]


class _Spill(beam.DoFn):
    def __init__(self, folder: Path, shards: int, prepare: Callable[[pa.Table], pa.Table]) -> None:
        self._folder, self._shards, self._prepare = folder, shards, prepare

    def process(self, table: pa.Table) -> Iterator[tuple[int, str]]:
        self._folder.mkdir(parents=True, exist_ok=True)
        for shard, part in split_by_shard(self._prepare(table), self._shards):
            path = str(self._folder / f"{shard:05d}-{uuid.uuid4().hex}.arrow")
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, part.schema) as writer:
                writer.write_table(part)
            yield shard, path


def _open(shard: int) -> tuple[int, str]:
    return shard, ""


class GroupByUser(beam.PTransform):
    """Tables with a ``user_id`` -> ``(shard, names of files)``; every shard is there, also one without rows.

    Args:
        folder: where the files go.
        shards: number of groups.
        prepare: what is done to a table first.
    """

    def __init__(self, folder: Path, shards: int, prepare: Callable[[pa.Table], pa.Table]) -> None:
        super().__init__()
        self._folder, self._shards, self._prepare = folder, shards, prepare

    def expand(self, tables: Any) -> Any:
        """Spill every table by shard, then group."""
        keyed_type = tuple[int, str]
        every = (
            tables.pipeline
            | "ListShards" >> beam.Create(range(self._shards))
            | "OpenShards" >> beam.Map(_open).with_output_types(keyed_type)
        )
        spill = _Spill(self._folder, self._shards, self._prepare)
        spilled = tables | "SpillByUser" >> beam.ParDo(spill).with_output_types(keyed_type)
        return (spilled, every) | "JoinShards" >> beam.Flatten() | "GroupByShard" >> beam.GroupByKey()


def read_spilled(paths: Any) -> Iterator[pa.Table]:
    """Map the files of one group, one after the other."""
    for path in sorted(path for path in paths if path):
        yield pa.ipc.open_file(pa.memory_map(path)).read_all()
