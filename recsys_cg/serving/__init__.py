"""Lookup: the in-process library, the HTTP and the gRPC service. Reads a release; imports no TensorFlow and no Beam.

`CandidateLookup` looks up in a Python process, `recsys_cg.serving.service.serve` runs the service, `Client` and
`RpcClient` (extra ``grpc``) call it. Each name loads its module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recsys_cg.serving.client import Client
    from recsys_cg.serving.live import RedisHistories
    from recsys_cg.serving.lookup import CandidateLookup
    from recsys_cg.serving.rpc.client import RpcClient
    from recsys_cg.serving.trending import RedisTrends

__all__ = ["CandidateLookup", "Client", "RedisHistories", "RedisTrends", "RpcClient"]

_MODULES = {
    "CandidateLookup": "lookup",
    "Client": "client",
    "RedisHistories": "live",
    "RedisTrends": "trending",
    "RpcClient": "rpc.client",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
