"""What the service tells Prometheus. Names start with ``recsys_cg_``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime

from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.serving.answer import Answer

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the service needs more packages: pip install 'recsys-cg[serve]'") from error

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 4.0)
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """All figures of a service, in a registry of their own.

    With several worker processes, which share the directory that ``PROMETHEUS_MULTIPROC_DIR`` names, every worker
    answers with the sum over all.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"recsys_cg_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, mode: str, *labels: str) -> Gauge:
            return Gauge(f"recsys_cg_{name}", text, labels, registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]  # one of its literals

        self.requests = counter("requests", "Requests answered.", "path", "status")
        self.latency = Histogram(
            "recsys_cg_request_seconds", "From arrival to answer.", ["path"], registry=registry, buckets=_SECONDS
        )
        self.batches = Histogram(
            "recsys_cg_batch_requests", "Lookups answered in one batch.", registry=registry, buckets=_BATCHES
        )
        self.fallbacks = counter("fallbacks", "Lookups answered with popular items.", "reason")
        self.shortfalls = counter("shortfalls", "Lookups with fewer than k candidates.")
        self.missing = counter("missing_candidates", "Candidates short of k, over all lookups.")
        self.unknown_items = counter("unknown_history_items", "History entries that the release has no item for.")
        self.trends = counter("live_trends", "Readings of what trends, by what came back.", "outcome")
        self.histories = counter("live_histories", "Histories asked of the live source, by what came back.", "outcome")
        self.unknown_events = counter("unknown_history_events", "History entries of an event that the release lacks.")
        self.refused = counter("refused_requests", "Requests refused for want of room or time.", "reason")
        self.reloads = counter("reloads", "Releases taken over.")
        self.reload_failures = counter("reload_failures", "Attempts to take over a release that failed.")
        self.broken = gauge("reload_broken", "1 while CURRENT names a release that cannot be served.", "livemax")
        self.workers = gauge("release_workers", "Worker processes that serve this release.", "livesum", "release")
        self.created = gauge("release_created_timestamp_seconds", "When the served release was sealed.", "livemin")
        self.age = gauge("index_age_seconds", "Age of the served release when last looked at.", "livemax")

    def observe_answers(self, answers: Sequence[Answer]) -> None:
        """Count a batch of answers."""
        if not answers:
            return
        self.batches.observe(len(answers))
        for answer in answers:
            if answer.fallback is not None:
                self.fallbacks.labels(answer.fallback).inc()
            if answer.shortfall:
                self.shortfalls.inc()
                self.missing.inc(answer.shortfall)
            if answer.unknown:
                self.unknown_items.inc(answer.unknown)
            if answer.unknown_events:
                self.unknown_events.inc(answer.unknown_events)

    def observe_release(self, name: str, created: str, previous: str | None) -> None:
        """Note that this process serves the release ``name``, sealed at ``created`` (RFC 3339), after ``previous``."""
        if previous is not None and previous != name:
            self.workers.labels(previous).set(0)
            if _DIRECTORY not in os.environ:
                self.workers.remove(previous)
        self.workers.labels(name).set(1)
        self.created.set(datetime.fromisoformat(created).timestamp())

    def observe_age(self, created: str) -> None:
        """Update the age of the served release."""
        self.age.set(max(0.0, time.time() - datetime.fromisoformat(created).timestamp()))

    def expose(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        if _DIRECTORY not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]  # prometheus_client leaves it untyped
        return generate_latest(shared)
