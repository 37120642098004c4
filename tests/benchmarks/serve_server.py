"""The service with one more path, for `bench_serve`: ``/constant`` takes the same way and answers a fixed body.

    python -m tests.benchmarks.serve_server STORE CONFIG WORKERS BYTES

The path goes through the same server, middleware and routing, reads the body of the request, and then answers BYTES
bytes at once: the limit that this stack sets to any answer of that size.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from recsys_cg.config import ServingConfig
from recsys_cg.serving import service

_BYTES = "BENCH_SERVE_BYTES"
_make_app = service.make_app


def make_app_with_constant() -> Any:
    """Return the service's application with the path ``/constant``."""
    app = _make_app()
    body = b'{"constant":"' + b"x" * (int(os.environ[_BYTES]) - 15) + b'"}'

    async def constant(request: Request) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    app.add_api_route("/constant", constant, methods=["POST"])
    return app


# Worker processes import this module anew, as their main module, and so get the same path.
service.make_app = make_app_with_constant

if __name__ == "__main__":
    os.environ[_BYTES] = sys.argv[4]
    config = ServingConfig.model_validate_json(sys.argv[2])
    service.serve(Path(sys.argv[1]), config, workers=int(sys.argv[3]))
