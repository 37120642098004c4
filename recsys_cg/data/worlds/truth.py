"""The truth of a simulated world: the probability that a user who looks at an item clicks it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError

from recsys_cg.data.worlds.catalogue import Catalogue
from recsys_cg.data.worlds.config import WorldConfig
from recsys_cg.data.worlds.population import Population
from recsys_cg.errors import DataError

__all__ = ["Truth", "write_truth"]


def write_truth(directory: Path, config: WorldConfig, catalogue: Catalogue, population: Population) -> None:
    """Write ``truth/users.parquet`` and ``truth/items.parquet``: factors, quality, popularity, availability."""
    (directory / "truth").mkdir()
    users = pa.table({"user_id": population.ids, "factors": _as_lists(population.factors)})
    items = pa.table(
        {
            "item_id": catalogue.ids,
            "factors": _as_lists(catalogue.factors),
            "quality": catalogue.quality,
            "popularity": catalogue.popularity,
            "first_epoch": catalogue.first_epoch,
            "end_epoch": np.minimum(catalogue.end_epoch, config.epochs),
        }
    )
    pq.write_table(users, directory / "truth" / "users.parquet")
    pq.write_table(items, directory / "truth" / "items.parquet")


def _as_lists(factors: NDArray[np.float32]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(factors.ravel()), factors.shape[1])


@dataclass(frozen=True)
class Truth:
    """Read a world's truth.

    Attributes:
        config: the world's parameters.
        user_ids, item_ids: string arrays.
        popularity: float64 [items], the incumbent's weights, in the order of ``item_ids``.

    Example:
        truth = Truth.open(Path("world"))
        truth.relevance(["u00007"], ["i0001", "i0002"])  # float64 [1, 2]
    """

    config: WorldConfig
    user_ids: pa.StringArray
    item_ids: pa.StringArray
    popularity: NDArray[np.float64]
    _user_factors: NDArray[np.float64]
    _item_factors: NDArray[np.float64]
    _quality: NDArray[np.float64]
    _epochs: tuple[NDArray[np.int64], NDArray[np.int64]]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read the truth below ``directory``, which `simulate_world` wrote.

        Raises:
            DataError: a file is missing or damaged.
        """
        try:
            description = json.loads((directory / "world.json").read_text(encoding="utf-8"))
            config = WorldConfig.model_validate(description["config"])
            users = pq.read_table(directory / "truth" / "users.parquet").combine_chunks()
            items = pq.read_table(directory / "truth" / "items.parquet").combine_chunks()
        except (OSError, ValueError, KeyError, TypeError, ValidationError, pa.ArrowException) as error:
            raise DataError(f"{directory} holds no whole world: {error}") from error
        return cls(
            config=config,
            user_ids=users["user_id"].chunk(0),
            item_ids=items["item_id"].chunk(0),
            popularity=items["popularity"].to_numpy(),
            _user_factors=_as_matrix(users["factors"], config.factors),
            _item_factors=_as_matrix(items["factors"], config.factors),
            _quality=items["quality"].to_numpy().astype(np.float64),
            _epochs=(items["first_epoch"].to_numpy(), items["end_epoch"].to_numpy()),
        )

    def relevance(self, users: Sequence[str], items: Sequence[str]) -> NDArray[np.float64]:
        """Return P(click | looked at) of every pair, float64 [users, items], each in (0, 1).

        Raises:
            DataError: an id is not of this world.
        """
        columns = self._rows_of(items, self.item_ids, "item")
        return self._score(self._rows_of(users, self.user_ids, "user"), columns)

    def relevance_of_pairs(self, users: Sequence[str], items: Sequence[str]) -> NDArray[np.float64]:
        """Return P(click | looked at) of ``users[n]`` and ``items[n]``, float64 [n].

        Raises:
            DataError: an id is not of this world, or the lengths differ.
        """
        if len(users) != len(items):
            raise DataError(f"pairs need as many users as items, not {len(users)} and {len(items)}")
        rows = self._rows_of(users, self.user_ids, "user")
        columns = self._rows_of(items, self.item_ids, "item")
        affinity = np.einsum("nk,nk->n", self._user_factors[rows], self._item_factors[columns])
        return self._squash(affinity, columns)

    def best_items(self, user: str, k: int, *, at: datetime | None = None) -> list[str]:
        """Return the ids of the ``k`` items that ``user`` truly likes most, best first, ties by item_id.

        Args:
            user: an id of this world.
            k: how many; fewer come when fewer are there.
            at: only what is there at this time (with a zone); None: all items.

        Raises:
            DataError: the user is not of this world.
        """
        columns = np.arange(len(self.item_ids))
        if at is not None:
            epoch = int((at.timestamp() * 1000 - self.config.start_ms) // self.config.epoch_ms)
            epoch = min(max(epoch, 0), self.config.epochs - 1)
            columns = columns[(self._epochs[0] <= epoch) & (epoch < self._epochs[1])]
        scores = self._score(self._rows_of([user], self.user_ids, "user"), columns)[0]
        best = columns[np.argsort(-scores, kind="stable")[:k]]
        ids: list[str] = self.item_ids.take(pa.array(best)).to_pylist()
        return ids

    def _rows_of(self, ids: Sequence[str], known: pa.StringArray, what: str) -> NDArray[np.int64]:
        found = pc.index_in(pa.array(ids, pa.string()), value_set=known)
        if found.null_count:
            strange = ids[found.is_null().index(True).as_py()]
            raise DataError(f"{what} {strange!r} is not of this world")
        rows: NDArray[np.int64] = found.to_numpy().astype(np.int64)
        return rows

    def _score(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._squash(self._user_factors[rows] @ self._item_factors[columns].T, columns)

    def _squash(self, affinity: NDArray[np.float64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
        logits = self.config.relevance_bias + self.config.relevance_scale * affinity + self._quality[columns]
        chance: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -logits))
        return chance


def _as_matrix(column: pa.ChunkedArray, width: int) -> NDArray[np.float64]:
    values = column.chunk(0).flatten().to_numpy()
    matrix: NDArray[np.float64] = values.reshape(-1, width).astype(np.float64)
    return matrix
