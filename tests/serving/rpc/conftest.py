"""A service with both faces, whose release has context and content, and a client of each face."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_cg.data.content import FeatureSet
from recsys_cg.serving.client import Client
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.rpc.client import RpcClient
from tests.serving.rpc.server import RpcServer
from tests.serving.test_context import EXTRA
from tests.serving.world import DIM, FEATURES, MAX_HISTORY, World, publish_release

LARGE = 2**53 + 1
"""A genre of the release that no double holds."""
LIMITS = {"max_k": 200, "max_batch": 4, "max_history": 8, "max_body_bytes": 30_000}


@pytest.fixture(scope="session")
def rich_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a release whose query tower reads context and whose genres are alpha and `LARGE`."""
    directory = tmp_path_factory.mktemp("rich")
    program = Path(__file__).parents[1] / "tower.py"
    arguments = [directory, str(MAX_HISTORY), str(DIM), "2"]
    subprocess.run([sys.executable, program, *arguments], check=True, capture_output=True, timeout=240)
    genre, price = FEATURES.features
    features = FeatureSet((replace(genre, vocabulary=("alpha", str(LARGE))), price))
    publish_release(directory / "store", World(directory / "query.tflite", contract=EXTRA, features=features))
    return directory / "store"


@pytest.fixture(scope="session")
def lookup(rich_store: Path) -> CandidateLookup:
    return CandidateLookup.open(rich_store)


@pytest.fixture(scope="session")
def service(rich_store: Path) -> Iterator[RpcServer]:
    with RpcServer(rich_store, **LIMITS) as running:
        yield running


@pytest.fixture(scope="session")
def rpc(service: RpcServer) -> Iterator[RpcClient]:
    with RpcClient(f"grpc://{service.target}", deadline_s=20) as client:
        yield client


@pytest.fixture(scope="session")
def http(service: RpcServer) -> Iterator[Client]:
    with Client(service.url, deadline_s=20) as client:
        yield client
