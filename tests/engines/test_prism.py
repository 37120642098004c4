from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .contract import EngineContract
from .servers import free_port, serve

pytestmark = [pytest.mark.prism, pytest.mark.slow]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Prism, Beam's runner in Go, which `make prism-test` builds."""
    binary = os.environ.get("PRISM", "")
    assert Path(binary).is_file(), f"PRISM={binary!r} is no program: run `make prism-test`"
    port = free_port()
    folder = tmp_path_factory.mktemp("prism")
    command = [binary, f"--job_port={port}", "--serve_http=false"]
    with serve(command, port, folder / "prism.log") as address:
        yield ["--runner=PortableRunner", f"--job_endpoint={address}"]


class TestPrism(EngineContract):
    pass
