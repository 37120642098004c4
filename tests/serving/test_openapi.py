"""Requests made from the service's own OpenAPI description, right and wrong ones; every check of schemathesis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS

from tests.serving.server import Server
from tests.serving.world import World, publish_release

EXAMPLES = 15
ACCEPTANCE = "positive_data_acceptance"
PATHS_WITHOUT_INPUT = {"GET /v1/release", "GET /healthz", "GET /readyz"}
RELEASE_DECIDES = {"POST /v1/similar", "GET /v1/complementary"}
"""Content that the release's features read, and its event names: no schema of the service knows them; 422 is right."""


@pytest.fixture(scope="module")
def server(tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("openapi") / "store"
    publish_release(store, World(tower))
    with Server(store, max_k=50, max_batch=4, max_history=8, log_requests=False) as running:
        yield running


@pytest.fixture(scope="module")
def operations(server: Server) -> dict[str, Any]:
    description = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    found = [result.ok() for result in description.get_all_operations()]
    return {operation.label: operation for operation in found}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_the_service_keeps_its_description(server: Server, operations: dict[str, Any], mode: GenerationMode) -> None:
    assert PATHS_WITHOUT_INPUT | {"POST /v1/candidates", "POST /v1/candidates:batch"} < set(operations)
    for label, operation in operations.items():
        if mode is GenerationMode.NEGATIVE and label in PATHS_WITHOUT_INPUT:
            continue  # nothing there can be wrong
        check_operation(operation, mode, [ACCEPTANCE] if label in RELEASE_DECIDES else [])
    assert server.process.poll() is None
    assert not [line for line in server.log if line.get("level") == "error"]


def has_context(body: Any) -> bool:
    """Tell whether a request gives context: its names, too, are the release's."""
    requests = body.get("requests", [body]) if isinstance(body, dict) else []
    many = requests if isinstance(requests, list) else []
    return any(isinstance(request, dict) and bool(request.get("context")) for request in many)


def check_operation(operation: Any, mode: GenerationMode, left_out: list[str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        by_release = [ACCEPTANCE] if has_context(case.body) else []
        excluded = [CHECKS.get_one(name) for name in {*left_out, *by_release}]
        case.call_and_validate(excluded_checks=excluded)

    check()
