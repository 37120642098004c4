"""What is asked for at the moment: the protocol of a source of it, and the one that reads Redis.

Keys and values, for whoever writes them: ``recsys-cg:trending`` is a sorted set of item ids with their interactions as
scores, which fade by the half-life of ``index.trend_half_life_hours``. Stream processors add each interaction, and one
of them lets all fade once a minute by ``2 ** (-minutes since the last time / half-life in minutes)``, 0.9659 where that
is 20, and drops what is next to nothing::

    ZINCRBY recsys-cg:trending 1 item-7
    ZUNIONSTORE recsys-cg:trending 1 recsys-cg:trending WEIGHTS 0.9659
    ZREMRANGEBYSCORE recsys-cg:trending -inf (0.0625

Fading twice, or not at all, nobody notices: that one keeps the time at which it did it last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import ArtifactCorruptError
from recsys_cg.serving.live import connect, without_password
from recsys_cg.trends import LEAST_TRENDING, MOST_TRENDING

__all__ = ["RedisTrends", "TrendRule", "Trending", "Trends", "read_trend_rule"]

_logger = logging.getLogger(__name__)
_KEY = b"recsys-cg:trending"
_NOW_US = 60_000_000
_STALE_S = 300.0
_LARGEST = 2**53
_LARGEST_BONUS = 2.0
_LONGEST_HALF_LIFE_HOURS = 24 * 366


@dataclass(frozen=True, eq=False)
class Trending:
    """Items with their interactions as they have faded.

    Attributes:
        item_ids: distinct.
        counts: float64 [items], each `LEAST_TRENDING` at least.
    """

    item_ids: Sequence[str]
    counts: NDArray[np.float64]


class TrendRule(NamedTuple):
    """How a release ranks what was asked for of late.

    Attributes:
        half_life_hours: by which interactions fade, above 0.
        bonus: times ``log(1 + interactions)``, 0 to 2.
    """

    half_life_hours: float
    bonus: float

    @property
    def settings(self) -> dict[str, float]:
        """The rule as a report shows it."""
        return {"trend_half_life_hours": self.half_life_hours, "trend_bonus": self.bonus}


def read_trend_rule(recorded: object, path: Path) -> TrendRule | None:
    """Read what a release's manifest says; None where it says nothing.

    Raises:
        ArtifactCorruptError: it is no such rule; ``path`` is the manifest's.
    """
    if recorded is None:
        return None
    try:
        rule = TrendRule(float(recorded["half_life_hours"]), float(recorded["bonus"]))  # type: ignore[index]
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise ArtifactCorruptError(f"{path}: info.trends is {recorded!r}") from error
    if not 0.0 < rule.half_life_hours <= _LONGEST_HALF_LIFE_HOURS or not 0.0 <= rule.bonus <= _LARGEST_BONUS:
        raise ArtifactCorruptError(
            f"{path}: info.trends is {recorded!r}; half_life_hours of up to a year and a bonus of 0 to 2 are read"
        )
    return rule


class Trends(Protocol):
    """Tells what is asked for; called by lookups, so it waits for nothing and never raises."""

    def at(self, at_us: int) -> Trending | None:
        """Return what trends at a time, microseconds UTC; None where that is not known."""


class RedisTrends:
    """What trends, from Redis or what speaks its protocol.

    `refresh` reads, by one thread or by many; `at` only hands out what was read last. When Redis does not answer, that
    goes on for five minutes. It is the trend of the present: of times more than a minute away nothing is known.

    Args:
        url: as of `recsys_cg.serving.live.RedisHistories`.
        timeout_s: for connecting and for the answer; above 0.
        observe: told an outcome: read, malformed, unavailable.
        clock: monotonic seconds; tests pass their own.

    Raises:
        ConfigError: the URL is of another kind.
        EnvironmentMismatchError: the Redis client is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 1.0,
        observe: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._errors = connect(url, timeout_s, key="serving.live_trends")
        self._where = without_password(url)
        self._observe, self._clock = observe, clock
        self._read: tuple[Trending, float] | None = None
        self._is_down = False

    def at(self, at_us: int) -> Trending | None:
        """See `Trends.at`."""
        read = self._read
        if read is None or self._clock() - read[1] > _STALE_S or abs(time.time_ns() // 1000 - at_us) > _NOW_US:
            return None
        return read[0]

    def close(self) -> None:
        """Close the connections; the next reading opens another."""
        self._client.close()

    def refresh(self) -> None:
        """Read what trends now; never raises."""
        try:
            found = self._client.zrevrangebyscore(
                _KEY, "+inf", LEAST_TRENDING, start=0, num=MOST_TRENDING, withscores=True
            )
        except self._errors as error:
            self._observe("unavailable")
            if not self._is_down:
                self._is_down = True
                _logger.error("trends at %s are not available: %s", self._where, error, extra={"trends": "down"})
            return
        if self._is_down:
            self._is_down = False
            _logger.info("trends at %s are available again", self._where, extra={"trends": "up"})
        kept = [(name, score) for name, score in found if score <= _LARGEST and _is_text(name)]
        self._observe("read" if len(kept) == len(found) else "malformed")
        names = [name.decode() for name, _ in kept]
        counts = np.array([score for _, score in kept], np.float64)
        before = self._read[0] if self._read is not None else None
        if before is not None and before.item_ids == names and np.array_equal(before.counts, counts):
            self._read = before, self._clock()
        else:
            self._read = Trending(names, counts), self._clock()


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
