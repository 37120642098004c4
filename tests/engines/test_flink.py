from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .contract import EngineContract
from .servers import free_port, serve

pytestmark = [pytest.mark.flink, pytest.mark.slow]

_OPENED = [
    "lang",
    "lang.reflect",
    "net",
    "io",
    "nio",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Flink with two slots, embedded in Beam's job server, which `make flink-test` fetches."""
    jar = os.environ.get("FLINK_JOB_SERVER", "")
    assert Path(jar).is_file(), f"FLINK_JOB_SERVER={jar!r} is no job server: run `make flink-test`"
    port = free_port()
    folder = tmp_path_factory.mktemp("flink")
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    ports = [f"--job-port={port}", "--artifact-port=0", "--expansion-port=0"]
    server = ["--job-host=localhost", "--flink-master=[local]", f"--artifacts-dir={folder}"]
    command = ["java", *opened, "-jar", jar, *server, *ports]
    with serve(command, port, folder / "flink.log") as address:
        yield ["--runner=PortableRunner", f"--job_endpoint={address}", "--parallelism=2"]


class TestFlink(EngineContract):
    pass
