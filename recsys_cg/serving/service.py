"""Run the HTTP service: processes, socket, signals, logs."""

from __future__ import annotations

import logging
import logging.config
import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cg.config import ServingConfig
from recsys_cg.errors import ConfigError, EnvironmentMismatchError, StoreError
from recsys_cg.serving.app import create_app
from recsys_cg.serving.live import RedisHistories
from recsys_cg.serving.logs import logging_config
from recsys_cg.serving.lookup import resolve_release
from recsys_cg.serving.protocol import PunctualProtocol
from recsys_cg.serving.trending import RedisTrends

try:
    import uvicorn
    from uvicorn.supervisors import Multiprocess
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the service needs more packages: pip install 'recsys-cg[serve]'") from error

__all__ = ["make_app", "serve"]

_logger = logging.getLogger(__name__)
_STORE, _CONFIG = "RECSYS_CG_SERVE_STORE", "RECSYS_CG_SERVE_CONFIG"
_METRICS = "PROMETHEUS_MULTIPROC_DIR"
_DRAIN_S = 10
_WORKER_ANSWERS_S = 30  # a worker on a machine short of processors is slow, not dead; starting another would not help
_BACKLOG = 2048
_SHORTEST_TOKEN = 16
_SWITCH_S = (
    0.0005  # the lookups' thread and the connections' take turns; at Python's 5 ms each would wait for the other
)


def serve(store: str | Path, config: ServingConfig, *, workers: int = 1) -> None:
    """Serve ``store`` until SIGTERM or SIGINT, then finish what is under way, for 10 s at most.

    Each worker process has its own copy of nothing but the index and the encoder: vectors and stored histories are
    memory-mapped and shared. A worker that dies is started again.

    Args:
        store: a store with a published release, or a release directory.
        config: address, limits; ``token_env`` names the environment variable that holds the bearer token.
        workers: processes, at least 1.

    Raises:
        StoreError, ReleaseNotFoundError: there is nothing to serve.
        ConfigError: the token's variable is not set or is too short, or the address cannot be bound, or that of the
            live histories or trends is none.
    """
    resolve_release(store)
    _read_token(config)
    if config.live_histories is not None:
        RedisHistories(config.live_histories)  # a wrong address is said now, not by a worker
    if config.live_trends is not None:
        RedisTrends(config.live_trends)
    logging.config.dictConfig(logging_config())
    with ExitStack() as stack:
        if config.grpc_port is not None:
            config = config.model_copy(update={"grpc_port": _reserve(config, stack)})
        os.environ[_STORE], os.environ[_CONFIG] = str(store), config.model_dump_json()
        if workers > 1:
            os.environ[_METRICS] = stack.enter_context(tempfile.TemporaryDirectory(prefix="recsys-cg-metrics-"))
            stack.callback(os.environ.pop, _METRICS, None)
        settings = uvicorn.Config(
            "recsys_cg.serving.service:make_app",
            factory=True,
            host=config.host,
            port=config.port,
            workers=workers,
            log_config=logging_config(),
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=30,
            timeout_worker_healthcheck=_WORKER_ANSWERS_S,
            proxy_headers=False,
            http=PunctualProtocol,
            lifespan="on",
            ws="none",
        )
        _run(settings, config, workers)


def _run(settings: Any, config: ServingConfig, workers: int) -> None:
    listener = _bind(config.host, config.port)
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    extra = {"url": url, "grpc_port": config.grpc_port, "workers": workers, "token": config.token_env is not None}
    _logger.info("listening on %s", url, extra=extra)
    if config.token_env is None and not _is_loopback(host):
        _logger.warning("anyone who reaches %s may ask: set serving.token_env, or bind to 127.0.0.1", url)
    try:
        if workers > 1:
            Multiprocess(settings, sockets=[listener]).run()
        else:
            uvicorn.Server(settings).run(sockets=[listener])
    except KeyboardInterrupt:
        _logger.info("stopped")
    finally:
        listener.close()


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. It names its protocol: asyncio switches Nagle's delay off only then."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"serving.host: {host!r} is no address of this machine: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"serving.host/port: {host}:{port} cannot be bound ({error.strerror}); is it in use?"
        ) from error
    listener.set_inheritable(True)
    return listener


def _reserve(config: ServingConfig, stack: ExitStack) -> int:
    """Bind the gRPC port without listening, so that it is free, known, and the workers' to share; return it."""
    import recsys_cg.serving.rpc.server  # noqa: F401, PLC0415 - what is not installed is said now, not by a worker

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.grpc_port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        holder = stack.enter_context(socket.socket(family, kind, protocol))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(address)
    except OSError as error:
        raise ConfigError(
            f"serving.grpc_port: {config.host}:{config.grpc_port} cannot be bound ({error.strerror}); is it in use?"
        ) from error
    port: int = holder.getsockname()[1]
    return port


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _read_token(config: ServingConfig) -> str | None:
    if config.token_env is None:
        return None
    token = os.environ.get(config.token_env, "")
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"serving.token_env: the environment variable {config.token_env} holds no token of at least "
            f"{_SHORTEST_TOKEN} characters"
        )
    return token


def make_app() -> Any:
    """Return the application that `serve` described in the environment; each worker process calls it."""
    try:
        store, text = os.environ[_STORE], os.environ[_CONFIG]
    except KeyError as error:
        raise StoreError("start the service with `recsys-cg serve`") from error
    config = ServingConfig.model_validate_json(text)
    PunctualProtocol.head_s = config.read_seconds
    _leave_out_pandas()
    sys.setswitchinterval(_SWITCH_S)
    app = create_app(store, config, _read_token(config))
    PunctualProtocol.refuse = app.front.refuse_early
    return app


def _leave_out_pandas() -> None:
    """Let PyArrow look for pandas now, and not find it.

    PyArrow imports pandas at the first array it is given, whether or not any is ever used: 90 MB and half a second a
    worker. It looks once. Only for a process that does nothing but serve: nothing in it can make data frames.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


class _Absent(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out of the service", name=fullname)
