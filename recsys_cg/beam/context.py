"""Context features: count the values of training time, and fit the vocabularies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.interactions import shard_directory
from recsys_cg.config import ContextConfig
from recsys_cg.data.context import ContextSet
from recsys_cg.data.context_values import count_values, counts_schema, split_values
from recsys_cg.data.shards import Shard
from recsys_cg.data.splits import Windows
from recsys_cg.data.training import select_training
from recsys_cg.schema import DatasetFiles

__all__ = ["CountContext", "FitContext", "encode_context", "read_context"]


class CountContext(beam.DoFn):
    """Number of a shard -> its training events by context feature and value (`counts_schema`)."""

    def __init__(
        self, configs: Sequence[ContextConfig], scratch: Path, min_user_events: int, failures: Failures
    ) -> None:
        self._configs, self._scratch = list(configs), scratch
        self._min_user_events, self._failures = min_user_events, failures

    def process(self, number: int, windows: list[Windows], frequent: pa.Table | None = None) -> Iterator[pa.Table]:
        """Count one shard; nothing when the windows could not be chosen."""
        if not windows or self._failures.any():
            return
        shard = Shard.open(shard_directory(self._scratch, number))
        if shard.context is None:
            return
        is_training, _ = select_training(
            shard,
            windows[0].validation_from_us,
            frequent=None if frequent is None else frequent.column(0).combine_chunks(),
            min_user_events=self._min_user_events,
        )
        yield count_values(shard.contexts, shard.context[is_training], self._configs)


class FitContext(beam.DoFn):
    """Write ``context.json``; yields the names of the features.

    Args:
        configs: the ``[[interactions.context]]``.
        directory: of the dataset.
        failures: where bad data are told.
        kept: the features of an encoder that is kept; None fits them.
    """

    def __init__(
        self, configs: Sequence[ContextConfig], directory: Path, failures: Failures, kept: ContextSet | None
    ) -> None:
        self._configs, self._directory, self._failures, self._kept = list(configs), directory, failures, kept

    def process(self, _: None, counts: list[pa.Table]) -> Iterator[tuple[str, ...]]:
        """Fit the features."""
        if self._failures.any():
            return
        fitted = self._kept or ContextSet.fit(self._configs, pa.concat_tables([counts_schema.empty_table(), *counts]))
        write_text_atomically(self._directory / DatasetFiles.CONTEXT, fitted.to_json() + "\n")
        yield fitted.names


def read_context(directory: Path) -> ContextSet:
    """Read what `FitContext` wrote."""
    return ContextSet.from_json((directory / DatasetFiles.CONTEXT).read_text(encoding="utf-8"))


def encode_context(context: ContextSet, shard: Shard) -> pa.Table:
    """Return the codes of every event of ``shard``, columns ``c_<name>`` int32."""
    count = sum(not feature.is_derived for feature in context.features)
    if shard.context is None:
        values = [pa.nulls(len(shard.user), pa.string())] * count
        return context.encode(values, np.asarray(shard.time_us))
    split = split_values(shard.contexts, count)
    return context.encode(split, np.asarray(shard.time_us), places=shard.context)
