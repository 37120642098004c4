from __future__ import annotations

import numpy as np
import pyarrow as pa

from recsys_cg.evaluation.ragged import Ragged


def column(*lists: list[int] | None) -> pa.Table:
    return pa.table({"x": pa.array(lists, pa.list_(pa.int32()))})


def test_a_list_column_is_read_whole_sliced_and_chunked() -> None:
    table = column([1, 2], [], None, [3])
    ragged = Ragged.from_column(table, "x")
    assert ragged.values.tolist() == [1, 2, 3]
    assert ragged.lengths.tolist() == [2, 0, 0, 1]
    assert ragged.owners.tolist() == [0, 0, 3]
    assert Ragged.from_column(table.slice(3, 1), "x").values.tolist() == [3]
    assert Ragged.from_column(pa.concat_tables([table, table]), "x").offsets.tolist() == [0, 2, 2, 2, 3, 5, 5, 5, 6]


def test_an_empty_table_gives_no_lists() -> None:
    ragged = Ragged.from_column(column().slice(0, 0), "x")
    assert ragged.rows == 0
    assert ragged.values.tolist() == []


def test_lists_are_cut_chosen_and_returned_to_arrow() -> None:
    ragged = Ragged.from_column(column([1, 2, 3], [4], []), "x")
    assert ragged.positions_from_end.tolist() == [2, 1, 0, 0]
    assert ragged.last(2).to_arrow().to_pylist() == [[2, 3], [4], []]
    assert ragged.keep(np.array([True, False, True, False])).to_arrow().to_pylist() == [[1, 3], [], []]
    assert ragged.take(np.array([2, 0, 0])).to_arrow().to_pylist() == [[], [1, 2, 3], [1, 2, 3]]
    assert ragged.slice(1, 3).to_arrow().to_pylist() == [[4], []]
    assert [part.tolist() for part in ragged.split()] == [[1, 2, 3], [4], []]
