"""Candidates for a user, in process: what a ranking service calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recsys_cg.artifacts import MANIFEST
from recsys_cg.bonuses import NOTHING_RAISED, Raised, join, lift
from recsys_cg.errors import SearchError, StoreError
from recsys_cg.release.store import Store
from recsys_cg.serving.answer import Answer, Candidate, Reason, Request, check_ids, check_k
from recsys_cg.serving.context import ContextValue, context_inputs
from recsys_cg.serving.eligibility import may_be_answered
from recsys_cg.serving.entries import HistoryEntry, HistoryEvent, parse_time
from recsys_cg.serving.inputs import history_inputs
from recsys_cg.serving.live import LiveHistories
from recsys_cg.serving.planning import NO_HISTORY, Plan, make_plans, now_us
from recsys_cg.serving.release import Release
from recsys_cg.serving.trending import Trending, Trends
from recsys_cg.trends import Trend

__all__ = ["CandidateLookup", "is_release", "resolve_release"]

_FEW_UNAVAILABLE = 256
_NOTHING = np.zeros(0, np.int32)
_Found = tuple[NDArray[np.int32], NDArray[np.float32] | None]
# A NamedTuple's own constructor is Python code: over 100 candidates it costs more than finding them.
_make_candidate: Callable[[tuple[str, str | None, float | None, str]], Candidate] = partial(tuple.__new__, Candidate)


def is_release(path: str | Path) -> bool:
    """Say whether ``path`` is a release directory that stands alone, not a store."""
    return "://" not in str(path) and (Path(path) / MANIFEST).is_file()


def resolve_release(path: str | Path) -> Path:
    """Return ``path`` when it is a release directory, or the one that CURRENT names when it is a store.

    Raises:
        StoreError: it is neither, or nothing is published in the store.
        ReleaseNotFoundError: CURRENT names a release that is not there.
    """
    if is_release(path):
        return Path(path)
    store = Store(path)
    name = store.current()
    if name is None:
        raise StoreError(f"{path} is neither a release nor a store with a published release")
    return store.path_of(name)


class CandidateLookup:
    """Look candidates up in one release; safe to use from many threads.

    Example:
        >>> lookup = CandidateLookup.open("work/store")  # doctest: +SKIP
        >>> lookup.candidates(history=["50", "181"], k=10).candidates[0].item_id  # doctest: +SKIP

    Args:
        release: an open release.
        live: where histories of users are read that are fresher than those of the release; None: nowhere.
        trends: tells what is asked for at the moment, for a release that ranks by it; None: nothing is known.
    """

    def __init__(self, release: Release, live: LiveHistories | None = None, trends: Trends | None = None) -> None:
        self.release = release
        self._live = live
        self._trends = trends if release.trends is not None else None
        self._trend: tuple[Trending, Trend] | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        verify_files: bool = True,
        interpreters: int = 8,
        live: LiveHistories | None = None,
        trends: Trends | None = None,
    ) -> Self:
        """Open the release that ``path`` holds, or the one that CURRENT names when ``path`` is a store.

        The lookup stays with that release. `recsys_cg.serving.follower.Follower` follows a store as it changes.

        Args:
            path: a release directory or a store directory.
            verify_files: compare every file with its digest first; see `Release.open`.
            interpreters: lookups that may encode at once.
            live: fresher histories than those of the release, e.g. `recsys_cg.serving.live.RedisHistories`.
            trends: what is asked for at the moment, e.g. `recsys_cg.serving.trending.RedisTrends`.

        Raises:
            StoreError: a store in which nothing is published, or no directory at all.
            ReleaseNotFoundError: CURRENT names a release that is not there.
            ArtifactError, MetricMismatchError: the release cannot be trusted; see `Release.open`.
        """
        release = Release.open(resolve_release(path), verify_files=verify_files, interpreters=interpreters)
        return cls(release, live, trends)

    def candidates(
        self,
        *,
        history: Sequence[HistoryEntry] | None = None,
        user_id: str | None = None,
        k: int = 100,
        exclude: Sequence[str] = (),
        allow: Sequence[str] | None = None,
        deny_seen: bool | None = None,
        at: float | str | datetime | None = None,
        explain: int = 0,
        context: Mapping[str, ContextValue] | None = None,
    ) -> Answer:
        """Return the ``k`` items nearest to a user's history.

        Args:
            history: what the user did, oldest first: item ids, or mappings ``{"item": id, "time": seconds or RFC
                3339, "event": name}``; see `recsys_cg.serving.inputs.read_history`. The freshest thing there is: it
                is used even when ``user_id`` is given. Items that the release does not know are left out and counted.
            user_id: whose live or else stored history is used when ``history`` is None, and whose items of both count
                as seen.
            k: candidates wanted, at least 1.
            exclude: items never answered; unknown ids do nothing.
            allow: the only items that may be answered; None for all. Unknown ids do nothing.
            deny_seen: leave out what the user met: the given history, and everything stored for ``user_id``. None: as
                the release was measured (``evaluation.filter_seen``).
            at: time of the request: availability is judged at it, and what the user did after it is not used. None:
                now, and times of the history ahead of the clock count as now.
            explain: for each candidate, how many nearest items of the history to give; 0 for none.
            context: what is known of the request, e.g. ``{"device": "mobile"}``, by the names of the release's context
                features; see `recsys_cg.serving.context.read_context`. Hour and day are read off ``at`` unless given.

        Returns:
            The answer. When there is nothing to encode it holds the most popular items, filtered alike, and says so.

        Raises:
            SearchError: an argument has the wrong type or an impossible value.
        """
        request = Request(
            history=history,
            user_id=user_id,
            k=k,
            exclude=exclude,
            allow=allow,
            deny_seen=deny_seen,
            at=at,
            explain=explain,
            context=context,
        )
        return self.candidates_batch([request])[0]

    def candidates_batch(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer many requests at once, each as `candidates` would.

        The histories are encoded in one call, and requests without ``allow`` are searched in one call.

        Raises:
            SearchError: as `candidates`; then none is answered.
        """
        return self._run(make_plans(self.release, requests, self._live, self._trend_at)) if requests else []

    def _run(self, plans: Sequence[Plan]) -> list[Answer]:
        found: list[_Found] = [(_NOTHING, None)] * len(plans)
        encoded = [place for place, plan in enumerate(plans) if plan.fallback is None]
        if encoded:
            queries = self._encode([plans[place] for place in encoded])
            for places in _group([plans[place] for place in encoded]):
                members = [encoded[place] for place in places]
                lists = self._search(queries[places], [plans[place] for place in members])
                for place, one in zip(members, lists, strict=True):
                    found[place] = one
        for place, plan in enumerate(plans):
            if plan.fallback is not None:
                found[place] = self._popular(plan), None
        return self._answers(plans, found)

    def similar(self, item_id: str, k: int = 100, *, at: float | str | datetime | None = None) -> Answer:
        """Return the ``k`` items nearest to an item, itself left out, available ones only.

        Raises:
            SearchError: the release has no such item, or an argument is impossible.
        """
        length = check_k(k)
        row = self._require(item_id)
        return self._nearest(self.release.vectors[row : row + 1], length, at, np.array([row], np.int32))

    def similar_content(
        self, content: Mapping[str, object], k: int = 100, *, at: float | str | datetime | None = None
    ) -> Answer:
        """Return the ``k`` items nearest to one that the release need not have, by its row of the catalogue.

        The item is embedded as `recsys-cg refresh` would embed a new one, by content alone.

        Args:
            content: columns of the catalogue with their values; see `recsys_cg.serving.content.ContentEncoder.encode`.
            k: items wanted, at least 1.
            at: time of the request, at which availability is judged; None: now.

        Raises:
            SearchError: the row holds nothing that a feature reads, or an argument is impossible.
            ArtifactMissingError: the release's encoder reads no content.
        """
        length = check_k(k)
        return self._nearest(self.release.content.encode([content]), length, at, np.zeros(0, np.int32))

    def complementary(
        self,
        item_id: str,
        k: int = 100,
        *,
        event: str | None = None,
        at: float | str | datetime | None = None,
    ) -> Answer:
        """Return the ``k`` items that go with an item: what the query tower expects of a user who just met it.

        A history of this one item is encoded. The tower learned from what users met after what, so these are items that
        follow or accompany it, where `similar` gives those that resemble it. The item itself is left out.

        Args:
            item_id: the item.
            k: items wanted, at least 1.
            event: what the user did with it, e.g. ``"purchase"``; None: the release's first event.
            at: time of the request; None: now.

        Raises:
            SearchError: the release has no such item or event, or an argument is impossible.
        """
        self._require(item_id)
        if event is not None and event not in self.release.events:
            known = ", ".join(filter(None, self.release.events)) or "its log names none"
            raise SearchError(f"release {self.release.name} has no event {event!r}: {known}")
        request = Request(history=[HistoryEvent(item_id, None, event)], k=k, at=at, deny_seen=True)
        return self._run(make_plans(self.release, [request]))[0]

    def _nearest(
        self, vector: NDArray[np.float32], k: int, at: float | str | datetime | None, exclude: NDArray[np.int32]
    ) -> Answer:
        at_us = now_us() if at is None else parse_time(at)
        plan = Plan(k, at_us, NO_HISTORY, None, exclude, None, self.release.availability.at(at_us), 0)
        ((rows, scores),) = self._search(np.asarray(vector), [plan])
        return self._answer(plan, rows, scores)

    def _require(self, item_id: str) -> int:
        row = self.find(item_id)
        if row is None:
            raise SearchError(f"release {self.release.name} has no item {item_id!r}")
        return row

    def find(self, item_id: str) -> int | None:
        """Return the release row of an item, or None when the release has no such item."""
        (item,) = check_ids("item_id", [item_id])
        row = int(self.release.ids.rows([item])[0])
        return None if row < 0 else row

    def _encode(self, plans: Sequence[Plan]) -> NDArray[np.float32]:
        release = self.release
        histories = [plan.history for plan in plans]
        alone = histories[0] if len(plans) == 1 else None
        tensors = history_inputs(
            alone.rows if alone else np.concatenate([history.rows for history in histories]),
            alone.times_us if alone else np.concatenate([history.times_us for history in histories]),
            alone.events if alone else np.concatenate([history.events for history in histories]),
            np.array([len(history.rows) for history in histories]),
            np.array([plan.at_us for plan in plans]),
            vectors=release.history_vectors,
            max_history=release.encoder.contract.max_history,
        )
        features = release.encoder.contract.context
        if not len(features):
            return release.encoder.encode(**tensors)
        at_us = np.array([plan.at_us for plan in plans])
        codes = context_inputs(features, [plan.context for plan in plans], at_us)
        return release.encoder.encode(**tensors, context=codes)

    def _search(
        self, queries: NDArray[np.float32], plans: Sequence[Plan]
    ) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Search plans of one allow-list and one availability; return rows and scores of each."""
        allow, available = plans[0].allow, plans[0].available
        exclude = [plan.exclude for plan in plans]
        eligible: NDArray[np.int32] | NDArray[np.bool_] | None = allow
        if available is not None:
            if allow is not None:
                eligible = allow[available[allow]]
            elif len(available) - np.count_nonzero(available) <= _FEW_UNAVAILABLE:
                gone = np.flatnonzero(~available).astype(np.int32)
                exclude = [np.union1d(rows, gone) for rows in exclude]
            else:
                eligible = available
        k = min(max(plan.k for plan in plans), max(len(self.release), 1))
        result = self.release.retriever.search(
            queries, k, exclude=exclude if any(map(len, exclude)) else None, allow=eligible
        )
        if len(plans) == 1:
            lists = [(result.rows[0, : result.found[0]], result.scores[0, : result.found[0]])]
        else:
            counts = [min(int(found), plan.k) for found, plan in zip(result.found, plans, strict=True)]
            lists = [
                (rows[:count], scores[:count])
                for rows, scores, count in zip(result.rows, result.scores, counts, strict=True)
            ]
        for place, plan in enumerate(plans):
            if len(plan.repeats) or plan.trend is not None:
                rows, scores = lists[place]
                raised = self._raised(plan)
                lists[place] = lift(rows, scores, queries[place], raised, vectors=self.release.vectors, k=plan.k)
        return lists

    def _raised(self, plan: Plan) -> Raised:
        """Return what has a bonus and may be answered."""
        raised = NOTHING_RAISED
        if len(plan.repeats) and self.release.repeats is not None:
            raised = self.release.repeats.raised(plan.repeats)
        if plan.trend is not None and self.release.trends is not None:
            raised = join(raised, plan.trend.raised(self.release.trends.bonus))
        eligible = may_be_answered(raised.rows, exclude=plan.exclude, available=plan.available, allow=plan.allow)
        return raised if eligible.all() else raised.among(eligible)

    def _trend_at(self, at_us: int) -> Trend | None:
        """Return what trends at a time, in rows of the release; None where nothing is known of it."""
        trending = None if self._trends is None else self._trends.at(at_us)
        if trending is None:
            return None
        known = self._trend
        if known is None or known[0] is not trending:
            rows = self.release.ids.rows(trending.item_ids)
            known = self._trend = trending, Trend.of(rows[rows >= 0], trending.counts[rows >= 0])
        return known[1]

    def _answer(self, plan: Plan, rows: NDArray[np.int32], scores: NDArray[np.float32] | None) -> Answer:
        return self._answers([plan], [(rows, scores)])[0]

    def _answers(self, plans: Sequence[Plan], found: Sequence[_Found]) -> list[Answer]:
        """Return the answers; ids, titles and buckets of all of them are looked up together."""
        release = self.release
        parts = [rows for rows, _ in found]
        names, titles, buckets = release.describe(np.concatenate(parts) if len(parts) != 1 else parts[0])
        values: list[float | None] = []
        for rows, scores in found:
            values += [None] * len(rows) if scores is None else scores.tolist()
        candidates = tuple(map(_make_candidate, zip(names, titles, values, buckets, strict=True)))
        answers, start = [], 0
        for plan, rows in zip(plans, parts, strict=True):
            answers.append(
                Answer(
                    release=release.name,
                    candidates=candidates if len(rows) == len(candidates) else candidates[start : start + len(rows)],
                    fallback=plan.fallback,
                    shortfall=plan.k - len(rows),
                    unknown=plan.history.unknown,
                    unknown_events=plan.history.unknown_events,
                    because=self._reasons(plan, rows) if plan.explain and plan.fallback is None else (),
                )
            )
            start += len(rows)
        return answers

    def _popular(self, plan: Plan) -> NDArray[np.int32]:
        return self.release.popularity.top(
            min(plan.k, len(self.release)),
            exclude=plan.exclude,
            available=plan.available,
            allow=plan.allow,
            trend=plan.trend,
        )

    def _reasons(self, plan: Plan, rows: NDArray[np.int32]) -> tuple[tuple[Reason, ...], ...]:
        release = self.release
        recent = np.unique(plan.history.rows[-release.encoder.contract.max_history :])
        similarities = release.vectors[rows] @ release.vectors[recent].T
        nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : plan.explain]
        names, titles, _ = release.describe(recent)
        return tuple(
            tuple(Reason(names[place], titles[place], float(row[place])) for place in places)
            for row, places in zip(similarities, nearest.tolist(), strict=True)
        )


def _group(plans: Sequence[Plan]) -> list[list[int]]:
    """Return places of plans that one search can answer: no allow-list and one availability; else each alone."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, plan in enumerate(plans):
        alone = -1 if plan.allow is None else place
        groups.setdefault((alone, id(plan.available)), []).append(place)
    return list(groups.values())
