"""The gRPC service, in the event loop and on the micro-batches of the HTTP service."""

from __future__ import annotations

import hmac
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from recsys_cg.config import ServingConfig
from recsys_cg.errors import (
    ConfigError,
    EnvironmentMismatchError,
    MetricMismatchError,
    RecsysError,
    SearchError,
)
from recsys_cg.serving.answer import Answer
from recsys_cg.serving.batching import Batcher, DeadlineError, NotReadyError, OverloadedError
from recsys_cg.serving.gatehouse import OVERLOADED
from recsys_cg.serving.known import NoContentTowerError, NoSuchItemError, find_by_content, require_item
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.metrics import Metrics
from recsys_cg.serving.rpc.messages import (
    is_by_column,
    pb,
    read_at,
    read_event,
    read_item_id,
    read_k,
    read_request,
    read_requests,
    write_batch,
    write_single,
)
from recsys_cg.serving.rpc.values import read_content

try:
    import grpc
    from google.protobuf.message import DecodeError
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the gRPC face needs more packages: pip install 'recsys-cg[grpc]'") from error

__all__ = ["SERVICE", "RpcFace"]

SERVICE = "recsys_cg.lookup.v1.Lookup"
_HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"  # HealthCheckResponse with field 1, status
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_GRACE_S = 10.0
_PUSHBACK_MS = "1000"
_CANNOT = "the release cannot answer; the log has the request id"
_logger = logging.getLogger(__name__)

_Answering = Callable[[bytes, Any], Awaitable[bytes]]
_Writing = Callable[[Sequence[Answer]], bytes]


class RpcFace:
    """A gRPC server over the batcher of the HTTP service.

    Args:
        config: limits and the address: ``host`` and ``grpc_port``, which several worker processes may share.
        token: bearer token that every call but the health check must carry; None for none.
        batcher: answers lookups.
        metrics: where to count.
        describe: describes the release that serves; None when there is none.
    """

    def __init__(
        self,
        config: ServingConfig,
        *,
        token: str | None,
        batcher: Batcher,
        metrics: Metrics,
        describe: Callable[[], dict[str, Any] | None],
    ) -> None:
        self._config = config
        self._expected = None if token is None else b"Bearer " + token.encode()
        self._batcher, self._metrics, self._describe = batcher, metrics, describe
        self._server: Any = None

    async def start(self) -> int:
        """Listen; return the port.

        Raises:
            ConfigError: the port cannot be bound.
        """
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._config.max_body_bytes),
                ("grpc.so_reuseport", 1),
                ("grpc.max_metadata_size", 16_384),
            ]
        )
        methods = {
            "Candidates": self._candidates,
            "CandidatesBatch": self._candidates_batch,
            "Similar": self._similar,
            "SimilarContent": self._similar_content,
            "Complementary": self._complementary,
            "Release": self._release,
        }
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._guard(name, one)) for name, one in methods.items()}
        health = {"Check": grpc.unary_unary_rpc_method_handler(self._check)}
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(_HEALTH, health),
            )
        )
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        try:
            port: int = server.add_insecure_port(f"{host}:{self._config.grpc_port}")
        except RuntimeError as error:
            raise ConfigError(f"serving.grpc_port: {host}:{self._config.grpc_port} cannot be bound: {error}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self) -> None:
        """Refuse new calls and let those under way finish, for 10 s at most."""
        if self._server is not None:
            await self._server.stop(_GRACE_S)

    def _guard(self, name: str, answer: _Answering) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Return ``answer`` behind the token, with a request id, counted, its errors mapped to status codes."""
        path = f"grpc:{name}"

        async def handle(raw: bytes, context: Any) -> bytes:
            started = time.perf_counter()
            metadata = dict(context.invocation_metadata() or ())
            request_id = _request_id(metadata)
            code, said, reason = grpc.StatusCode.OK, "", None
            try:
                self._admit(metadata)
                body = await answer(raw, context)
            except Exception as error:  # noqa: BLE001, RUF100 - every error becomes a status
                code, said = _explain(error, request_id)
                reason = _REASONS.get(type(error))
            finally:
                self._count(path, code.name, time.perf_counter() - started, request_id)
            if code is not grpc.StatusCode.OK:
                # An error has trailing metadata only: a call that has seen any other is not tried again.
                trailing = [("x-request-id", request_id)]
                if reason is not None:
                    self._metrics.refused.labels(reason).inc()
                    trailing.append(("grpc-retry-pushback-ms", _PUSHBACK_MS))
                await context.abort(code, said, tuple(trailing))
            await context.send_initial_metadata((("x-request-id", request_id),))
            return body

        return handle

    def _admit(self, metadata: dict[str, str | bytes]) -> None:
        if self._expected is None:
            return
        given = metadata.get("authorization", "")
        if not hmac.compare_digest(given.encode() if isinstance(given, str) else given, self._expected):
            raise PermissionError("send the metadata authorization: Bearer <token>")

    async def _candidates(self, raw: bytes, context: Any) -> bytes:
        started = time.perf_counter()
        message = pb.CandidatesRequest.FromString(raw)
        write = write_single(started, by_column=is_by_column(message))
        asked = [read_request(message, self._config)]
        return await self._batcher.ask(asked, write, within_s=context.time_remaining())

    async def _candidates_batch(self, raw: bytes, context: Any) -> bytes:
        started = time.perf_counter()
        message = pb.BatchRequest.FromString(raw)
        write = write_batch(started, by_column=list(map(is_by_column, message.requests)))
        asked = read_requests(message, self._config)
        return await self._batcher.ask(asked, write, within_s=context.time_remaining())

    async def _similar(self, raw: bytes, context: Any) -> bytes:
        started = time.perf_counter()
        message = pb.SimilarRequest.FromString(raw)
        write = write_single(started, by_column=is_by_column(message))
        item_id, k, at = read_item_id(message), read_k(message, self._config), read_at(message)
        return await self._find(lambda lookup: lookup.similar(require_item(lookup, item_id), k, at=at), write, context)

    async def _similar_content(self, raw: bytes, context: Any) -> bytes:
        started = time.perf_counter()
        message = pb.SimilarContentRequest.FromString(raw)
        write = write_single(started, by_column=is_by_column(message))
        content, k, at = read_content(message.content), read_k(message, self._config), read_at(message)

        return await self._find(lambda lookup: find_by_content(lookup, content, k, at=at), write, context)

    async def _complementary(self, raw: bytes, context: Any) -> bytes:
        started = time.perf_counter()
        message = pb.ComplementaryRequest.FromString(raw)
        write = write_single(started, by_column=is_by_column(message))
        item_id, event = read_item_id(message), read_event(message)
        k, at = read_k(message, self._config), read_at(message)

        def find(lookup: CandidateLookup) -> Answer:
            return lookup.complementary(require_item(lookup, item_id), k, event=event, at=at)

        return await self._find(find, write, context)

    async def _find(self, find: Callable[[CandidateLookup], Answer], write: _Writing, context: Any) -> bytes:
        """Answer with what ``find`` finds, in turn with everything else."""
        return await self._batcher.call(lambda lookup: write([find(lookup)]), within_s=context.time_remaining())

    async def _release(self, raw: bytes, _context: Any) -> bytes:
        pb.ReleaseRequest.FromString(raw)
        described = self._describe()
        if described is None:
            raise NotReadyError
        known = {field.name: described[field.name] for field in pb.ReleaseAnswer.DESCRIPTOR.fields}
        body: bytes = pb.ReleaseAnswer(**known).SerializeToString()
        return body

    async def _check(self, _raw: bytes, _context: Any) -> bytes:
        return _NOT_SERVING if self._describe() is None else _SERVING

    def _count(self, path: str, code: str, seconds: float, request_id: str) -> None:
        self._metrics.requests.labels(path, code).inc()
        self._metrics.latency.labels(path).observe(seconds)
        if self._config.log_requests:
            ms = round(seconds * 1000, 3)
            extra = {"request_id": request_id, "method": "GRPC", "path": path, "status": code, "ms": ms}
            _logger.info("request", extra=extra)


_REASONS: dict[type[Exception], str] = {
    OverloadedError: "overloaded",
    DeadlineError: "deadline",
    NotReadyError: "not_ready",
}
_STATUSES: tuple[tuple[type[Exception], Any, str | None], ...] = (
    (PermissionError, grpc.StatusCode.UNAUTHENTICATED, None),
    (NoSuchItemError, grpc.StatusCode.NOT_FOUND, None),
    (NoContentTowerError, grpc.StatusCode.UNIMPLEMENTED, None),
    (DecodeError, grpc.StatusCode.INVALID_ARGUMENT, "the bytes are no such message"),
    (OverloadedError, grpc.StatusCode.UNAVAILABLE, OVERLOADED),
    (NotReadyError, grpc.StatusCode.UNAVAILABLE, "no release is loaded yet; try again"),
    (DeadlineError, grpc.StatusCode.UNAVAILABLE, "the lookup waited longer than it may; try again"),
    (MetricMismatchError, grpc.StatusCode.INTERNAL, _CANNOT),
    (SearchError, grpc.StatusCode.INVALID_ARGUMENT, None),
    (RecsysError, grpc.StatusCode.INTERNAL, _CANNOT),
    (Exception, grpc.StatusCode.INTERNAL, "the service failed; its log has the request id"),
)
"""The status of each error and what is said, None for its own words; the first that fits."""


def _request_id(metadata: dict[str, str | bytes]) -> str:
    given = metadata.get("x-request-id", "")
    return given if isinstance(given, str) and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _explain(error: Exception, request_id: str) -> tuple[Any, str]:
    """Return the status code and what is said; what is no fault of the caller is logged."""
    code, said = next((code, said) for kind, code, said in _STATUSES if isinstance(error, kind))
    if code is grpc.StatusCode.INTERNAL:
        trace = None if isinstance(error, RecsysError) else error
        _logger.error("lookup failed: %s", error, exc_info=trace, extra={"request_id": request_id})
    return code, (str(error) if said is None else said).encode("utf-8", "replace").decode()
