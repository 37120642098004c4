from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import bench_index
from tests.benchmarks.index_data import make_embeddings


def test_embeddings_are_unit_vectors_of_one_world() -> None:
    items, queries = make_embeddings(500, 8, 1), make_embeddings(50, 8, 2)
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(items, make_embeddings(500, 8, 1))
    assert not np.array_equal(items[:50], queries)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="faiss is in the bench extra")
def test_the_quick_bench_meets_its_recall_on_queries_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICK", "1")
    record = json.loads(bench_index.main(tmp_path).read_text(encoding="utf-8"))
    recalls = [figure for figure in record["figures"] if figure["name"].startswith("held_out_recall")]
    assert [figure["met"] for figure in recalls] == [True, True, True]
