"""Paths of the service and their OpenAPI description, with the limits of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from recsys_cg.serving.responses import (
    BatchAnswer,
    CandidatesAnswer,
    ErrorAnswer,
    ItemsAnswer,
    ReleaseAnswer,
    StatusAnswer,
)
from recsys_cg.serving.routes import Endpoints

__all__ = ["PATHS", "add_routes"]

PATHS = frozenset(
    {"/", "/healthz", "/metrics", "/openapi.json", "/readyz", "/v1/candidates", "/v1/candidates:batch", "/v1/items"}
    | {"/v1/release", "/v1/similar", "/v1/complementary"}
)
_JSON = "application/json"
_REF = "#/components/schemas/{model}"
_ALWAYS = {401: "the token is missing or wrong", 500: "a defect; the log has the request id"}
_BUSY = {503: "no release is loaded, or there is no room; see Retry-After"}
_BODY = {400: "malformed JSON", 408: "the body took too long to arrive", 413: "the body is too large"}
_CONTENTLESS = {501: "the release's encoder reads no content"}
_INVALID = {422: "a value is missing, of the wrong type, or out of range"}


def add_routes(app: FastAPI, endpoints: Endpoints) -> None:
    """Add every path to ``app``."""
    schemas: dict[str, Any] = {}
    models = endpoints.models
    posted, asked = _BODY | _INVALID | _BUSY, _INVALID | _BUSY
    single, many = _body(models.candidates, schemas), _body(models.batch, schemas)
    similar, items = _query(models.similar, schemas), _query(models.items, schemas)
    content, together = _body(models.content, schemas), _query(models.complementary, schemas)
    missing = {404: "no such item"} | asked
    _post(app, "/v1/candidates", endpoints.candidates, CandidatesAnswer, extra=single, errors=posted)
    _post(app, "/v1/candidates:batch", endpoints.candidates_batch, BatchAnswer, extra=many, errors=posted)
    _get(app, "/v1/similar", endpoints.similar, CandidatesAnswer, extra=similar, errors=missing)
    _post(app, "/v1/similar", endpoints.similar_content, CandidatesAnswer, extra=content, errors=posted | _CONTENTLESS)
    _get(app, "/v1/complementary", endpoints.complementary, CandidatesAnswer, extra=together, errors=missing)
    _get(app, "/v1/items", endpoints.items, ItemsAnswer, extra=items, errors=asked)
    _get(app, "/v1/release", endpoints.release, ReleaseAnswer, errors=_BUSY)
    app.add_api_route("/healthz", endpoints.healthz, responses={200: {"model": StatusAnswer}})
    statuses: dict[int | str, dict[str, Any]] = {status: {"model": StatusAnswer} for status in (200, 503)}
    app.add_api_route("/readyz", endpoints.readyz, responses=statuses)
    app.add_api_route("/metrics", endpoints.expose, include_in_schema=False)
    app.add_api_route("/", endpoints.page, include_in_schema=False)
    _describe_with(app, schemas)


def _post(app: FastAPI, path: str, function: Callable[..., Any], model: type[BaseModel], **what: Any) -> None:
    _add(app, path, function, model, method="POST", **what)


def _get(app: FastAPI, path: str, function: Callable[..., Any], model: type[BaseModel], **what: Any) -> None:
    _add(app, path, function, model, method="GET", **what)


def _add(
    app: FastAPI,
    path: str,
    function: Callable[..., Any],
    model: type[BaseModel],
    *,
    method: str,
    errors: Mapping[int, str],
    extra: dict[str, Any] | None = None,
) -> None:
    responses: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "the answer"}}
    for status, text in (_ALWAYS | dict(errors)).items():
        responses[status] = {"model": ErrorAnswer, "description": text}
    app.add_api_route(path, function, methods=[method], responses=responses, openapi_extra=extra)


def _body(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schemas[model.__name__] = _collect(model, schemas)
    reference = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": reference}}}}


def _query(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = _collect(model, schemas)
    required = schema.get("required", [])
    parameters = [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(entry)}
        for name, entry in schema["properties"].items()
    ]
    return {"parameters": parameters}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without null: a query parameter that is not given is absent."""
    cut = {key: value for key, value in schema.items() if key != "default" or value is not None}
    if "anyOf" in cut:
        cut["anyOf"] = [one for one in cut["anyOf"] if one != {"type": "null"}]
    return cut


def _collect(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REF)
    schemas.update(schema.pop("$defs", {}))
    return schema


def _describe_with(app: FastAPI, schemas: Mapping[str, Any]) -> None:
    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document["components"]["schemas"] |= schemas
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's documented way to extend the description
