"""The service with its gRPC port, and calls whose bytes no client has looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from tests.serving.server import Server

TOKEN = "correct horse battery staple"
CALL = "/recsys_cg.lookup.v1.Lookup/"


class RpcServer(Server):
    """The service with its gRPC port."""

    def __init__(self, store: Path, **what: Any) -> None:
        super().__init__(store, grpc_port=0, **what)
        self.target = f"127.0.0.1:{next(line for line in self.log if 'grpc_port' in line)['grpc_port']}"


def raw_call(
    server: RpcServer, method: str, body: bytes, **metadata: str
) -> tuple[grpc.StatusCode, str, bytes, dict[str, Any]]:
    """Return status, details, answer and the metadata that came back, of bytes sent as they are."""
    given = [("authorization", f"Bearer {TOKEN}"), *((key.replace("_", "-"), value) for key, value in metadata.items())]
    with grpc.insecure_channel(server.target) as channel:
        try:
            answer, call = channel.unary_unary(CALL + method).with_call(body, timeout=20, metadata=given)
        except grpc.RpcError as error:
            return error.code(), error.details(), b"", dict(error.trailing_metadata())
        return call.code(), call.details(), answer, dict(call.initial_metadata())
