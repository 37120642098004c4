"""Look at the sources before any work: what is plainly wrong is said at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from recsys_cg.config import Config, ImpressionsConfig, InteractionsConfig, ItemsConfig
from recsys_cg.data.catalogue import catalogue_columns, nested_columns
from recsys_cg.data.impressions import impression_columns
from recsys_cg.data.interactions import interaction_columns
from recsys_cg.data.sources import Read, list_files, plan_reads, read_blocks
from recsys_cg.data.times import check_zone, is_absurd, parse_times
from recsys_cg.errors import SourceError

__all__ = ["Plan", "plan_job"]

_SNIFFED_ROWS = 1_000


@dataclass(frozen=True)
class Plan:
    """Pieces of the sources that workers read."""

    interactions: tuple[Read, ...]
    items: tuple[Read, ...] = ()
    impressions: tuple[Read, ...] = ()


def plan_job(config: Config) -> Plan:
    """List the sources, check their columns, and read the first rows of the interactions.

    Raises:
        ConfigError: a filter or a time zone is wrong.
        SourceError: a source is missing, empty, damaged, lacks a column, or its times are plainly of another unit.
    """
    for section in (config.interactions, config.items, config.impressions):
        if section is not None:
            check_zone(section.time_zone)
    interactions = _plan(config.interactions, interaction_columns(config.interactions))
    _check_times(interactions[0], config.interactions)
    items: tuple[Read, ...] = ()
    if config.items is not None:
        items = _plan(config.items, catalogue_columns(config.items), nested_columns(config.items))
    impressions = _plan(config.impressions, impression_columns(config.impressions)) if config.impressions else ()
    if config.impressions is not None:
        _check_times(impressions[0], config.impressions)
    return Plan(interactions, items, impressions)


def _plan(
    section: InteractionsConfig | ItemsConfig | ImpressionsConfig, columns: list[str], nested: Sequence[str] = ()
) -> tuple[Read, ...]:
    files = list_files(section.path, section.format, delimiter=section.delimiter, columns=section.columns)
    reads = tuple(plan_reads(files, columns, nested))
    if not reads:
        raise SourceError(f"{section.path}: the source holds no rows")
    return reads


def _check_times(read: Read, config: InteractionsConfig | ImpressionsConfig) -> None:
    block = next(read_blocks(read, _SNIFFED_ROWS), None)
    if block is None or not block.table.num_rows:
        return
    raw = block.table.column(config.time).combine_chunks().drop_null()
    times = parse_times(raw, config.time_unit, config.time_zone)
    if not len(raw) or pc.any(pc.invert(is_absurd(times.drop_null()))).as_py():
        return
    example = raw[0].as_py()
    raise SourceError(
        f"{read.file.path}: no time in column {config.time!r} can be read with time_unit = {config.time_unit!r}, e.g. "
        f"{example!r}; set time_unit to s, ms, us, ns, iso8601, or a pattern like '%m/%d/%Y %H:%M', as it fits"
    )
