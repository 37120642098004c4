"""An S3-compatible server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
import pytest
from moto.server import ThreadedMotoServer

__all__ = ["serve_bucket"]


@contextmanager
def serve_bucket(name: str) -> Iterator[str]:
    """Give the URL of an empty bucket; while the block runs the environment points s3fs to it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for key, value in settings.items():
            patch.setenv(key, value)
        files = fsspec.filesystem("s3")
        files.clear_instance_cache()
        fsspec.filesystem("s3").mkdir(name)
        yield f"s3://{name}"
    server.stop()
    files.clear_instance_cache()
