"""Content: clean the catalogue, count the training events of items, and put the item table together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.artifacts import write_text_atomically
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.interactions import REJECTS, TALLY, shard_directory
from recsys_cg.beam.parts import SCRATCH, write_whole
from recsys_cg.beam.tallies import tally
from recsys_cg.config import Config, ItemsConfig
from recsys_cg.data.blocks import Block, naming_source
from recsys_cg.data.catalogue import ID, clean_catalogue_block, empty_catalogue, merge_catalogue
from recsys_cg.data.content import FeatureSet
from recsys_cg.data.items import assemble_items, count_events, frequent_items, merge_item_counts
from recsys_cg.data.shards import Shard
from recsys_cg.data.splits import Windows
from recsys_cg.data.training import select_training
from recsys_cg.errors import DataError
from recsys_cg.schema import DatasetFiles

__all__ = [
    "AssembleItems",
    "CleanCatalogue",
    "CountItems",
    "MergeCatalogue",
    "catalogue_ids",
    "find_frequent",
    "read_item_ids",
]

_MOST_EVENT_TYPES = 127


class CleanCatalogue(beam.DoFn):
    """`Block` -> catalogue tables; rejects under the tag ``REJECTS``, counts under ``TALLY``."""

    def __init__(self, items: ItemsConfig, failures: Failures) -> None:
        self._items, self._failures = items, failures

    def process(self, block: Block) -> Iterator[Any]:
        """Clean one block."""
        yield from self._failures.guard(lambda: self._clean(block))

    def _clean(self, block: Block) -> Iterator[Any]:
        cleaned = clean_catalogue_block(block, self._items)
        yield beam.pvalue.TaggedOutput(TALLY, tally(rows=cleaned.rows, rejects=cleaned.rejects))
        if cleaned.rejects.num_rows:
            yield beam.pvalue.TaggedOutput(REJECTS, cleaned.rejects)
        yield cleaned.items


class MergeCatalogue(beam.DoFn):
    """All cleaned tables, as a side input -> the catalogue, one row an item; counts under ``TALLY``."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def process(self, _: None, tables: list[pa.Table]) -> Iterator[Any]:
        """Merge the tables."""
        yield from self._failures.guard(lambda: self._merge(tables))

    def _merge(self, tables: list[pa.Table]) -> Iterator[Any]:
        merged, repeats = merge_catalogue(tables) if tables else (empty_catalogue(), 0)
        filtered = {"duplicate_item": repeats} if repeats else {}
        yield beam.pvalue.TaggedOutput(TALLY, tally(filtered=filtered, kept=merged.num_rows))
        yield merged


def catalogue_ids(catalogue: pa.Table) -> pa.Table:
    """Return the column of identifiers alone."""
    return catalogue.select([ID])


class CountItems(beam.DoFn):
    """Number of a shard -> training events of its items (`recsys_cg.data.items.counts_schema`)."""

    def __init__(self, scratch: Path, min_user_events: int, failures: Failures) -> None:
        self._scratch, self._min_user_events, self._failures = scratch, min_user_events, failures

    def process(self, number: int, windows: list[Windows], frequent: pa.Table | None = None) -> Iterator[pa.Table]:
        """Count one shard; nothing when the windows could not be chosen."""
        if not windows or self._failures.any():
            return
        shard = Shard.open(shard_directory(self._scratch, number))
        allowed = None if frequent is None else frequent.column(0).combine_chunks()
        is_training, _ = select_training(
            shard, windows[0].validation_from_us, frequent=allowed, min_user_events=self._min_user_events
        )
        yield count_events(shard, is_training)


def find_frequent(tables: Iterable[pa.Table], least: int) -> pa.Table:
    """Return the items with at least ``least`` training events over all shards, as a table of one column."""
    return pa.table({"item_id": frequent_items(merge_item_counts(list(tables)), least)})


class AssembleItems(beam.DoFn):
    """Write ``items.parquet`` and ``features.json``; yields ``{"events": [...]}``.

    The catalogue and the counts of all items are held by one worker: about 200 bytes an item, and its content.
    """

    def __init__(self, config: Config, directory: Path, failures: Failures, features: FeatureSet | None) -> None:
        self._config, self._directory, self._failures, self._features = config, directory, failures, features

    def process(
        self, _: None, counts: list[pa.Table], catalogue: list[pa.Table], windows: list[Windows], shards: list[int]
    ) -> Iterator[Mapping[str, Any]]:
        """Assemble everything."""
        if windows and not self._failures.any():
            yield from self._failures.guard(lambda: self._assemble(counts, catalogue[0], windows[0], shards))

    def _assemble(
        self, counts: list[pa.Table], catalogue: pa.Table, windows: Windows, shards: list[int]
    ) -> Iterator[Mapping[str, Any]]:
        scratch = self._directory / SCRATCH
        config = self._config
        events = _event_names(config.interactions.event_weights, scratch, shards)
        with naming_source(config.items.path if config.items else config.interactions.path):
            items, features = assemble_items(
                merge_item_counts(counts),
                catalogue,
                config.items.features if config.items else [],
                weights=config.interactions.event_weights,
                validation_from_us=windows.validation_from_us,
                fitted=self._features,
            )
        if self._features is None and not _is_any_weighed(items):
            raise DataError(
                f"{config.interactions.path}: every training event weighs 0 by interactions.event_weights: nothing "
                "would be learned"
            )
        if config.items and catalogue.num_rows and self._features is None and not _is_any_met(items):
            raise DataError(
                f"{config.items.path}: none of its {catalogue.num_rows:,} items is met in the training interactions: "
                f"do items.item = {config.items.item!r} and interactions.item = {config.interactions.item!r} hold the "
                "same identifiers?"
            )
        with write_whole(self._directory / DatasetFiles.ITEMS, scratch) as file:
            pq.write_table(items, file, compression="zstd")
        write_text_atomically(self._directory / DatasetFiles.FEATURES, features.to_json() + "\n")
        ids = items.select(["item_id"])
        with write_whole(scratch / "item_ids.arrow", scratch) as path:
            _write_arrow(ids, path)
        write_text_atomically(scratch / "assembled.json", json.dumps({"events": events}, ensure_ascii=False))
        yield {"events": events}


def _is_any_weighed(items: pa.Table) -> bool:
    """Tell whether a training event has a weight, or there is none."""
    counts, weights = (items.column(name).to_numpy() for name in ("train_count", "train_weight"))
    return bool((weights > 0).any() or not counts.any())


def _is_any_met(items: pa.Table) -> bool:
    """Tell whether an item of the catalogue has a training event, or nothing has one."""
    counts = items.column("train_count").to_numpy()
    listed = items.column("in_catalogue").to_numpy(zero_copy_only=False)
    return bool((counts[listed] > 0).any() or not counts.any())


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_item_ids(scratch: Path) -> pa.Array:
    """Return the item_ids of the item table, in the order of its rows."""
    return pa.ipc.open_file(pa.memory_map(str(scratch / "item_ids.arrow"))).read_all().column(0).combine_chunks()


def _event_names(weights: Mapping[str, float], scratch: Path, shards: list[int]) -> list[str]:
    if weights:
        names = sorted(weights)
    else:
        files = [shard_directory(scratch, shard) / "events.json" for shard in shards]
        names = sorted({name for path in files for name in json.loads(path.read_text(encoding="utf-8"))})
    if len(names) > _MOST_EVENT_TYPES:
        raise DataError(
            f"interactions.event has {len(names)} types, e.g. {', '.join(names[:3])}; at most {_MOST_EVENT_TYPES} "
            "can be told apart: name those that count in interactions.event_weights"
        )
    return names
