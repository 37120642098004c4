"""Run a simulated world and write its log, its catalogue and its truth."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.artifacts import write_atomically, write_text_atomically
from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.exposure import Slates, World, enter_epoch, make_world, show_slates
from recsys_cg.data.worlds.parts import Parts, write_parts
from recsys_cg.data.worlds.project import render_project
from recsys_cg.data.worlds.seeds import stream
from recsys_cg.data.worlds.truth import write_truth
from recsys_cg.errors import ConfigError, DataError
from recsys_cg.progress import meter

__all__ = ["simulate_world"]

_CHUNK_SLOTS = 160_000
_CHUNKS_WAITING = 4
_PILOT_EPOCHS = 5
_PILOT_SLATES = 4096

events_schema: Final = pa.schema(
    [("user_id", pa.string()), ("item_id", pa.string()), ("timestamp", pa.int64()), ("event", pa.string())]
)
impressions_schema: Final = pa.schema(
    [
        ("user_id", pa.string()),
        ("item_id", pa.string()),
        ("timestamp", pa.int64()),
        ("position", pa.int8()),
        ("policy", pa.string()),
        ("propensity", pa.float64()),
        ("policy_propensity", pa.float64()),
        ("random", pa.bool_()),
        ("clicked", pa.bool_()),
    ]
)


def simulate_world(directory: Path, config: WorldConfig | None = None) -> dict[str, Any]:
    """Simulate a world and write it into ``directory``, whole or not at all.

    Files: ``events/`` (user_id, item_id, timestamp, event: ``click`` or ``purchase``), ``impressions/`` (the same
    keys, position from 1, policy, propensity, policy_propensity, random, clicked), ``items.parquet`` (item_id,
    title, category, tags separated by ``|``, price, available_from, available_until, and dense if asked for),
    ``truth/`` (read by `Truth`), ``world.json`` (parameters, counts, the function of relevance) and
    ``project.toml`` (a project file for this world). Times are milliseconds since the Unix epoch; an event's is
    when it was clicked, an impression's when its slate was shown, up to 30 s before. Epochs are written in shuffled
    order and rows within an epoch are not sorted by anything.

    What the propensities are the probabilities of is said in `recsys_cg.data.worlds.exposure`. Rows and their order
    depend on ``config`` alone, without ``part_rows`` and ``row_group_rows``. Memory grows with users and items
    (factors), not with events.

    Args:
        directory: must not exist, or be empty.
        config: the world's parameters; default: `WorldConfig()`.

    Returns:
        What ``world.json`` holds.

    Raises:
        DataError: ``directory`` is not empty or cannot be written.
        ConfigError: nobody clicks anything in such a world.
    """
    config = config or WorldConfig()
    if directory.exists() and not (directory.is_dir() and next(directory.iterdir(), None) is None):
        raise DataError(f"{directory} exists and is not an empty directory: choose another place for the world")
    try:
        with write_atomically(directory) as temporary:
            return _write_world(temporary, config)
    except OSError as error:
        raise DataError(f"the world cannot be written to {directory}: {error}") from error


def _write_world(directory: Path, config: WorldConfig) -> dict[str, Any]:
    world = make_world(config)
    pq.write_table(world.catalogue.table, directory / "items.parquet")
    write_truth(directory, config, world.catalogue, world.population)
    counts = _write_log(directory, world)
    description = {
        "schema": 1,
        "config": config.model_dump(mode="json"),
        "counts": counts,
        "examination": config.examination.tolist(),
        "relevance": "1 / (1 + exp(-(relevance_bias + relevance_scale * <user factors, item factors> + quality)))",
    }
    write_text_atomically(directory / "world.json", json.dumps(description, indent=1, ensure_ascii=False) + "\n")
    write_text_atomically(directory / "project.toml", render_project(config))
    return description


def _write_log(directory: Path, world: World) -> dict[str, int]:
    """Simulate chunks and write them; a thread writes while the next chunks are drawn."""
    sizes = {"part_rows": world.config.part_rows, "row_group_rows": world.config.row_group_rows}
    slates = 0
    with ExitStack() as stack:
        events = stack.enter_context(write_parts(directory / "events", events_schema, **sizes))
        shown = stack.enter_context(write_parts(directory / "impressions", impressions_schema, **sizes))
        progress = stack.enter_context(meter("Simulating", total=world.config.events, unit="events"))
        writer = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        waiting: deque[Future[None]] = deque()
        for chunk, is_logged in _simulate(world):
            slates += len(chunk.users)
            if len(waiting) == _CHUNKS_WAITING:
                waiting.popleft().result()
            waiting.append(writer.submit(_write_chunk, world, chunk, is_logged, events, shown))
            progress.advance(int(chunk.is_clicked.sum()))
        for written in waiting:
            written.result()
    return {
        "slates": slates,
        "shown": slates * world.config.positions,
        "impressions": shown.rows,
        "events": events.rows,
    }


def _simulate(world: World) -> Iterator[tuple[Slates, NDArray[np.bool_]]]:
    """Give chunk after chunk of slates, and which of them are logged; epochs come in shuffled order."""
    config = world.config
    total = _count_slates(world)
    most = max(1, _CHUNK_SLOTS // config.positions)
    for number in stream(config.seed, "order").permutation(config.epochs).tolist():
        count = (number + 1) * total // config.epochs - number * total // config.epochs
        epoch = enter_epoch(world, number)
        for place, start in enumerate(range(0, count, most)):
            slates = show_slates(world, epoch, min(most, count - start), stream(config.seed, "slates", number, place))
            draws = stream(config.seed, "logged", number, place).random(len(slates.users))
            yield slates, draws < config.impressions


def _count_slates(world: World) -> int:
    """Return how many slates give the expected number of events, by a pilot of a few epochs that is thrown away."""
    config = world.config
    clicks = slates = 0
    for number in np.unique(np.linspace(0, config.epochs - 1, _PILOT_EPOCHS).astype(int)).tolist():
        pilot = show_slates(world, enter_epoch(world, number), _PILOT_SLATES, stream(config.seed, "pilot", number))
        clicks += int(pilot.is_clicked.sum())
        slates += _PILOT_SLATES
    if not clicks:
        raise ConfigError(f"nobody clicks in this world: raise relevance_bias, which is {config.relevance_bias}")
    return math.ceil(config.events * slates / clicks)


def _write_chunk(world: World, slates: Slates, is_logged: NDArray[np.bool_], events: Parts, shown: Parts) -> None:
    events.add(_take_events(world, slates))
    if is_logged.any():
        shown.add(_take_impressions(world, slates, is_logged))


def _take_events(world: World, slates: Slates) -> pa.Table:
    slate, slot = np.nonzero(slates.is_clicked)
    kinds = pa.DictionaryArray.from_arrays(
        pa.array(slates.is_purchase[slate, slot].astype(np.int8)), ["click", "purchase"]
    )
    columns = [
        world.population.ids.take(pa.array(slates.users[slate])),
        world.catalogue.ids.take(pa.array(slates.items[slate, slot])),
        pa.array(slates.click_ms[slate, slot]),
        kinds.cast(pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=events_schema)


def _take_impressions(world: World, slates: Slates, is_logged: NDArray[np.bool_]) -> pa.Table:
    positions = world.config.positions
    rows = int(is_logged.sum())
    is_random = slates.is_random[is_logged].ravel()
    policies = pa.DictionaryArray.from_arrays(pa.array(is_random.astype(np.int8)), ["incumbent", "uniform"])
    columns = [
        world.population.ids.take(pa.array(np.repeat(slates.users[is_logged], positions))),
        world.catalogue.ids.take(pa.array(slates.items[is_logged].ravel())),
        pa.array(np.repeat(slates.time_ms[is_logged], positions)),
        pa.array(np.tile(np.arange(1, positions + 1, dtype=np.int8), rows)),
        policies.cast(pa.string()),
        pa.array(slates.propensity[is_logged].ravel()),
        pa.array(slates.policy_propensity[is_logged].ravel()),
        pa.array(is_random),
        pa.array(slates.is_clicked[is_logged].ravel()),
    ]
    return pa.Table.from_arrays(columns, schema=impressions_schema)
