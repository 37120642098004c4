"""Impressions: clean blocks, group them by users, write each group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow.parquet as pq

from recsys_cg.beam.content import read_item_ids
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.interactions import REJECTS, TALLY
from recsys_cg.beam.parts import PARQUET, SCRATCH, write_part
from recsys_cg.beam.spill import read_spilled
from recsys_cg.beam.tallies import tally
from recsys_cg.config import ImpressionsConfig
from recsys_cg.data.blocks import Block
from recsys_cg.data.impressions import clean_impression_block, merge_impressions
from recsys_cg.data.splits import Windows
from recsys_cg.schema import DatasetFiles

__all__ = ["CleanImpressions", "WriteImpressions"]


class CleanImpressions(beam.DoFn):
    """`Block` -> tables of impressions; rejects under the tag ``REJECTS``, counts under ``TALLY``."""

    def __init__(self, impressions: ImpressionsConfig, failures: Failures) -> None:
        self._impressions, self._failures = impressions, failures

    def process(self, block: Block) -> Iterator[Any]:
        """Clean one block."""
        yield from self._failures.guard(lambda: self._clean(block))

    def _clean(self, block: Block) -> Iterator[Any]:
        cleaned = clean_impression_block(block, self._impressions)
        yield beam.pvalue.TaggedOutput(TALLY, tally(rows=cleaned.rows, rejects=cleaned.rejects))
        if cleaned.rejects.num_rows:
            yield beam.pvalue.TaggedOutput(REJECTS, cleaned.rejects)
        if cleaned.impressions.num_rows:
            yield cleaned.impressions


class WriteImpressions(beam.DoFn):
    """``(shard, names of files)`` -> its file below ``directory``; yields the counts."""

    def __init__(self, directory: Path, most: int, failures: Failures) -> None:
        self._directory, self._most, self._failures = directory, most, failures

    def process(
        self, keyed: tuple[int, Iterable[str]], windows: list[Windows], assembled: list[Mapping[str, Any]]
    ) -> Iterator[Any]:
        """Write one shard; nothing when there is no item table."""
        if windows and assembled:
            yield from self._failures.guard(lambda: self._write(*keyed, windows[0]))

    def _write(self, number: int, paths: Iterable[str], windows: Windows) -> Iterator[Any]:
        ids = read_item_ids(self._directory / SCRATCH)
        merged, left_out = merge_impressions(read_spilled(paths), ids, self._most, windows.cuts)
        with write_part(self._directory, DatasetFiles.IMPRESSIONS, number) as file:
            pq.write_table(merged, file, **PARQUET)
        yield tally(filtered=left_out, kept=merged.num_rows)
