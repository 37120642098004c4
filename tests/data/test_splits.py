from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest

from recsys_cg.config import DatasetConfig
from recsys_cg.data.splits import Windows, choose_windows, quantile_cut
from recsys_cg.errors import DataError


def _times(*parts: list[int]) -> list[np.ndarray]:
    return [np.array(part, dtype=np.int64) for part in parts]


@pytest.mark.parametrize(
    ("share", "expected"), [(Fraction(8, 10), 9), (Fraction(79, 100), 8), (Fraction(81, 100), 9), (Fraction(1), 11)]
)
def test_the_cut_is_the_smallest_time_before_which_the_whole_share_lies(share: Fraction, expected: int) -> None:
    assert quantile_cut(_times([1, 3, 5, 7, 9], [2, 4, 6, 8, 10]), share) == expected


def test_events_of_one_instant_stay_together() -> None:
    assert quantile_cut(_times([1, 5, 5, 5, 5, 9]), Fraction(1, 2)) == 6


def test_the_cut_does_not_depend_on_how_events_are_spread_over_shards() -> None:
    times = np.sort(np.random.default_rng(3).integers(0, 10**15, 1_001))
    spread = [np.sort(times[start::7]) for start in range(7)]
    for share in (Fraction(1, 3), Fraction(8, 10), Fraction(999, 1000)):
        expected = int(times[int(float(share) * 1_001) - 1]) + 1
        assert quantile_cut([times], share) == quantile_cut([*spread, times[:0]], share) == expected


def test_shares_are_decimal_numbers() -> None:
    config = DatasetConfig(validation_fraction=0.1, test_fraction=0.2)
    assert choose_windows(_times(list(range(10))), config) == Windows(0, 7, 8, 10)


def test_a_window_may_be_empty() -> None:
    config = DatasetConfig(validation_fraction=0.0, test_fraction=0.5)
    assert choose_windows(_times([0, 1, 2, 3]), config) == Windows(0, 2, 2, 4)
    config = DatasetConfig(validation_fraction=0.5, test_fraction=0.0)
    assert choose_windows(_times([0, 1, 2, 3]), config) == Windows(0, 2, 4, 4)


def _instant(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_declared_instants_win_and_the_end_defaults_to_the_last_event() -> None:
    config = DatasetConfig(validation_from=_instant(2), test_from=_instant(3))
    assert choose_windows(_times([0, 9_000_000]), config) == Windows(0, 2_000_000, 3_000_000, 9_000_001)
    config = DatasetConfig(validation_from=_instant(2), test_from=_instant(3), test_until=_instant(4))
    assert choose_windows(_times([0]), config) == Windows(0, 2_000_000, 3_000_000, 4_000_000)


def test_nothing_to_learn_from_is_an_error_that_names_the_range() -> None:
    config = DatasetConfig(validation_from=_instant(1), test_from=_instant(2))
    with pytest.raises(DataError, match=r"begins 1970-01-01T00:00:01.*data run from 1970-01-01T00:00:05"):
        choose_windows(_times([5_000_000]), config)
    with pytest.raises(DataError, match="no interaction is left"):
        choose_windows(_times([]), config)
