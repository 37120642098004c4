"""Write the training sequences and the evaluation queries of each shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cg.beam.content import read_item_ids
from recsys_cg.beam.context import encode_context, read_context
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.interactions import shard_directory
from recsys_cg.beam.parts import PARQUET, SCRATCH, part_path, write_part
from recsys_cg.beam.tallies import tally
from recsys_cg.config import Config
from recsys_cg.data.impressions import exposures_of
from recsys_cg.data.interactions import weights_of
from recsys_cg.data.sequences import Timeline, evaluation_queries, training_sequences
from recsys_cg.data.shards import Shard
from recsys_cg.data.splits import Windows
from recsys_cg.data.training import select_training
from recsys_cg.schema import DatasetFiles, queries_schema

__all__ = ["WriteHistories"]


class WriteHistories(beam.DoFn):
    """Number of a shard -> its files below ``directory``; yields what was written, counted."""

    def __init__(self, config: Config, directory: Path, failures: Failures) -> None:
        self._config, self._directory, self._failures = config, directory, failures
        self._scratch = directory / SCRATCH

    def process(
        self,
        number: int,
        windows: list[Windows],
        assembled: list[Mapping[str, Any]],
        _impressions: list[Any],
        frequent: pa.Table | None = None,
        context: list[Any] | None = None,
    ) -> Iterator[Any]:
        """Write one shard; ``_impressions`` and ``context`` only say that they are written."""
        if windows and assembled and context != []:
            yield from self._failures.guard(lambda: self._write(number, windows[0], assembled[0], frequent))

    def _write(
        self, number: int, windows: Windows, assembled: Mapping[str, Any], frequent: pa.Table | None
    ) -> Iterator[Any]:
        shard = Shard.open(shard_directory(self._scratch, number))
        is_training, left_out = select_training(
            shard,
            windows.validation_from_us,
            frequent=None if frequent is None else frequent.column(0).combine_chunks(),
            min_user_events=self._config.dataset.min_user_events,
        )
        timeline = self._timeline(shard, assembled["events"])
        sequences = training_sequences(timeline, is_training)
        with write_part(self._directory, DatasetFiles.SEQUENCES, number) as file:
            pq.write_table(sequences, file, **PARQUET)
        if self._config.serving.histories:
            self._write_histories(timeline, number)
        counts = {"train_events": _values(sequences.column("item_rows"))}
        exposures = self._exposures(timeline, number)
        spans = {
            "validation": (windows.validation_from_us, windows.test_from_us),
            "test": (windows.test_from_us, windows.until_us),
        }
        for split, (start, end) in spans.items():
            counts[f"{split}_queries"] = self._write_queries(timeline, exposures, number, split, (start, end))
            counts[f"{split}_events"] = int(((shard.time_us >= start) & (shard.time_us < end)).sum())
        yield tally(filtered=left_out, **counts)

    def _timeline(self, shard: Shard, events: list[str]) -> Timeline:
        rows = np.asarray(pc.index_in(shard.items, value_set=read_item_ids(self._scratch)), dtype=np.int32)
        codes = np.asarray(pc.index_in(shard.events, value_set=pa.array(events, type=pa.string())), dtype=np.int8)
        weights = weights_of(shard.events, self._config.interactions.event_weights)
        context = None
        if self._config.interactions.context:
            context = encode_context(read_context(self._directory), shard)
        return Timeline(
            shard.users, shard.user, shard.time_us, rows[shard.item], codes[shard.event], weights[shard.event], context
        )

    def _write_histories(self, timeline: Timeline, number: int) -> None:
        """Write all that is known of each user, whatever the window: what the service will answer from."""
        everything = training_sequences(replace(timeline, context=None), np.ones(len(timeline.user), dtype=np.bool_))
        with write_part(self._directory, DatasetFiles.HISTORIES, number) as file:
            pq.write_table(everything, file, **PARQUET)

    def _exposures(self, timeline: Timeline, number: int) -> pa.Table | None:
        if self._config.impressions is None:
            return None
        impressions = pq.ParquetFile(part_path(self._directory, DatasetFiles.IMPRESSIONS, number)).read()
        return exposures_of(timeline, impressions)

    def _write_queries(
        self, timeline: Timeline, exposures: pa.Table | None, number: int, split: str, span: tuple[int, int]
    ) -> int:
        dataset = self._config.dataset
        schema = queries_schema
        for column in timeline.context.schema if timeline.context is not None else ():
            schema = schema.append(column)
        for column in exposures.schema if exposures is not None else ():
            schema = schema.append(pa.field(f"target_{column.name}", pa.list_(column.type)))
        count = 0
        part = write_part(self._directory, f"{DatasetFiles.QUERIES}/{split}", number)
        with part as file, pq.ParquetWriter(file, schema, **PARQUET) as writer:
            tables = evaluation_queries(
                timeline, *span, targets=dataset.targets, max_history=dataset.max_history, exposures=exposures
            )
            for table in tables:
                writer.write_table(table)
                count += table.num_rows
        return count


def _values(lists: pa.ChunkedArray) -> int:
    return int(pc.sum(pc.list_value_length(lists)).as_py() or 0)
