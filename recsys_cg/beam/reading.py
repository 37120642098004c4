"""Read sources as blocks, and keep what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.beam.failures import Failures
from recsys_cg.beam.parts import write_whole
from recsys_cg.data.blocks import Block
from recsys_cg.data.sources import Read, read_blocks

__all__ = ["ReadBlocks", "WriteRejects"]


class _ReadOne(beam.DoFn):
    def __init__(self, block_rows: int, failures: Failures) -> None:
        self._block_rows = block_rows
        self._failures = failures

    def process(self, read: Read) -> Iterator[Block]:
        yield from self._failures.guard(lambda: read_blocks(read, self._block_rows))


class ReadBlocks(beam.PTransform):
    """``PCollection[Read]`` -> ``PCollection[Block]``; pieces are spread over the workers.

    Args:
        block_rows: upper bound of a block's rows.
        failures: where a source that cannot be read is told.
    """

    def __init__(self, block_rows: int, failures: Failures) -> None:
        super().__init__()
        self._block_rows = block_rows
        self._failures = failures

    def expand(self, reads: Any) -> Any:
        """Spread the pieces, then read them."""
        return (
            reads
            | "SpreadReads" >> beam.Reshuffle()
            | "ReadPiece" >> beam.ParDo(_ReadOne(self._block_rows, self._failures)).with_output_types(Block)
        )


class WriteRejects(beam.DoFn):
    """Write tables of rejects below ``directory``, one small Parquet file each, named by what they hold.

    A bundle that is worked on twice writes the same file twice, so nothing is counted double.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def process(self, rejects: pa.Table) -> Iterator[None]:
        """Write one table."""
        first = f"{rejects.column('source')[0]}|{rejects.column('row')[0]}|{rejects.column('reason')[0]}"
        name = hashlib.sha256(first.encode()).hexdigest()[:24]
        self._directory.mkdir(parents=True, exist_ok=True)
        with write_whole(self._directory / f"{name}.parquet", self._directory) as path:
            pq.write_table(rejects, path)
        yield from ()
