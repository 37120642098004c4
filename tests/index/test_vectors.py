"""Vectors and ids that are refused before native code, by the rows at fault."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.errors import IndexBuildError
from recsys_cg.index.vectors import check_vectors, refuse_duplicate_ids
from tests.contracts.retriever import make_vectors


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "row 3 (NaN)"),
        (np.inf, "row 3 (infinite)"),
        (-np.inf, "row 3 (infinite)"),
        (1e38, "row 3 (norm 1e+38)"),
    ],
)
def test_a_broken_value_names_its_row(value: float, words: str) -> None:
    vectors = make_vectors()
    vectors[3, 1] = value
    with pytest.raises(IndexBuildError) as error:
        check_vectors(vectors)
    assert words in str(error.value)
    assert "1 of 400 vectors" in str(error.value)


def test_zero_and_unnormalised_rows_are_counted_and_the_first_are_named() -> None:
    vectors = make_vectors()
    vectors[10:20] = 0.0
    vectors[5] *= 2.0
    with pytest.raises(IndexBuildError, match=r"11 of 400 .* row 5 \(norm 2\), row 10 \(all zero\).*, \.\.\.;"):
        check_vectors(vectors)


def test_a_row_behind_the_first_block_is_named_by_its_own_number() -> None:
    vectors = np.tile(np.float32([1.0, 0.0]), (70_000, 1))
    vectors[69_999] = np.nan
    with pytest.raises(IndexBuildError, match=r"row 69999 \(NaN\)"):
        check_vectors(vectors)


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros(3, dtype=np.float32),
        np.zeros((3, 0), dtype=np.float32),
        np.eye(3),
        np.asfortranarray(make_vectors()),
    ],
)
def test_another_shape_type_or_order_is_refused(vectors: np.ndarray) -> None:
    with pytest.raises(IndexBuildError):
        check_vectors(vectors)


def test_rounding_of_a_norm_is_let_through() -> None:
    check_vectors(make_vectors() * np.float32(1.0005))
    check_vectors(np.empty((0, 4), dtype=np.float32))


def test_repeated_ids_are_named_with_their_rows() -> None:
    with pytest.raises(IndexBuildError, match=r"2 item ids repeat: 'é' in rows 1 and 2, 'a' in rows 0 and 4"):
        refuse_duplicate_ids(["a", "é", "é", "b", "a"])
    refuse_duplicate_ids(["a", "A", "", " "])
    refuse_duplicate_ids([])
