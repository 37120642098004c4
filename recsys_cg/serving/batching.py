"""Answer requests of many connections together, and refuse what would only wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from recsys_cg.errors import SearchError
from recsys_cg.serving.answer import Answer, Request
from recsys_cg.serving.lookup import CandidateLookup

__all__ = ["Batcher", "DeadlineError", "NotReadyError", "OverloadedError"]


_SHORT_LIST, _SHORT_REQUEST = 200, 500
_ROUNDS = 10


class OverloadedError(Exception):
    """As many lookups wait as may."""


class DeadlineError(Exception):
    """The lookup waited longer than it may."""


class NotReadyError(Exception):
    """No release is loaded."""


@dataclass(eq=False)
class _Job:
    weight: int
    deadline: float
    done: asyncio.Future[Any]
    requests: Sequence[Request] = ()
    render: Callable[[Sequence[Answer]], bytes] | None = None
    call: Callable[[CandidateLookup], bytes] | None = None
    result: bytes | Exception | None = None

    @property
    def is_short(self) -> bool:
        """Whether a tree is searched for a short list and little is read: a millisecond or so a request."""
        return self.call is None and all(map(_is_short, self.requests))


class Batcher:
    """Run lookups, those that wait together as one batch.

    Nothing is held back to fill a batch: while one is answered the next one gathers, so batches grow with load. Before
    each, the event loop goes round a few times, so that what has arrived is read, and new connections are accepted, at
    any load. All parts of one answer come from one release, the one that serves when the batch starts.

    Short work is done on the event loop itself where ``is_quick`` says so of the lookup: handed to a thread, it and the
    loop would wait for each other's turn at the interpreter, which takes longer than the lookup. Lookups with an
    allow-list, a long list, history or exclusion, large batches and everything else go to the one thread.

    Args:
        lookup: returns the lookup that serves now, or None.
        most: requests of one batch, at least 1.
        waiting: requests that may wait; a larger job is taken only when none waits.
        deadline_s: how long a request may wait.
        observe: told the answers of each batch, where they are made.
        is_quick: whether short work of that lookup may be done on the event loop: it waits for nothing, and scores
            no large catalogue exactly. None: no.
    """

    def __init__(
        self,
        lookup: Callable[[], CandidateLookup | None],
        *,
        most: int,
        waiting: int,
        deadline_s: float,
        observe: Callable[[Sequence[Answer]], None],
        is_quick: Callable[[CandidateLookup], bool] | None = None,
    ) -> None:
        self._lookup = lookup
        self._most, self._most_waiting, self._deadline_s = most, waiting, deadline_s
        self._observe = observe
        self._is_quick = is_quick
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "lookup")

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return self._waiting

    @property
    def is_full(self) -> bool:
        """Whether a request that came now would be refused."""
        return self._waiting >= self._most_waiting

    async def ask(
        self,
        requests: Sequence[Request],
        render: Callable[[Sequence[Answer]], bytes],
        *,
        within_s: float | None = None,
    ) -> bytes:
        """Answer ``requests`` from one release and return them as ``render`` writes them.

        Args:
            requests: one or more.
            render: writes the answers; called where the answers are made.
            within_s: the caller's own deadline, when it may be shorter than the service's.

        Raises:
            OverloadedError, DeadlineError, NotReadyError: it was not tried.
            RecsysError: what the lookup raised.
        """
        return await self._submit(len(requests), within_s, requests=requests, render=render)

    async def call(self, function: Callable[[CandidateLookup], bytes], *, within_s: float | None = None) -> bytes:
        """Run ``function`` with the lookup, in turn with everything else; raises as `ask`."""
        return await self._submit(1, within_s, call=function)

    async def _submit(self, weight: int, within_s: float | None, **what: Any) -> bytes:
        if self._lookup() is None:
            raise NotReadyError
        if self._waiting and self._waiting + weight > self._most_waiting:
            raise OverloadedError
        loop = asyncio.get_running_loop()
        limit_s = self._deadline_s if within_s is None else min(within_s, self._deadline_s)
        job = _Job(weight, time.monotonic() + limit_s, loop.create_future(), **what)
        self._jobs.append(job)
        self._waiting += weight
        self._wake.set()
        result: bytes = await job.done
        return result

    async def run(self) -> None:
        """Answer what is asked, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await _let_others_in(1)
                while jobs := self._gather():
                    if self._fits_the_loop(jobs):
                        self._work(jobs)
                    else:
                        await loop.run_in_executor(self._thread, self._work, jobs)
                    for job in jobs:
                        _settle(job)
                    await _let_others_in(_ROUNDS if self._jobs else 1)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _fits_the_loop(self, jobs: Sequence[_Job]) -> bool:
        lookup = self._lookup()
        if self._is_quick is None or lookup is None or sum(job.weight for job in jobs) > self._most:
            return False
        return all(job.is_short for job in jobs) and self._is_quick(lookup)

    def _gather(self) -> list[_Job]:
        jobs: list[_Job] = []
        weight = 0
        now = time.monotonic()
        while self._jobs and (not jobs or weight + self._jobs[0].weight <= self._most):
            job = self._jobs.popleft()
            self._waiting -= job.weight
            if job.done.done():
                continue
            if job.deadline < now:
                job.result = DeadlineError()
                _settle(job)
                continue
            jobs.append(job)
            weight += job.weight
        return jobs

    def _work(self, jobs: Sequence[_Job]) -> None:
        """Fill in the result of each job; never raises."""
        lookup = self._lookup()
        if lookup is None:
            for job in jobs:
                job.result = NotReadyError()
            return
        asked = [job for job in jobs if job.call is None]
        if asked and not self._answer(lookup, asked) and len(asked) > 1:
            for job in asked:  # one request was at fault: answer each alone
                self._answer(lookup, [job])
        for job in jobs:
            if job.call is not None:
                try:
                    job.result = job.call(lookup)
                except Exception as error:  # noqa: BLE001, RUF100 - handed to the one who asked
                    job.result = error

    def _answer(self, lookup: CandidateLookup, jobs: Sequence[_Job]) -> bool:
        try:
            answers = lookup.candidates_batch([request for job in jobs for request in job.requests])
            start = 0
            for job in jobs:
                if job.render is not None:
                    job.result = job.render(answers[start : start + len(job.requests)])
                start += len(job.requests)
            self._observe(answers)
        except Exception as error:  # noqa: BLE001, RUF100 - handed to those who asked
            for job in jobs:
                job.result = error
            return False
        return True


def _is_short(request: Request) -> bool:
    length = len(request.exclude) + (0 if request.history is None else len(request.history))
    return request.allow is None and not request.explain and request.k <= _SHORT_LIST and length <= _SHORT_REQUEST


async def _let_others_in(rounds: int) -> None:
    """Let the event loop read what arrived and accept connections; libuv accepts one in each round."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def _settle(job: _Job) -> None:
    if job.done.done():
        return
    if isinstance(job.result, bytes):
        job.done.set_result(job.result)
    else:
        job.done.set_exception(job.result or SearchError("the lookup gave no answer"))
