"""Interactions: clean blocks, group them by users, sort each group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

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
from recsys_cg.data.shards import Shard, build_shard
from recsys_cg.data.splits import Windows, explicit_until

__all__ = ["REJECTS", "TALLY", "BuildShards", "CapByWindow", "CleanInteractions", "shard_directory", "sorted_directory"]

REJECTS = "rejects"
TALLY = "tally"

_MADE: Final = "made.json"


def sorted_directory(scratch: Path, shard: int) -> Path:
    """Return where `BuildShards` leaves the sorted events of ``shard``."""
    return scratch / "sorted" / f"{shard:05d}"


def shard_directory(scratch: Path, shard: int) -> Path:
    """Return where the sorted events of ``shard`` lie once `CapByWindow` has seen it."""
    capped = _capped_directory(scratch, shard)
    return capped if capped.is_dir() else sorted_directory(scratch, shard)


def _capped_directory(scratch: Path, shard: int) -> Path:
    return scratch / "capped" / f"{shard:05d}"


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


def _build(
    paths: Iterable[str], interactions: InteractionsConfig, dataset: DatasetConfig, cuts: Sequence[int] = ()
) -> tuple[Shard, dict[str, int]]:
    return build_shard(
        read_spilled(paths),
        max_user_events=dataset.max_user_events,
        dedupe=dataset.dedupe,
        weights=dict(interactions.event_weights),
        cuts=cuts,
    )


class _BuildOne(beam.DoFn):
    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, scratch: Path) -> None:
        self._interactions, self._dataset, self._scratch = interactions, dataset, scratch

    def process(self, keyed: tuple[int, Iterable[str]]) -> Iterator[int]:
        number, paths = keyed[0], sorted(keyed[1])
        shard, left_out = _build(paths, self._interactions, self._dataset)
        with write_directory_whole(sorted_directory(self._scratch, number), self._scratch) as folder:
            shard.save(folder)
            made = {"paths": paths, "left_out": left_out, "users": len(np.unique(shard.user))}
            (folder / _MADE).write_text(json.dumps(made), encoding="utf-8")
        yield number


class BuildShards(beam.PTransform):
    """``PCollection[events table]`` -> numbers of the shards, sorted and written below ``scratch``.

    Users are grouped by a stable hash; every shard is written, also an empty one. Of each user the newest
    ``max_user_events`` are there, whatever the window: enough to choose the windows by.
    """

    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, scratch: Path) -> None:
        super().__init__()
        self._interactions, self._dataset, self._scratch = interactions, dataset, scratch

    def expand(self, events: Any) -> Any:
        """Group by user, then sort each group."""
        build = _BuildOne(self._interactions, self._dataset, self._scratch)
        grouped = events | "GroupEvents" >> GroupByUser(self._scratch / "events", self._dataset.shards, lean)
        return grouped | "SortShard" >> beam.ParDo(build).with_output_types(int)


class CapByWindow(beam.DoFn):
    """Number of a shard -> the number, its users bounded window by window; what was left out under ``TALLY``.

    Only a shard that has a user of more than ``max_user_events`` is sorted again: the newest of all windows are not the
    newest of each, and no event may be pushed out of the training window by a later one.
    """

    def __init__(self, interactions: InteractionsConfig, dataset: DatasetConfig, scratch: Path) -> None:
        self._interactions, self._dataset, self._scratch = interactions, dataset, scratch

    def process(self, number: int, windows: list[Windows]) -> Iterator[Any]:
        """See to one shard; nothing when the windows could not be chosen."""
        if not windows:
            return
        made = json.loads((sorted_directory(self._scratch, number) / _MADE).read_text(encoding="utf-8"))
        left_out = made["left_out"]
        if "max_user_events" in left_out:
            shard, left_out = _build(made["paths"], self._interactions, self._dataset, windows[0].cuts)
            with write_directory_whole(_capped_directory(self._scratch, number), self._scratch) as folder:
                shard.save(folder)
        yield beam.pvalue.TaggedOutput(TALLY, tally(filtered=left_out, users=made["users"]))
        yield number
