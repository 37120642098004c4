"""Follow a store: the published release is loaded and warmed beside the one that serves, then swapped in."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recsys_cg.errors import StoreError
from recsys_cg.release.store import Store
from recsys_cg.serving.answer import Request
from recsys_cg.serving.live import LiveHistories
from recsys_cg.serving.lookup import CandidateLookup, is_release
from recsys_cg.serving.memory import return_unused
from recsys_cg.serving.trending import Trends

__all__ = ["Follower", "Refusal"]

_logger = logging.getLogger(__name__)
_FIRST_RETRY_S, _LONGEST_RETRY_S = 5.0, 60.0
_WARM_ITEMS = 8


@dataclass(frozen=True)
class Refusal:
    """A published release that could not be taken over.

    Attributes:
        release: its name; empty when CURRENT itself could not be read.
        why: the error, one line.
        attempts: how often it was tried.
        retry_at: `time.monotonic` from which it is tried again.
    """

    release: str
    why: str
    attempts: int
    retry_at: float


class Follower:
    """Hold the lookup of the release that CURRENT names.

    `check` is called now and then by one thread or by many; `lookup` never waits and always is a whole release.
    When CURRENT names a release that cannot be loaded, the one before goes on serving, `refusal` says why, and it is
    tried again after 5 s, 10 s, ... 60 s, or at once when CURRENT moves. A rollback is a move like any other.

    Args:
        path: a store, or a release directory, which then is the only one ever served.
        clock: monotonic seconds; tests pass their own.
        live: fresh histories, handed to every lookup.
        trends: what is asked for at the moment, handed to every lookup.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        live: LiveHistories | None = None,
        trends: Trends | None = None,
    ) -> None:
        self._path = path
        self._live, self._trends = live, trends
        self._clock = clock
        self._lock = threading.Lock()
        self.lookup: CandidateLookup | None = None
        self.refusal: Refusal | None = None
        self.swaps = 0
        self._taken: str | None = None
        self._left_behind = False

    def check(self) -> bool:
        """Look at CURRENT and take over the release it names if it is another one; return whether one was taken.

        Never raises: what goes wrong is logged and kept in `refusal`.
        """
        with self._lock:
            if self._left_behind:  # by now the requests that were under way are done with the release before
                self._left_behind = False
                return_unused()
            try:
                name = self._current()
            except Exception as error:  # noqa: BLE001, RUF100 - whatever is wrong with the store, serve on
                return self._refuse("", error)
            if self._taken == name:
                self.refusal = None
                return False
            refusal = self.refusal
            if refusal is not None and refusal.release == name and self._clock() < refusal.retry_at:
                return False
            return self._take(name)

    def _current(self) -> str:
        """Return what CURRENT names, or the path of a release that stands alone."""
        if is_release(self._path):
            return str(self._path)
        name = Store(self._path).current()
        if name is None:
            raise StoreError(f"{self._path} is neither a release nor a store with a published release")
        return name

    def _take(self, name: str) -> bool:
        started = time.perf_counter()
        try:
            is_alone = name == str(self._path)
            path = name if is_alone else Store(self._path).path_of(name)
            lookup = CandidateLookup.open(path, live=self._live, trends=self._trends)
            if not is_alone and lookup.release.name != name:
                raise StoreError(f"{lookup.release.path} holds release {lookup.release.name}, not {name}")
            _warm(lookup)
        except Exception as error:  # noqa: BLE001, RUF100 - a broken release must not end the service
            return self._refuse(name, error)
        before = self.lookup
        self.lookup, self.refusal, self._taken = lookup, None, name
        self.swaps += 1
        self._left_behind = before is not None
        _logger.info(
            "serving release %s",
            lookup.release.name,
            extra={
                "release": lookup.release.name,
                "previous": before.release.name if before else None,
                "load_seconds": round(time.perf_counter() - started, 3),
                "index": lookup.release.retriever.kind,
            },
        )
        return True

    def _refuse(self, name: str, error: Exception) -> bool:
        before = self.refusal if self.refusal is not None and self.refusal.release == name else None
        attempts = 1 if before is None else before.attempts + 1
        pause = min(_FIRST_RETRY_S * 2 ** (attempts - 1), _LONGEST_RETRY_S)
        why = f"{type(error).__name__}: {error}"
        self.refusal = Refusal(name, why, attempts, self._clock() + pause)
        if before is None or before.why != why:
            serving = self.lookup.release.name if self.lookup is not None else None
            _logger.error(
                "release %s is refused: %s", name or "(CURRENT)", why, extra={"release": name, "serving": serving}
            )
        return False


def _warm(lookup: CandidateLookup) -> None:
    """Answer a few requests, single and batched: a release that cannot do that is not taken over."""
    names = lookup.release.ids.names(lookup.release.popularity.top_rows(_WARM_ITEMS))
    k = max(len(names), 1)
    for name in names:
        lookup.candidates(history=[name], k=k)
        lookup.similar(name, k)
    lookup.candidates_batch([Request(history=names[: place + 1], k=k) for place in range(len(names))])
    lookup.candidates(k=k)
