"""This index and its peers behind one face, for `bench_index`: build, save, load, set, search. One thread each.

Every peer is tuned over its own grid: for each value of the outer parameter the least value of the inner one
that reaches the target, then the fastest of those.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

Setting = tuple[int, int]


def _geometric(first: int, last: int, factor: float = 1.15) -> list[int]:
    steps = math.ceil(math.log(last / first, factor))
    return sorted({min(last, round(first * factor**step)) for step in range(steps + 1)})


class System:
    """A peer: ``outer`` and ``inner`` are its grid, ``label`` what the table calls it."""

    label: str
    outer: ClassVar[list[int]] = [0]
    k = 100

    def warm(self) -> None:
        """Import what the system needs, so that it does not count as memory of the index."""

    def inner(self) -> list[int]:
        """Return the values of the inner parameter, cheapest first."""
        raise NotImplementedError

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        """Build with both cores and save; return what is worth recording."""
        raise NotImplementedError

    def load(self, path: Path, vectors: np.ndarray) -> None:
        """Load what `build` saved."""
        raise NotImplementedError

    def apply(self, setting: Setting) -> None:
        """Search with (outer, inner) from now on."""
        raise NotImplementedError

    def search(self, queries: np.ndarray) -> np.ndarray:
        """Return rows [queries, k]."""
        raise NotImplementedError


class Ours(System):
    """recsys_cg, through `open_index`, contract and all."""

    label = "recsys_cg (ScaNN)"

    def warm(self) -> None:
        from recsys_cg.index.scann_library import import_scann

        import_scann()

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        from recsys_cg.config import IndexConfig
        from recsys_cg.index.build import build_index

        return build_index(vectors, path, config=IndexConfig(kind="scann"), queries=queries)

    def load(self, path: Path, vectors: np.ndarray) -> None:
        from recsys_cg.index.load import open_index
        from recsys_cg.index.scann import ScannRetriever

        retriever = open_index(path, vectors)
        if not isinstance(retriever, ScannRetriever):
            raise RuntimeError(f"ScaNN was not chosen: {retriever.why}")
        self.retriever, self.vectors = retriever, vectors

    def tune(self, queries: np.ndarray, target: float) -> Setting:
        """Choose by the library's own tuning over the tree that was built."""
        from recsys_cg.index.recall import find_truth
        from recsys_cg.index.tuning import Candidate, tune_tree

        candidate = Candidate(self.native, self.retriever.parameters.leaves, 0.0)
        truth = find_truth(self.vectors, queries, self.k)
        tuned = tune_tree([candidate], truth, target=target, items=len(self.vectors), late=lambda: False)
        if tuned is None:
            raise RuntimeError(f"no setting reached {target}")
        return tuned.parameters.reorder, tuned.parameters.leaves_to_search

    @property
    def native(self) -> Any:
        """The bare ScaNN searcher."""
        return self.retriever._native

    def apply(self, setting: Setting) -> None:
        from dataclasses import replace

        self.retriever.parameters = replace(
            self.retriever.parameters, reorder=setting[0], leaves_to_search=setting[1], k=self.k
        )

    def search(self, queries: np.ndarray) -> np.ndarray:
        return self.retriever.search(queries, self.k).rows


class Exact(System):
    """recsys_cg's exact search; there is nothing to tune."""

    label = "recsys_cg (exact)"

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        return {}

    def load(self, path: Path, vectors: np.ndarray) -> None:
        from recsys_cg.index.exact import ExactRetriever

        self.retriever = ExactRetriever(vectors)

    def apply(self, setting: Setting) -> None:
        return

    def search(self, queries: np.ndarray) -> np.ndarray:
        return self.retriever.search(queries, self.k).rows


class _Faiss(System):
    def warm(self) -> None:
        import faiss  # noqa: F401

    def load(self, path: Path, vectors: np.ndarray) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self.index = faiss.read_index(str(path))

    def search(self, queries: np.ndarray) -> np.ndarray:
        return self.index.search(queries, self.k)[1]


class FaissIvf(_Faiss):
    label = "faiss IVF,PQ32x4fsr,RFlat"
    outer: ClassVar[list[int]] = [2, 3, 4, 6, 8, 12, 16]  # k_factor of the refinement

    def inner(self) -> list[int]:
        return _geometric(1, self.index_nlist())

    def index_nlist(self) -> int:
        import faiss

        return int(faiss.extract_index_ivf(self.index).nlist)

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        import faiss

        lists = round(4 * math.sqrt(len(vectors)))
        index = faiss.index_factory(
            vectors.shape[1], f"IVF{lists},PQ{vectors.shape[1] // 2}x4fsr,RFlat", faiss.METRIC_INNER_PRODUCT
        )
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(path))
        return {"lists": lists}

    def apply(self, setting: Setting) -> None:
        import faiss

        self.index.k_factor = float(setting[0])
        faiss.extract_index_ivf(self.index).nprobe = setting[1]


class FaissHnsw(_Faiss):
    label = "faiss HNSW16"

    def inner(self) -> list[int]:
        return _geometric(100, 3000)

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        import faiss

        index = faiss.IndexHNSWFlat(vectors.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200
        index.add(vectors)
        faiss.write_index(index, str(path))
        return {}

    def apply(self, setting: Setting) -> None:
        self.index.hnsw.efSearch = setting[1]


class Hnswlib(System):
    label = "hnswlib M 16"

    def warm(self) -> None:
        import hnswlib  # noqa: F401

    def inner(self) -> list[int]:
        return _geometric(100, 3000)

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        import hnswlib

        index = hnswlib.Index("ip", vectors.shape[1])
        index.init_index(len(vectors), ef_construction=200, M=16)
        index.add_items(vectors, num_threads=2)
        index.save_index(str(path))
        return {}

    def load(self, path: Path, vectors: np.ndarray) -> None:
        import hnswlib

        self.index = hnswlib.Index("ip", vectors.shape[1])
        self.index.load_index(str(path), len(vectors))
        self.index.set_num_threads(1)

    def apply(self, setting: Setting) -> None:
        self.index.set_ef(setting[1])

    def search(self, queries: np.ndarray) -> np.ndarray:
        return self.index.knn_query(queries, self.k, num_threads=1)[0]


class Usearch(System):
    label = "usearch M 16"

    def warm(self) -> None:
        import usearch.index  # noqa: F401

    def inner(self) -> list[int]:
        return _geometric(100, 3000)

    def build(self, vectors: np.ndarray, path: Path, queries: np.ndarray) -> dict[str, Any]:
        from usearch.index import Index

        index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=16, expansion_add=200)
        index.add(np.arange(len(vectors), dtype=np.uint64), vectors, threads=2)
        index.save(str(path))
        return {}

    def load(self, path: Path, vectors: np.ndarray) -> None:
        from usearch.index import Index

        self.index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=16)
        self.index.load(str(path))

    def apply(self, setting: Setting) -> None:
        self.index.expansion_search = setting[1]

    def search(self, queries: np.ndarray) -> np.ndarray:
        return self.index.search(queries, self.k, threads=1).keys.reshape(len(queries), -1)


SYSTEMS: dict[str, type[System]] = {
    "recsys_cg": Ours,
    "exact": Exact,
    "faiss_ivf": FaissIvf,
    "faiss_hnsw": FaissHnsw,
    "hnswlib": Hnswlib,
    "usearch": Usearch,
}
