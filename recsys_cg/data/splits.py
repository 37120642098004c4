"""Global time windows, half-open: train up to ``validation_from``, validation to ``test_from``, test to ``until``.

One instant cuts all users alike, so nothing that was learnt from can lie after what is asked (a split per user would
leak what others did later).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from recsys_cg.config import DatasetConfig
from recsys_cg.data.times import format_time
from recsys_cg.errors import DataError

__all__ = ["Windows", "choose_windows", "explicit_until", "quantile_cut"]


@dataclass(frozen=True)
class Windows:
    """The windows of a dataset, microseconds since the epoch; each ends where the next begins."""

    train_from_us: int
    validation_from_us: int
    test_from_us: int
    until_us: int

    @property
    def cuts(self) -> tuple[int, int]:
        """Times at which one window ends and the next begins."""
        return self.validation_from_us, self.test_from_us


def quantile_cut(times: Sequence[npt.NDArray[np.int64]], share: Fraction) -> int:
    """Return the smallest time before which, strictly, at least ``floor(share n)`` of the ``n`` events lie.

    That is the ``floor(share n)``-th smallest time (at least the first) plus one microsecond, so events of one instant
    stay together. Of MovieLens 1M, 80% gives all ratings up to second 975768738, 90% all up to 978133367.
    Found by bisection over values: memory is constant whatever the number of events, and the arrays may be
    memory-mapped.

    Args:
        times: sorted int64 arrays, at least one event in all.
        share: in (0, 1].

    Example:
        >>> quantile_cut([np.array([10, 20, 30, 40])], Fraction(1, 2))
        21
    """
    rank = max(math.floor(share * sum(len(part) for part in times)), 1)
    filled = [part for part in times if len(part)]
    low, high = min(int(part[0]) for part in filled), max(int(part[-1]) for part in filled)
    while low < high:
        middle = (low + high) // 2
        if sum(int(np.searchsorted(part, middle, side="right")) for part in filled) >= rank:
            high = middle
        else:
            low = middle + 1
    return low + 1


def explicit_until(config: DatasetConfig) -> int | None:
    """Return the declared end of the test window in microseconds, or None; events at or after it are left out."""
    return None if config.test_until is None else _micros(config.test_until)


def choose_windows(times: Sequence[npt.NDArray[np.int64]], config: DatasetConfig) -> Windows:
    """Choose the windows: declared instants where given, else by shares of the events in time.

    With shares, ``validation_from`` is `quantile_cut` at 1 - validation_fraction - test_fraction, and ``test_from`` at
    1 - test_fraction. The shares are taken as the decimal numbers that were written, so 0.1 + 0.2 is 0.3.

    Args:
        times: sorted times of the kept events, int64 microseconds.
        config: the ``[dataset]`` section.

    Raises:
        DataError: there is no event at all, or none before the validation window.
    """
    filled = [part for part in times if len(part)]
    if not filled:
        raise DataError(
            "no interaction is left after cleaning and filters: see interactions.filters, interactions.event_weights "
            "and dataset.test_until"
        )
    first, last = min(int(part[0]) for part in filled), max(int(part[-1]) for part in filled)
    if config.validation_from is not None and config.test_from is not None:
        validation_from, test_from = _micros(config.validation_from), _micros(config.test_from)
        until = explicit_until(config) or max(last + 1, test_from)
    else:
        test, validation = Fraction(str(config.test_fraction)), Fraction(str(config.validation_fraction))
        validation_from = quantile_cut(filled, 1 - test - validation)
        test_from = quantile_cut(filled, 1 - test)
        until = max(last + 1, test_from)
    if validation_from <= first:
        raise DataError(
            f"no interaction lies before the validation window, which begins {format_time(validation_from)}: the data "
            f"run from {format_time(first)} to {format_time(last)}; check dataset.validation_from and the time unit"
        )
    return Windows(min(first, validation_from), validation_from, test_from, until)


def _micros(instant: datetime) -> int:
    return int(np.datetime64(instant.replace(tzinfo=None), "us").astype(np.int64))
