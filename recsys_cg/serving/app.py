"""The HTTP service as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recsys_cg import __version__
from recsys_cg.config import ServingConfig
from recsys_cg.errors import EnvironmentMismatchError
from recsys_cg.serving.batching import Batcher
from recsys_cg.serving.follower import Follower
from recsys_cg.serving.live import RedisHistories
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.metrics import Metrics
from recsys_cg.serving.requests import RequestModels
from recsys_cg.serving.trending import RedisTrends

try:
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the service needs more packages: pip install 'recsys-cg[serve]'") from error

from recsys_cg.serving.description import PATHS, add_routes
from recsys_cg.serving.direct import DirectPaths
from recsys_cg.serving.gatehouse import Gatehouse
from recsys_cg.serving.problems import add_handlers
from recsys_cg.serving.routes import Endpoints

if TYPE_CHECKING:
    from recsys_cg.serving.rpc.server import RpcFace

__all__ = ["Service", "create_app"]

_logger = logging.getLogger(__name__)
_MICRO_BATCH = 16
_FEW_FLOATS = 1 << 20  # scored for 16 queries in some 10 ms
_DESCRIPTION = (
    "Candidates for a ranking service. A similarity is a dot product of unit vectors, not a probability. Every answer "
    "names the release that all of it comes from."
)


class Service(FastAPI):
    """FastAPI behind layers of ours: what these answer or refuse alone costs none of FastAPI's own layers.

    Attributes:
        front: the outermost layer.
    """

    front: Gatehouse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event."""
        await self.front(scope, receive, send)

    async def beyond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle what comes through to FastAPI."""
        await super().__call__(scope, receive, send)


def create_app(store: str | Path, config: ServingConfig, token: str | None = None) -> Service:
    """Return the service over ``store``; it loads the published release when it starts and follows the store.

    Args:
        store: a store, or a release directory, which then is the only one served. When nothing can be loaded the
            service starts all the same, says so at ``/readyz``, and goes on looking.
        config: limits and how often CURRENT is looked at.
        token: bearer token that ``/v1/*`` and ``/metrics`` ask for; None for none.
    """
    metrics = Metrics()
    live, trends = _open_live(config, metrics), _open_trends(config, metrics)
    follower = Follower(store, live=live, trends=trends)
    batcher = Batcher(
        lambda: follower.lookup,
        most=_MICRO_BATCH,
        waiting=config.max_waiting,
        deadline_s=config.deadline_ms / 1000,
        observe=metrics.observe_answers,
        is_quick=_is_quick if config.live_histories is None else None,
    )
    rpc: RpcFace | None = None
    app = Service(
        title="recsys-cg",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lambda _: _live(follower, batcher, metrics, config, rpc, live, trends),
    )
    endpoints = Endpoints(config, RequestModels.of(config), follower, batcher, metrics)
    if config.grpc_port is not None:
        rpc = _make_rpc(config, token, endpoints)
    posted = {"/v1/candidates": endpoints.candidates, "/v1/candidates:batch": endpoints.candidates_batch}
    add_routes(app, endpoints)
    add_handlers(app, metrics)
    app.front = Gatehouse(
        DirectPaths(app.beyond, owner=app, posted=posted),
        config=config,
        metrics=metrics,
        token=token,
        paths=PATHS,
        is_full=lambda path: path in posted and batcher.is_full,
    )
    return app


def _is_quick(lookup: CandidateLookup) -> bool:
    """Say whether lookups in the release take a millisecond: by ScaNN, or exactly in a small catalogue."""
    retriever = lookup.release.retriever
    return retriever.kind == "scann" or (retriever.is_exact and retriever.size * retriever.dim <= _FEW_FLOATS)


def _make_rpc(config: ServingConfig, token: str | None, endpoints: Endpoints) -> RpcFace:
    from recsys_cg.serving.rpc.server import RpcFace  # noqa: PLC0415 - only those who configure it need it

    return RpcFace(
        config, token=token, batcher=endpoints.batcher, metrics=endpoints.metrics, describe=endpoints.described
    )


def _open_live(config: ServingConfig, metrics: Metrics) -> RedisHistories | None:
    if config.live_histories is None:
        return None
    return RedisHistories(
        config.live_histories,
        timeout_s=config.live_histories_timeout_ms / 1000,
        most=config.max_history,
        observe=lambda outcome, count: metrics.histories.labels(outcome).inc(count),
    )


def _open_trends(config: ServingConfig, metrics: Metrics) -> RedisTrends | None:
    if config.live_trends is None:
        return None
    return RedisTrends(config.live_trends, observe=lambda outcome: metrics.trends.labels(outcome).inc())


@asynccontextmanager
async def _live(  # noqa: PLR0917 - the parts of the service
    follower: Follower,
    batcher: Batcher,
    metrics: Metrics,
    config: ServingConfig,
    rpc: RpcFace | None,
    live: RedisHistories | None,
    trends: RedisTrends | None,
) -> AsyncIterator[None]:
    with ExitStack() as closing:
        for source in (live, trends):
            if source is not None:
                closing.callback(source.close)
        await _look(follower, metrics)
        tasks = [
            asyncio.create_task(batcher.run()),
            asyncio.create_task(_repeat(config.reload_seconds, lambda: _look(follower, metrics))),
        ]
        if trends is not None:
            read = trends.refresh
            await asyncio.to_thread(read)
            tasks.append(asyncio.create_task(_repeat(config.reload_seconds, lambda: asyncio.to_thread(read))))
        try:
            if rpc is not None:
                port = await rpc.start()
                _logger.info("gRPC on port %d", port, extra={"grpc_port": port})
            yield
        finally:
            if rpc is not None:
                await rpc.stop()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task


async def _repeat(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(every_s)
        await work()


async def _look(follower: Follower, metrics: Metrics) -> None:
    before, refused = follower.lookup, follower.refusal
    await asyncio.to_thread(follower.check)
    after, refusal = follower.lookup, follower.refusal
    if after is not None and after is not before:
        metrics.reloads.inc()
        previous = before.release.name if before is not None else None
        metrics.observe_release(after.release.name, after.release.manifest.created, previous)
    if refusal is not None and refusal is not refused:
        metrics.reload_failures.inc()
    metrics.broken.set(0 if refusal is None else 1)
