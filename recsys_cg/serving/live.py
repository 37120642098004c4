"""Histories that change while a release serves: the protocol of a source of them, and the one that reads Redis.

Keys and values, for whoever writes them: the key is ``recsys-cg:history:`` and the user id, the value a Redis list,
oldest event first. An element is an item id as it stands, or a JSON object ``{"item": id, "time": seconds since 1970 or
RFC 3339 text, "event": name}`` of which only ``item`` is needed; an item id that begins with ``{`` is written as an
object. So a stream processor appends and trims in one go::

    RPUSH recsys-cg:history:ann '{"item": "50", "time": 1790000000, "event": "view"}'
    LTRIM recsys-cg:history:ann -1000 -1
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from recsys_cg.errors import ConfigError, EnvironmentMismatchError, SearchError
from recsys_cg.serving.entries import HistoryEvent, parse_time

__all__ = ["UNAVAILABLE", "LiveHistories", "LiveHistory", "RedisHistories", "connect", "without_password"]

_logger = logging.getLogger(__name__)
_SCHEMES = ("redis", "rediss", "unix")
_PREFIX = "recsys-cg:history:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0


@dataclass(frozen=True)
class LiveHistory:
    """What a source holds of a user.

    Attributes:
        entries: the last events, oldest first; empty when the source knows nothing.
        is_available: False when the source could not be asked.
    """

    entries: Sequence[HistoryEvent] = ()
    is_available: bool = True


UNAVAILABLE = LiveHistory(is_available=False)
_UNKNOWN = LiveHistory()


class LiveHistories(Protocol):
    """Where fresh histories are read; called from the threads that look up, and never raises."""

    def get_many(self, user_ids: Sequence[str]) -> list[LiveHistory]:
        """Return what is known of each user, within a bounded time."""


class RedisHistories:
    """Histories in Redis, or in what speaks its protocol; safe to use from many threads.

    The users of a micro-batch are read in one round trip. When Redis does not answer within the timeout the answer is
    `UNAVAILABLE`, and Redis is left alone for half a second, then 1, 2, ... 8 s, so that its absence costs one
    lookup in many a timeout and the others nothing.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``unix://path``.
        timeout_s: for connecting and for each answer; above 0.
        most: events read of a user, the last ones; at least 1.
        observe: told an outcome and how many histories had it: found, absent, malformed, unavailable.
        clock: monotonic seconds; tests pass their own.

    Raises:
        ConfigError: the URL is of another kind.
        EnvironmentMismatchError: the Redis client is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 0.02,
        most: int = 1000,
        observe: Callable[[str, int], None] = lambda _, __: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._errors = connect(url, timeout_s, key="serving.live_histories")
        self._most, self._observe, self._clock = most, observe, clock
        self._where = without_password(url)
        self._lock = threading.Lock()
        self._failures = 0
        self._retry_at = 0.0

    def get_many(self, user_ids: Sequence[str]) -> list[LiveHistory]:
        """Return what Redis holds of each user; see the class for what happens when it does not answer."""
        if not user_ids:
            return []
        if self._failures and self._clock() < self._retry_at:
            return self._unavailable(user_ids)
        pipeline = self._client.pipeline(transaction=False)
        try:
            for user_id in user_ids:
                pipeline.lrange(_PREFIX.encode() + user_id.encode("utf-8", "surrogatepass"), -self._most, -1)
            values = pipeline.execute(raise_on_error=False)
        except self._errors as error:
            self._note_failure(error)
            return self._unavailable(user_ids)
        finally:
            pipeline.reset()
        self._note_success()
        return [self._read(value) for value in values]

    def close(self) -> None:
        """Close the connections; the next reading opens another."""
        self._client.close()

    def _unavailable(self, user_ids: Sequence[str]) -> list[LiveHistory]:
        self._observe("unavailable", len(user_ids))
        return [UNAVAILABLE] * len(user_ids)

    def _note_failure(self, error: Exception) -> None:
        with self._lock:
            self._failures += 1
            pause = min(_FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10), _LONGEST_PAUSE_S)
            self._retry_at = self._clock() + pause
            is_first = self._failures == 1
        if is_first:
            _logger.error("histories at %s are not available: %s", self._where, error, extra={"histories": "down"})

    def _note_success(self) -> None:
        if self._failures:
            with self._lock:
                self._failures = 0
            _logger.info("histories at %s are available again", self._where, extra={"histories": "up"})

    def _read(self, value: object) -> LiveHistory:
        """Read one list; a value of another type, and an element that is no event, is counted and left out."""
        if not isinstance(value, list):
            self._observe("malformed", 1)
            return UNAVAILABLE
        entries = [entry for entry in map(_parse, value) if entry is not None]
        if len(entries) < len(value):
            self._observe("malformed", 1)
        self._observe("found" if entries else "absent", 1)
        return LiveHistory(entries) if entries else _UNKNOWN


def _parse(element: bytes) -> HistoryEvent | None:
    if not element.startswith(b"{"):
        try:
            return HistoryEvent(element.decode())
        except UnicodeDecodeError:
            return None
    try:
        fields = json.loads(element)
        item, when, event = fields["item"], fields.get("time"), fields.get("event")
        if not isinstance(item, str) or not isinstance(event, str | None):
            return None
        return HistoryEvent(item, None if when is None else parse_time(when), event)
    except (ValueError, KeyError, SearchError, RecursionError):
        return None


def connect(url: str, timeout_s: float, *, key: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a client of Redis, which connects when it is first used, and the errors that it raises.

    Raises:
        ConfigError: the URL is of another kind; ``key`` is where it was configured.
        EnvironmentMismatchError: the Redis client is not installed.
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise ConfigError(f"{key}: {without_password(url)!r} is no address of a Redis: redis://host:6379")
    try:
        import redis  # noqa: PLC0415 - only those who configure it need it
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentMismatchError(f"{key}: Redis needs its client: pip install 'recsys-cg[redis]'") from error
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0), protocol=2
        )
    except ValueError as error:
        raise ConfigError(f"{key}: {without_password(url)!r}: {error}") from error
    return client, (redis.RedisError, OSError, ValueError)  # the last of a connection closed while it was read


def without_password(url: str) -> str:
    """Return the address as it may be logged."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
