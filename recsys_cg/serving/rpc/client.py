"""A small client of the gRPC face: one kept channel, deadlines, retries; asks and answers as the HTTP client does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from urllib.parse import urlsplit

from recsys_cg.errors import ConfigError, EnvironmentMismatchError, SearchError, ServiceError
from recsys_cg.serving.answer import Answer
from recsys_cg.serving.rpc.messages import (
    pb,
    read_answer,
    write_content_request,
    write_item_request,
    write_request,
    write_requests,
)

try:
    import grpc
except ImportError as error:  # pragma: no cover - a property of the installation
    raise EnvironmentMismatchError("the gRPC client needs more packages: pip install 'recsys-cg[grpc]'") from error

__all__ = ["RpcClient"]

_SERVICE = "recsys_cg.lookup.v1.Lookup"
_MOST_ATTEMPTS = 5  # gRPC takes no more
_STATUSES = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
}
"""What HTTP would have said, so that callers of either client read one status."""


class RpcClient:
    """Ask the service over gRPC; safe to use from many threads, which share one connection.

    A call is tried again on UNAVAILABLE (a broken connection, no room, no release yet) after the pause that the service
    names, or growing ones with jitter, until the deadline. Every call only reads, so trying again is safe.

    Example:
        >>> with RpcClient("grpc://127.0.0.1:8081") as client:  # doctest: +SKIP
        ...     client.candidates(history=["50", "181"], k=10).candidates[0].item_id

    Args:
        url: ``grpc://host:port``, or ``grpcs://host:port`` for TLS.
        token: bearer token, or None.
        deadline_s: time for a call, retries included; above 0.
        retries: further attempts after the first, 0 to 4.
    """

    def __init__(self, url: str, *, token: str | None = None, deadline_s: float = 2.0, retries: int = 3) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("grpc", "grpcs") or not parts.netloc:
            raise ConfigError(f"{url!r} is no address of a service; write grpc://host:port")
        if deadline_s <= 0 or not 0 <= retries < _MOST_ATTEMPTS:
            raise ConfigError(f"deadline_s = {deadline_s}, retries = {retries}: a time above 0 and 0 to 4 retries")
        self._where, self._deadline_s = parts.netloc, deadline_s
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        options = [("grpc.service_config", _service_config(retries)), ("grpc.enable_retries", int(retries > 0))]
        if parts.scheme == "grpcs":
            self._channel = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(), options)
        else:
            self._channel = grpc.insecure_channel(parts.netloc, options)
        self._methods = {
            name: self._channel.unary_unary(
                f"/{_SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=kind.FromString,
            )
            for name, kind in (
                ("Candidates", pb.CandidatesAnswer),
                ("CandidatesBatch", pb.BatchAnswer),
                ("Similar", pb.CandidatesAnswer),
                ("SimilarContent", pb.CandidatesAnswer),
                ("Complementary", pb.CandidatesAnswer),
                ("Release", pb.ReleaseAnswer),
            )
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def candidates(self, **request: Any) -> Answer:
        """Return candidates; the arguments are those of `CandidateLookup.candidates`.

        Raises:
            SearchError: the request cannot be sent, or the service refused it as invalid.
            ServiceError: no answer within the deadline and the retries, or a refusal.
        """
        return read_answer(self._call("Candidates", write_request(request)))

    def candidates_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Return answers to many requests, all from one release; raises as `candidates`."""
        return [read_answer(one) for one in self._call("CandidatesBatch", write_requests(requests)).answers]

    def similar(self, item_id: str, k: int = 100, *, at: float | str | datetime | None = None) -> Answer:
        """Return the items nearest to an item; raises as `candidates`, and ServiceError 404 for an unknown item."""
        message = write_item_request(pb.SimilarRequest, item_id=item_id, k=k, at=at)
        return read_answer(self._call("Similar", message))

    def similar_content(
        self, content: Mapping[str, Any], k: int = 100, *, at: float | str | datetime | None = None
    ) -> Answer:
        """Return the items nearest to one that the release need not have, by its row of the catalogue.

        Raises as `candidates`, and ServiceError 501 where the release's encoder reads no content.
        """
        return read_answer(self._call("SimilarContent", write_content_request(content, k=k, at=at)))

    def complementary(
        self,
        item_id: str,
        k: int = 100,
        *,
        event: str | None = None,
        at: float | str | datetime | None = None,
    ) -> Answer:
        """Return the items that go with an item; raises as `similar`, and SearchError for an unknown event."""
        message = write_item_request(pb.ComplementaryRequest, item_id=item_id, k=k, event=event, at=at)
        return read_answer(self._call("Complementary", message))

    def release(self) -> dict[str, Any]:
        """Return what the service says of the release that serves; raises as `candidates`."""
        answer = self._call("Release", pb.ReleaseRequest())
        fields = {field.name: getattr(answer, field.name) for field in pb.ReleaseAnswer.DESCRIPTOR.fields}
        return fields | {"events": list(answer.events), "refused": answer.refused or None}

    def _call(self, method: str, message: Any) -> Any:
        try:
            return self._methods[method](message, timeout=self._deadline_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code, said = error.code(), error.details()
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                raise SearchError(str(said)) from error
            request_id = dict(error.trailing_metadata() or ()).get("x-request-id")
            raise ServiceError(f"{self._where}: {code.name}: {said}", _STATUSES.get(code), request_id) from error


def _service_config(retries: int) -> str:
    config: dict[str, Any] = {"name": [{"service": _SERVICE}]}
    if retries:
        config["retryPolicy"] = {
            "maxAttempts": retries + 1,
            "initialBackoff": "0.05s",
            "maxBackoff": "2s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
    return json.dumps({"methodConfig": [config]})
