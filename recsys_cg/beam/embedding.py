"""The embedding job: a catalogue becomes vectors, block by block."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from apache_beam.utils.shared import Shared

from recsys_cg.beam.failures import Failures
from recsys_cg.beam.parts import write_whole
from recsys_cg.beam.runner import open_pipeline
from recsys_cg.errors import DataError

__all__ = ["Encoder", "embed_items"]

Vectors = npt.NDArray[np.float32]


class Encoder(Protocol):
    """What embeds items; `recsys_cg.model.item_encoder.ItemEncoder` is one."""

    def encode(self, ids: pa.Array, content: pa.Table) -> tuple[Vectors, Vectors]:
        """Return vectors ``[n, d]`` and history vectors ``[n, h]`` of items, row for row."""


def embed_items(
    items: pa.Table,
    factory: Callable[[], Encoder],
    *,
    block_rows: int = 8_192,
    runner: Sequence[str] = (),
    scratch: Path | None = None,
) -> tuple[Vectors, Vectors]:
    """Embed ``items`` by a Beam job over blocks, each worker process opening one encoder and sharing it.

    A table of at most one block is embedded here, without a job. Vectors come back in the order of the rows, whatever
    the number of blocks and workers; an encoder must give an item the same vector in every block.

    Args:
        items: columns ``item_id`` and ``f_<name>``, one row an item.
        factory: opens the encoder; it is pickled to the workers, so it is a function of a module, or a partial of one.
        block_rows: items of a block.
        runner: Beam flags; none: in this process.
        scratch: directory that all workers share, for blocks and vectors; default: a temporary one, of this machine.

    Returns:
        float32 ``[n, d]`` and ``[n, h]``.

    Raises:
        DataError: there are no items, or the encoder gave another number of vectors than it got items.
        RecsysError: whatever the encoder raises of it.
    """
    if not len(items):
        raise DataError("the catalogue holds no items to embed")
    if len(items) <= block_rows and not runner:
        return _encode(factory(), items)
    folder = Path(tempfile.mkdtemp(prefix="embedding-", dir=scratch))
    try:
        failures = Failures(folder / "failures")
        starts = range(0, len(items), block_rows)
        _write_items(folder, items)
        with open_pipeline(runner) as pipeline:
            _ = (
                pipeline
                | "ListBlocks" >> beam.Create([(start, min(start + block_rows, len(items))) for start in starts])
                | "SpreadBlocks" >> beam.Reshuffle()
                | "EmbedBlock" >> beam.ParDo(_EmbedBlock(folder, factory, failures))
            )
        failures.raise_first()
        parts = [_read_part(folder, start) for start in starts]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _EmbedBlock(beam.DoFn):
    def __init__(self, folder: Path, factory: Callable[[], Encoder], failures: Failures) -> None:
        self._folder, self._factory, self._failures = folder, factory, failures
        self._shared = Shared()
        self._encoder: Any = None

    def setup(self) -> None:
        self._encoder = None

    def process(self, span: tuple[int, int]) -> Iterator[None]:
        yield from self._failures.guard(lambda: self._embed(*span))

    def _embed(self, start: int, end: int) -> Iterator[None]:
        if self._encoder is None:
            self._encoder = self._shared.acquire(self._factory)
        table = pa.ipc.open_file(pa.memory_map(str(self._folder / "items.arrow"))).read_all()
        vectors, history = _encode(self._encoder, table.slice(start, end - start))
        for name, values in (("vectors", vectors), ("history", history)):
            with write_whole(self._folder / f"{name}-{start}.npy", self._folder) as path, path.open("wb") as file:
                np.save(file, values)
        yield from ()


def _encode(encoder: Encoder, items: pa.Table) -> tuple[Vectors, Vectors]:
    content = items.select([name for name in items.column_names if name.startswith("f_")])
    vectors, history = encoder.encode(items.column("item_id").combine_chunks(), content)
    if len(vectors) != len(items) or len(history) != len(items):
        raise DataError(f"the encoder gave {len(vectors)} and {len(history)} vectors for {len(items)} items")
    return vectors, history


def _write_items(folder: Path, items: pa.Table) -> None:
    wanted = items.select([name for name in items.column_names if name == "item_id" or name.startswith("f_")])
    with pa.OSFile(str(folder / "items.arrow"), "wb") as file, pa.ipc.new_file(file, wanted.schema) as writer:
        writer.write_table(wanted)


def _read_part(folder: Path, start: int) -> tuple[Vectors, Vectors]:
    return np.load(folder / f"vectors-{start}.npy"), np.load(folder / f"history-{start}.npy")
