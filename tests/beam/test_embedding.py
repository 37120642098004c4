from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.beam.embedding import embed_items
from recsys_cg.errors import DataError, NonFiniteError


class Doubling:
    """Embeds an item as (its number, twice its number)."""

    opened = 0

    def __init__(self, fault: str = "") -> None:
        type(self).opened += 1
        self._fault = fault

    def encode(self, ids: pa.Array, content: pa.Table) -> Any:
        if self._fault == "bad" and "7" in ids.to_pylist():
            raise NonFiniteError("item 7")
        numbers = np.array([float(name) for name in ids.to_pylist()], dtype=np.float32)
        assert content.column_names == ["f_n"]
        assert content["f_n"].to_pylist() == [[int(n)] for n in numbers]
        if self._fault == "short":
            numbers = numbers[:1]
        return np.stack([numbers, 2 * numbers], axis=1), numbers[:, None]


def _items(count: int) -> pa.Table:
    return pa.table(
        {
            "item_row": list(range(count)),
            "item_id": [str(n) for n in range(count)],
            "f_n": pa.array([[n] for n in range(count)], pa.list_(pa.int32())),
        }
    )


def test_a_small_catalogue_is_embedded_without_a_job() -> None:
    vectors, history = embed_items(_items(3), Doubling)
    assert vectors.tolist() == [[0, 0], [1, 2], [2, 4]]
    assert history.tolist() == [[0], [1], [2]]


def test_blocks_come_back_in_the_order_of_the_rows_from_one_encoder() -> None:
    Doubling.opened = 0
    vectors, history = embed_items(_items(23), Doubling, block_rows=5)
    assert vectors[:, 0].tolist() == history[:, 0].tolist() == list(range(23))
    assert Doubling.opened == 1


def test_an_encoders_error_comes_through_as_itself() -> None:
    with pytest.raises(NonFiniteError, match="item 7"):
        embed_items(_items(23), partial(Doubling, "bad"), block_rows=5)


def test_a_wrong_number_of_vectors_and_no_items_are_refused() -> None:
    with pytest.raises(DataError, match="1 and 1 vectors for 3 items"):
        embed_items(_items(3), partial(Doubling, "short"))
    with pytest.raises(DataError, match="no items"):
        embed_items(_items(0), Doubling)
