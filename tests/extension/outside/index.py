"""An index backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.index.base import Allow, Exclude, Retriever, SearchResult, Vectors
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.index.requests import check_allow


class TwoHalves:
    """An index backend: exact search over two halves of the rows, one after the other."""

    kind = "tests.extension.outside.index:TwoHalves"
    is_exact = True

    def __init__(self, vectors: Vectors, why: str) -> None:
        self._whole = ExactRetriever(vectors)
        self.size, self.dim = vectors.shape
        self.why = why

    @classmethod
    def build(cls, vectors: Vectors, directory: Path, *, queries: Vectors, k: int, seed: int, **options: Any) -> str:
        del vectors, queries, k, seed
        (directory / "halves.json").write_text(json.dumps(options), encoding="utf-8")
        return "two halves, as asked for"

    @classmethod
    def open(cls, directory: Path, vectors: Vectors, *, threads: int) -> Retriever:
        del threads
        options = json.loads((directory / "halves.json").read_text(encoding="utf-8"))
        return cls(vectors, f"two halves with {options}")

    def search(
        self, queries: Vectors, k: int, *, exclude: Exclude | None = None, allow: Allow | None = None
    ) -> SearchResult:
        eligible = np.ones(self.size, bool)
        if allow is not None:
            eligible = np.isin(np.arange(self.size), check_allow(allow, self.size))
        half = np.arange(self.size) < self.size // 2
        parts = [self._whole.search(queries, k, exclude=exclude, allow=eligible & side) for side in (half, ~half)]
        rows = np.concatenate([part.rows for part in parts], axis=1)
        scores = np.concatenate([part.scores for part in parts], axis=1)
        order = np.lexsort((np.where(rows < 0, np.iinfo(np.int32).max, rows), -scores), axis=1)[:, :k]
        found = np.minimum(parts[0].found + parts[1].found, k).astype(np.int32)
        return SearchResult(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1), found)


class OneHalf(TwoHalves):
    """The same, forgetting the second half."""

    kind = "tests.extension.outside.index:OneHalf"

    def search(
        self, queries: Vectors, k: int, *, exclude: Exclude | None = None, allow: Allow | None = None
    ) -> SearchResult:
        del allow
        return self._whole.search(queries, k, exclude=exclude, allow=np.arange(self.size // 2))
