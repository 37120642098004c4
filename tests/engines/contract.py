"""What every engine owes: both jobs give what they give in process, and an error comes through as itself."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from recsys_cg.beam.dataset import build_dataset
from recsys_cg.beam.embedding import embed_items
from recsys_cg.config import load_config
from recsys_cg.errors import NonFiniteError, TooManyRejectsError
from tests.beam.projects import read_dataset

__all__ = ["OVERRIDES", "EngineContract", "Projection"]

OVERRIDES = ["dataset.min_item_events=20", "dataset.unknown_items=reject", "serving.histories=true"]


class Projection:
    """Embeds items by sums of fixed random rows.

    Args:
        fault: an item that it refuses.
        elsewhere: a process that it refuses to run in.
    """

    def __init__(self, fault: str = "", elsewhere: int = 0) -> None:
        assert os.getpid() != elsewhere
        self._rows = np.random.default_rng(3).normal(size=(4096, 24)).astype(np.float32)
        self._fault = fault

    def encode(self, ids: pa.Array, content: pa.Table) -> tuple[Any, Any]:
        if self._fault in ids.to_pylist():
            raise NonFiniteError(f"item {self._fault}")
        sums = np.zeros((len(ids), 24), dtype=np.float32)
        for name in ("f_title", "f_category", "f_tags"):
            lists = content.column(name).combine_chunks()
            np.add.at(sums, np.asarray(pc.list_parent_indices(lists)), self._rows[np.asarray(pc.list_flatten(lists))])
        prices = content.column("f_price").combine_chunks()
        sums += np.asarray(prices.flatten()).reshape(len(ids), prices.type.list_size)[:, :1]
        return sums[:, :16], sums[:, 16:]


# Beam's pool of workers in the submitting process leaves the output of a worker that has ended to the collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning")
class EngineContract:
    """Inherit in a module whose fixture ``engine`` gives the flags that choose the engine, without its workers'."""

    def test_the_dataset_is_that_of_the_in_process_runner(
        self, engine: list[str], pool: list[str], project: Path, expected: tuple[Path, dict[str, Any]], tmp_path: Path
    ) -> None:
        config = load_config(project, [*OVERRIDES, "dataset.block_rows=3000"])
        info = build_dataset(config, tmp_path, runner=[*engine, *pool])
        assert info == expected[1]
        assert info["train_events"] > 10_000
        assert info["rows"]["filtered"]["min_item_events"] > 0
        tables = read_dataset(tmp_path)
        assert tables == read_dataset(expected[0])
        assert {name: len(rows) for name, rows in tables.items()}["impressions"] > 10_000
        assert len(tables["queries/test"]) == info["queries"]["test"] > 0
        assert not (tmp_path / ".scratch").exists()

    def test_the_vectors_are_those_of_the_in_process_runner(
        self, engine: list[str], loopback: list[str], expected: tuple[Path, dict[str, Any]], tmp_path: Path
    ) -> None:
        items = pq.read_table(expected[0] / "items.parquet")
        wanted = embed_items(items, Projection, block_rows=32)
        elsewhere = partial(Projection, elsewhere=os.getpid())
        found = embed_items(items, elsewhere, block_rows=32, runner=[*engine, *loopback], scratch=tmp_path)
        assert found[0].shape == (200, 16)
        assert np.array_equal(found[0], wanted[0])
        assert np.array_equal(found[1], wanted[1])
        assert not list(tmp_path.iterdir())

    @pytest.mark.slow
    def test_an_error_of_an_encoder_comes_through_as_itself(
        self, engine: list[str], pool: list[str], expected: tuple[Path, dict[str, Any]], tmp_path: Path
    ) -> None:
        items = pq.read_table(expected[0] / "items.parquet")
        item = items.column("item_id")[150].as_py()
        with pytest.raises(NonFiniteError, match=f"item {item}"):
            embed_items(items, partial(Projection, item), block_rows=32, runner=[*engine, *pool], scratch=tmp_path)

    @pytest.mark.slow
    def test_refused_rows_stop_the_dataset_job_by_their_own_error(
        self, engine: list[str], loopback: list[str], project: Path, tmp_path: Path
    ) -> None:
        cut = tmp_path / "items.parquet"
        items = pq.read_table(project.parent / "items.parquet")
        pq.write_table(items.slice(0, 100), cut)
        config = load_config(project, [*OVERRIDES, f"items.path={cut}"])
        directory = tmp_path / "dataset"
        directory.mkdir()
        with pytest.raises(TooManyRejectsError, match="unknown_item"):
            build_dataset(config, directory, runner=[*engine, *loopback])
