"""Look at the sources before any work: what is plainly wrong is said at once."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from recsys_cg.config import Config, InteractionsConfig
from recsys_cg.data.catalogue import catalogue_columns
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


def plan_job(config: Config) -> Plan:
    """List the sources, check their columns, and read the first rows of the interactions.

    Raises:
        ConfigError: a filter or a time zone is wrong.
        SourceError: a source is missing, empty, damaged, lacks a column, or its times are plainly of another unit.
    """
    interactions = config.interactions
    check_zone(interactions.time_zone)
    columns = interaction_columns(interactions)
    reads = plan_reads(list_files(interactions.path, interactions.format), columns)
    _check_times(reads[0], interactions) if reads else None
    if not reads:
        raise SourceError(f"{interactions.path}: the source holds no rows")
    items: list[Read] = []
    if config.items is not None:
        check_zone(config.items.time_zone)
        items = plan_reads(list_files(config.items.path, config.items.format), catalogue_columns(config.items))
    return Plan(tuple(reads), tuple(items))


def _check_times(read: Read, config: InteractionsConfig) -> None:
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
        f"{example!r}; set interactions.time_unit to s, ms, us, ns or iso8601 as it fits"
    )
