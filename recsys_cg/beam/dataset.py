"""The dataset job: from raw sources to the dataset directory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa

import recsys_cg.beam.coders  # noqa: F401 - registers how blocks travel
from recsys_cg.artifacts import write_text_atomically
from recsys_cg.beam.accounting import check_rejects, finish
from recsys_cg.beam.content import (
    AssembleItems,
    CleanCatalogue,
    CountItems,
    MergeCatalogue,
    catalogue_ids,
    find_frequent,
)
from recsys_cg.beam.context import CountContext, FitContext
from recsys_cg.beam.failures import Failures
from recsys_cg.beam.histories import WriteHistories
from recsys_cg.beam.impressions import CleanImpressions, WriteImpressions
from recsys_cg.beam.interactions import REJECTS, TALLY, BuildShards, CapByWindow, CleanInteractions, sorted_directory
from recsys_cg.beam.parts import SCRATCH
from recsys_cg.beam.planning import Plan, plan_job
from recsys_cg.beam.reading import ReadBlocks, WriteRejects
from recsys_cg.beam.runner import open_pipeline
from recsys_cg.beam.spill import GroupByUser
from recsys_cg.beam.tallies import Tally, merge_tallies
from recsys_cg.config import Config, DatasetConfig
from recsys_cg.data.content import FeatureSet
from recsys_cg.data.context import ContextSet
from recsys_cg.data.shards import Shard
from recsys_cg.data.splits import Windows, choose_windows
from recsys_cg.data.times import format_time
from recsys_cg.progress import say

__all__ = ["build_dataset"]

_EARLIEST_LIKELY_US = 315_532_800_000_000  # 1980-01-01


def build_dataset(
    config: Config,
    directory: Path,
    *,
    runner: Sequence[str] = (),
    features: FeatureSet | None = None,
    context: ContextSet | None = None,
) -> dict[str, Any]:
    """Build the dataset of ``config`` in ``directory``; it is not sealed.

    The result does not depend on the number of workers, nor on the order of files and rows; the number of shards
    decides which users share a file, and nothing else. Workers share ``directory`` (one machine, or a shared file
    system): sorted groups of users lie below it while the job runs, and are removed at its end.

    Args:
        config: the whole project file; sources, ``[dataset]`` and ``[project]`` are read.
        directory: an existing, empty directory.
        runner: Beam flags, behind those of ``dataset.runner``; none: in this process.
        features: content features of an encoder that is kept, as for a refresh; None fits them anew.
        context: context features of an encoder that is kept; None fits them anew.

    Returns:
        what the manifest says of a dataset: rows in, kept, rejected and filtered by reason, windows, items by bucket,
        users, events, queries.

    Raises:
        ConfigError, SourceError: the sources are not what the configuration says; raised before any work where the
            first rows show it.
        TooManyRejectsError: more rows were refused than ``dataset.max_rejects`` allows.
        DataError: nothing is left to learn from.
        ConservationError: rows were lost or made up (a defect).
        EnvironmentMismatchError: a package for the source is not installed.
    """
    if context is not None:
        context.require_match(config.interactions.context)
    plan = plan_job(config)
    scratch = directory / SCRATCH
    scratch.mkdir()
    failures = Failures(scratch / "failures")
    try:
        with open_pipeline([*config.dataset.runner, *runner]) as pipeline:
            _Job(config, directory, plan, failures, features=features, context=context).attach(pipeline)
        failures.raise_first()
        info = finish(config, directory, scratch)
        _doubt_unit(config, info["windows"]["until_us"])
        return info
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _doubt_unit(config: Config, until_us: int) -> None:
    """Say so when all events lie before 1980: counts of ms, us or ns that are read as a smaller one end up there."""
    if until_us < _EARLIEST_LIKELY_US and config.dataset.test_from is None:
        unit = config.interactions.time_unit
        say(f"dataset: the newest event is of {format_time(until_us - 1)}; is interactions.time_unit = {unit!r} right?")


class _ChooseWindows(beam.DoFn):
    def __init__(self, config: Config, scratch: Path, failures: Failures) -> None:
        self._config, self._scratch, self._failures = config, scratch, failures

    def process(self, _: None, shards: list[int], tallies: list[Tally]) -> Iterator[Windows]:
        yield from self._failures.guard(lambda: self._choose(shards, tallies))

    def _choose(self, shards: list[int], tallies: list[Tally]) -> Iterator[Windows]:
        check_rejects("interactions", self._config.interactions.path, merge_tallies(tallies), self._config.dataset)
        times = [Shard.open_times(sorted_directory(self._scratch, shard)) for shard in sorted(shards)]
        windows = choose_windows(times, self._config.dataset)
        write_text_atomically(self._scratch / "windows.json", json.dumps(asdict(windows)))
        yield windows


class _CheckSource(beam.DoFn):
    def __init__(self, section: str, path: str, dataset: DatasetConfig, failures: Failures) -> None:
        self._section, self._path, self._dataset, self._failures = section, path, dataset, failures

    def process(self, _: None, tallies: list[Tally]) -> Iterator[None]:
        yield from self._failures.guard(lambda: self._check(merge_tallies(tallies)))

    def _check(self, merged: Tally) -> Iterator[None]:
        check_rejects(self._section, self._path, merged, self._dataset)
        yield from ()


def _as_is(table: pa.Table) -> pa.Table:
    return table


class _WriteTally(beam.DoFn):
    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, _: None, tallies: list[Tally]) -> Iterator[None]:
        write_text_atomically(self._path, json.dumps(merge_tallies(tallies), ensure_ascii=False))
        yield from ()


class _Job:
    """The pipeline of one dataset; each method attaches one part."""

    def __init__(
        self,
        config: Config,
        directory: Path,
        plan: Plan,
        failures: Failures,
        *,
        features: FeatureSet | None,
        context: ContextSet | None,
    ) -> None:
        self._config, self._directory, self._plan, self._failures = config, directory, plan, failures
        self._features, self._context = features, context
        self._scratch = directory / SCRATCH

    def attach(self, pipeline: beam.Pipeline) -> None:
        """Attach the whole job."""
        start = pipeline | "Start" >> beam.Create([None])
        catalogue, catalogue_tallies = self._read_catalogue(pipeline, start)
        windows, shards, tallies = self._read_interactions(pipeline, start, catalogue)
        frequent = self._find_frequent(start, shards, windows)
        assembled = self._assemble(start, shards, catalogue, windows, frequent)
        impressions, impression_tallies = self._write_impressions(pipeline, start, windows, assembled)
        context = self._fit_context(start, shards, windows, frequent)
        writer = WriteHistories(self._config, self._directory, self._failures)
        written = shards | "WriteHistories" >> beam.ParDo(
            writer, windows, assembled, impressions, **frequent, **context
        )
        counted = {"interactions": tallies, "items": catalogue_tallies, "written": written}
        for name, parts in {**counted, **impression_tallies}.items():
            path = self._scratch / f"{name}.json"
            _ = start | f"WriteTally-{name}" >> beam.ParDo(_WriteTally(path), beam.pvalue.AsList(parts))

    def _read_catalogue(self, pipeline: beam.Pipeline, start: Any) -> tuple[Any, Any]:
        items = self._config.items
        if items is None:
            merged = start | "NoCatalogue" >> beam.ParDo(MergeCatalogue(self._failures), []).with_outputs(
                TALLY, main="main"
            )
            return merged["main"], merged[TALLY]
        cleaned = (
            pipeline
            | "ListCatalogue" >> beam.Create(self._plan.items)
            | "ReadCatalogue" >> ReadBlocks(self._config.dataset.block_rows, self._failures)
            | "CleanCatalogue"
            >> beam.ParDo(CleanCatalogue(items, self._failures)).with_outputs(REJECTS, TALLY, main="main")
        )
        self._write_rejects("items", cleaned[REJECTS])
        merged = start | "MergeCatalogue" >> beam.ParDo(
            MergeCatalogue(self._failures), beam.pvalue.AsList(cleaned["main"])
        ).with_outputs(TALLY, main="main")
        tallies = (cleaned[TALLY], merged[TALLY]) | "JoinCatalogueTallies" >> beam.Flatten()
        self._check(start, "items", items.path, cleaned[TALLY])
        return merged["main"], tallies

    def _read_interactions(self, pipeline: beam.Pipeline, start: Any, catalogue: Any) -> tuple[Any, Any, Any]:
        config = self._config
        known = {}
        if config.dataset.unknown_items == "reject" and config.items is not None:
            known["catalogue"] = beam.pvalue.AsSingleton(
                catalogue | "CatalogueIds" >> beam.Map(catalogue_ids).with_output_types(pa.Table)
            )
        cleaned = (
            pipeline
            | "ListInteractions" >> beam.Create(self._plan.interactions)
            | "ReadInteractions" >> ReadBlocks(config.dataset.block_rows, self._failures)
            | "CleanInteractions"
            >> beam.ParDo(CleanInteractions(config.interactions, config.dataset, self._failures), **known).with_outputs(
                REJECTS, TALLY, main="main"
            )
        )
        self._write_rejects("interactions", cleaned[REJECTS])
        built = cleaned["main"] | "BuildShards" >> BuildShards(config.interactions, config.dataset, self._scratch)
        choose = _ChooseWindows(config, self._scratch, self._failures)
        sides = beam.pvalue.AsList(built), beam.pvalue.AsList(cleaned[TALLY])
        windows = beam.pvalue.AsList(start | "ChooseWindows" >> beam.ParDo(choose, *sides))
        cap = CapByWindow(config.interactions, config.dataset, self._scratch)
        capped = built | "CapByWindow" >> beam.ParDo(cap, windows).with_outputs(TALLY, main="shards")
        return windows, capped["shards"], (cleaned[TALLY], capped[TALLY]) | "JoinTallies" >> beam.Flatten()

    def _write_impressions(
        self, pipeline: beam.Pipeline, start: Any, windows: Any, assembled: Any
    ) -> tuple[Any, dict[str, Any]]:
        section, dataset = self._config.impressions, self._config.dataset
        if section is None:
            return [], {}
        cleaned = (
            pipeline
            | "ListImpressions" >> beam.Create(self._plan.impressions)
            | "ReadImpressions" >> ReadBlocks(dataset.block_rows, self._failures)
            | "CleanImpressions"
            >> beam.ParDo(CleanImpressions(section, self._failures)).with_outputs(REJECTS, TALLY, main="main")
        )
        self._write_rejects("impressions", cleaned[REJECTS])
        self._check(start, "impressions", section.path, cleaned[TALLY])
        writer = WriteImpressions(self._directory, dataset.max_user_events, self._failures)
        group = GroupByUser(self._scratch / "impressions", dataset.shards, _as_is)
        keyed = cleaned["main"] | "GroupImpressions" >> group
        written = keyed | "WriteImpressions" >> beam.ParDo(writer, windows, assembled)
        tallies = (cleaned[TALLY], written) | "JoinImpressionTallies" >> beam.Flatten()
        return beam.pvalue.AsList(written), {"impressions": tallies}

    def _check(self, start: Any, section: str, path: str, tallies: Any) -> None:
        check = _CheckSource(section, path, self._config.dataset, self._failures)
        _ = start | f"CheckRejects-{section}" >> beam.ParDo(check, beam.pvalue.AsList(tallies))

    def _write_rejects(self, name: str, rejects: Any) -> None:
        writer = WriteRejects(self._scratch / "rejects" / name)
        _ = rejects | f"WriteRejects-{name}" >> beam.ParDo(writer)

    def _find_frequent(self, start: Any, shards: Any, windows: Any) -> Mapping[str, Any]:
        least = self._config.dataset.min_item_events
        if least == 1:
            return {}
        counts = shards | "CountAllItems" >> beam.ParDo(
            CountItems(self._scratch, 1, self._failures), windows
        ).with_output_types(pa.Table)
        found = start | "FindFrequent" >> beam.Map(
            lambda _, tables: find_frequent(tables, least), beam.pvalue.AsList(counts)
        ).with_output_types(pa.Table)
        return {"frequent": beam.pvalue.AsSingleton(found)}

    def _fit_context(self, start: Any, shards: Any, windows: Any, frequent: Mapping[str, Any]) -> Mapping[str, Any]:
        configs, dataset = self._config.interactions.context, self._config.dataset
        if not configs:
            return {}
        counter = CountContext(configs, self._scratch, dataset.min_user_events, self._failures)
        counts = shards | "CountContext" >> beam.ParDo(counter, windows, **frequent).with_output_types(pa.Table)
        fit = FitContext(configs, self._directory, self._failures, self._context)
        return {"context": beam.pvalue.AsList(start | "FitContext" >> beam.ParDo(fit, beam.pvalue.AsList(counts)))}

    def _assemble(self, start: Any, shards: Any, catalogue: Any, windows: Any, frequent: Mapping[str, Any]) -> Any:
        counter = CountItems(self._scratch, self._config.dataset.min_user_events, self._failures)
        counts = shards | "CountItems" >> beam.ParDo(counter, windows, **frequent).with_output_types(pa.Table)
        assembled = start | "AssembleItems" >> beam.ParDo(
            AssembleItems(self._config, self._directory, self._failures, self._features),
            beam.pvalue.AsList(counts),
            beam.pvalue.AsList(catalogue),
            windows,
            beam.pvalue.AsList(shards),
        )
        return beam.pvalue.AsList(assembled)
