"""Parquet files written block by block: rows go into row groups of one size, and row groups into parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Parts", "write_parts"]


class Parts:
    """A folder of Parquet parts that grows; holds at most one row group and one block in memory."""

    def __init__(self, folder: Path, schema: pa.Schema, part_rows: int, row_group_rows: int) -> None:
        self.rows = 0
        self._folder, self._schema = folder, schema
        self._part_rows, self._group_rows = part_rows, min(row_group_rows, part_rows)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._written = self._parts = 0
        self._writer: pq.ParquetWriter | None = None
        folder.mkdir(parents=True)

    def add(self, block: pa.Table) -> None:
        """Append the rows of ``block``, which has the schema of the parts."""
        self.rows += block.num_rows
        self._waiting.append(block)
        self._waiting_rows += block.num_rows
        if self._waiting_rows >= self._group_rows:
            table = pa.concat_tables(self._waiting)
            whole = table.num_rows - table.num_rows % self._group_rows
            for start in range(0, whole, self._group_rows):
                self._write(table.slice(start, self._group_rows))
            self._waiting = [table.slice(whole)]
            self._waiting_rows = table.num_rows - whole

    def _write(self, group: pa.Table) -> None:
        if self._writer is not None and self._written + group.num_rows > self._part_rows:
            self._close_part()
        if self._writer is None:
            path = self._folder / f"part-{self._parts:05d}.parquet"
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", compression_level=1)
            self._parts += 1
            self._written = 0
        self._writer.write_table(group.combine_chunks(), row_group_size=self._group_rows)
        self._written += group.num_rows

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def finish(self) -> None:
        """Write what is still waiting; a folder without rows gets one part without rows."""
        rest = pa.concat_tables(self._waiting) if self._waiting else self._schema.empty_table()
        if rest.num_rows or not self._parts:
            self._write(rest)
        self._close_part()


@contextmanager
def write_parts(folder: Path, schema: pa.Schema, *, part_rows: int, row_group_rows: int) -> Iterator[Parts]:
    """Give `Parts` to add blocks to; they are whole when the block ends well."""
    parts = Parts(folder, schema, part_rows, row_group_rows)
    try:
        yield parts
        parts.finish()
    finally:
        parts._close_part()
