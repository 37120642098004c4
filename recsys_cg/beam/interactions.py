"""Interactions: clean blocks, group them by users, sort each group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recsys_cg.beam.failures import Failures
from recsys_cg.beam.parts import write_directory_whole
from recsys_cg.beam.spill import GroupByUser, read_spilled
from recsys_cg.beam.tallies import tally
from recsys_cg.config import DatasetConfig, InteractionsConfig
from recsys_cg.data.blocks import Block
from recsys_cg.data.interactions import clean_block, lean
from recsys_cg.data.shards import build_shard
from recsys_cg.data.splits import explicit_until

__all__ = ["REJECTS", "TALLY", "BuildShards", "CleanInteractions", "shard_directory"]

REJECTS = "rejects"
TALLY = "tally"


def shard_directory(scratch: Path, shard: int) -> Path:
    """Return where the sorted events of ``shard`` lie."""
    return scratch / "shards" / f"{shard:05d}"


class CleanInteractions(beam.DoFn):
    """`Block` -> events tables; rejects under the tag ``REJECTS``, counts under ``TALLY``.

    Args:
        interactions: the ``[interactions]`` section.
        dataset: the ``[dataset]`` section.
        failures: where bad data are told.
    """

    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, failures: Failures) -> None:
        self._interactions = interactions
        self._until = explicit_until(dataset)
        self._failures = failures

    def process(self, block: Block, catalogue: pa.Table | None = None) -> Iterator[Any]:
        """Clean one block; with ``catalogue``, refuse items that are not in its first column."""
        yield from self._failures.guard(lambda: self._clean(block, catalogue))

    def _clean(self, block: Block, catalogue: pa.Table | None) -> Iterator[Any]:
        known = None if catalogue is None else catalogue.column(0).combine_chunks()
        cleaned = clean_block(block, self._interactions, catalogue=known, until_us=self._until)
        counted = tally(rows=cleaned.rows, filtered=dict(cleaned.filtered), rejects=cleaned.rejects)
        yield beam.pvalue.TaggedOutput(TALLY, counted)
        if cleaned.rejects.num_rows:
            yield beam.pvalue.TaggedOutput(REJECTS, cleaned.rejects)
        if cleaned.events.num_rows:
            yield cleaned.events


class _BuildOne(beam.DoFn):
    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, scratch: Path) -> None:
        self._weights = dict(interactions.event_weights)
        self._dataset = dataset
        self._scratch = scratch

    def process(self, keyed: tuple[int, Iterable[str]]) -> Iterator[Any]:
        number, paths = keyed
        shard, left_out = build_shard(
            read_spilled(paths),
            max_user_events=self._dataset.max_user_events,
            dedupe=self._dataset.dedupe,
            weights=self._weights,
        )
        with write_directory_whole(shard_directory(self._scratch, number), self._scratch) as folder:
            shard.save(folder)
        yield beam.pvalue.TaggedOutput(TALLY, tally(filtered=left_out, users=len(np.unique(shard.user))))
        yield number


class BuildShards(beam.PTransform):
    """``PCollection[events table]`` -> numbers of the shards written below ``scratch``, and counts under ``TALLY``.

    Users are grouped by a stable hash; every shard is written, also an empty one.
    """

    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, scratch: Path) -> None:
        super().__init__()
        self._interactions, self._dataset, self._scratch = interactions, dataset, scratch

    def expand(self, events: Any) -> Any:
        """Group by user, then sort each group."""
        build = _BuildOne(self._interactions, self._dataset, self._scratch)
        grouped = events | "GroupEvents" >> GroupByUser(self._scratch / "events", self._dataset.shards, lean)
        return grouped | "SortShard" >> beam.ParDo(build).with_outputs(TALLY, main="shards")
