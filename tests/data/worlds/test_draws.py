from __future__ import annotations

import numpy as np
import pytest

from recsys_cg.data.worlds.draws import Shares


def test_a_point_is_found_in_the_interval_that_covers_it() -> None:
    shares = Shares(np.array([1.0, 0.0, 2.0, 0.5]))
    assert shares.find(np.array([0.0, 0.999, 1.0, 2.999, 3.0, 3.499])).tolist() == [0, 0, 2, 2, 3, 3]
    assert shares.total == 3.5


def test_intervals_of_no_width_at_the_ends_are_never_found() -> None:
    shares = Shares(np.array([0.0, 0.0, 1.0, 0.0]))
    assert set(shares.draw(1000, np.random.default_rng(0)).tolist()) == {2}
    assert shares.find(np.array([0.0])).tolist() == [2]


@pytest.mark.parametrize("count", [1, 2, 17, 5000])
@pytest.mark.parametrize("exponent", [0.0, -1.0, -3.0])
def test_it_agrees_with_binary_search(count: int, exponent: float) -> None:
    rng = np.random.default_rng(count)
    weights = (rng.permutation(count) + 1.0) ** exponent
    shares = Shares(weights)
    edges = np.cumsum(weights)
    points = np.concatenate([rng.random(2000) * edges[-1], np.append(0.0, edges[:-1])])
    np.testing.assert_array_equal(shares.find(points), np.searchsorted(edges, points, side="right"))
