from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import bench_serve
from tests.benchmarks.index_data import make_embeddings
from tests.benchmarks.serve_load import Load
from tests.benchmarks.serve_world import LENGTH, NOW_S, make_histories, make_times


def test_histories_hold_distinct_rows_and_rising_times() -> None:
    vectors = make_embeddings(1000, 64, 1)
    rows, times = make_histories(vectors, 20, 3), make_times(20, 4)
    assert rows.shape == times.shape == (20, LENGTH)
    assert all(len(set(history)) == LENGTH for history in rows.tolist())
    assert (np.diff(times, axis=1) > 0).all()
    assert times.max() < NOW_S
    likeness = np.einsum("ilk,imk->ilm", vectors[rows], vectors[rows])
    assert likeness.mean() > (vectors @ vectors.T).mean() + 0.05


class Odd(BaseHTTPRequestHandler):
    """Answers every second request with 503."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).count += 1
        body = b"x" * 5000
        self.send_response(200 if type(self).count % 2 else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.mark.parametrize("mode", ["closed", "open"])
def test_the_load_generator_counts_what_it_saw(mode: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        load = Load("127.0.0.1", server.server_port, "/", [b"{}", b'{"k": 1}'])
        result = asyncio.run(load.closed(2, 0.5) if mode == "closed" else load.open(40.0, 0.5))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    rates = result["per_second"]
    assert set(rates) <= {"200", "503", "0"}
    assert rates["200"] == pytest.approx(rates["503"], rel=0.5)
    assert 0 < result["p50_ms"] <= result["p99_ms"]


@pytest.mark.slow
def test_the_quick_bench_answers_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", "1")
    record = json.loads(bench_serve.main(tmp_path).read_text(encoding="utf-8"))
    figures = {figure["name"]: figure for figure in record["figures"]}
    assert figures["soak_errors"]["met"]
    assert figures["soak_swaps"]["value"] >= 5
