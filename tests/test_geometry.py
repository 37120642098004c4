"""Geometry figures against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsys_cg import geometry


def test_normalisation_gives_unit_rows_and_leaves_zero_alone() -> None:
    rows = geometry.l2_normalise(np.array([[3.0, 4.0], [0.0, 0.0], [1e30, 0.0]], dtype=np.float32))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]], rtol=1e-6)
    assert rows.dtype == np.float32


def test_alignment_of_opposite_unit_vectors_is_four_and_of_equal_ones_zero() -> None:
    x = np.array([[1.0, 0.0]])
    assert geometry.alignment(x, -x) == 4.0
    assert geometry.alignment(x, x) == 0.0


def test_uniformity_of_two_orthogonal_vectors_is_minus_t_times_two() -> None:
    assert geometry.uniformity(np.eye(2)) == pytest.approx(-4.0)
    assert geometry.uniformity(np.eye(2), t=1.0) == pytest.approx(-2.0)


def test_uniformity_of_equal_vectors_is_zero() -> None:
    assert geometry.uniformity(np.ones((5, 1))) == 0.0


def test_mean_pairwise_similarity_of_three_spread_directions_is_minus_half() -> None:
    angles = np.array([0.0, 2 * math.pi / 3, 4 * math.pi / 3])
    assert geometry.mean_pairwise_similarity(np.c_[np.cos(angles), np.sin(angles)]) == pytest.approx(-0.5)


def test_effective_rank_is_one_for_a_line_dim_for_an_orthonormal_basis_and_zero_for_nothing() -> None:
    assert geometry.effective_rank(np.tile([[0.6, 0.8]], (9, 1))) == pytest.approx(1.0)
    assert geometry.effective_rank(np.eye(7)) == pytest.approx(7.0)
    assert geometry.effective_rank(np.zeros((3, 2))) == 0.0


def test_effective_rank_of_known_singular_values() -> None:
    # singular values 3 and 1: shares 3/4 and 1/4
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert geometry.effective_rank(np.diag([3.0, 1.0])) == pytest.approx(expected)


def test_the_maximum_similarity_finds_the_one_duplicate() -> None:
    measured = geometry.measure_geometry(np.eye(3), np.eye(3), np.eye(3)[[0, 1, 2, 0]])
    assert measured.max_pairwise_similarity == 1.0
    assert measured.alignment == 0.0


@pytest.mark.parametrize("bad", [np.zeros((1, 2)), np.zeros((0, 2)), np.zeros(4)])
def test_too_few_rows_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        geometry.mean_pairwise_similarity(bad)
