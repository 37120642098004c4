from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from .contract import EngineContract
from .servers import free_port, serve


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Beam's own job service: it speaks the protocol of Flink's and Spark's job servers, without their engines."""
    port = free_port()
    folder = tmp_path_factory.mktemp("service")
    module = "apache_beam.runners.portability.local_job_service_main"
    command = [sys.executable, "-m", module, f"--port={port}", f"--staging_dir={folder}"]
    with serve(command, port, folder / "service.log") as address:
        yield ["--runner=PortableRunner", f"--job_endpoint={address}"]


class TestJobService(EngineContract):
    pass
