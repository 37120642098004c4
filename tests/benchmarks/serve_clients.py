"""The shipped clients at work, for `bench_serve`: threads that ask without pause through one client.

    python -m tests.benchmarks.serve_clients URL BODIES THREADS SECONDS

The URL says which client: http:// or grpc://. Prints answers a second and latency percentiles as one line of JSON; the
time to write requests and to read answers into Python objects is included.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.serving.client import Client
from recsys_cg.serving.rpc.client import RpcClient


def main() -> None:
    url, bodies, threads, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    requests = [json.loads(line) for line in bodies.read_text(encoding="utf-8").splitlines()]
    made: Any = RpcClient if url.startswith("grpc") else Client
    latencies: list[float] = []
    with made(url, deadline_s=10) as client:
        client.candidates(**requests[0])
        until = time.perf_counter() + seconds
        workers = [
            threading.Thread(
                target=_ask, args=(client, islice(cycle(requests), place, None, threads), until, latencies)
            )
            for place in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    p50, p99 = np.percentile(latencies, [50, 99]).tolist()
    print(json.dumps({"per_second": len(latencies) / seconds, "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3}))


def _ask(client: Any, requests: Any, until: float, latencies: list[float]) -> None:
    for request in requests:
        started = time.perf_counter()
        if started >= until:
            return
        client.candidates(**request)
        latencies.append(time.perf_counter() - started)


if __name__ == "__main__":
    main()
