"""What `bench_index` keeps between runs: data, built indexes, chosen settings and measured rounds, each with a key.

A piece is used again only where its key is the same: the size, the code that made it and the peer's version.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from recsys_cg.artifacts import digest_json, write_text_atomically

__all__ = ["Pieces", "code_key"]

ROOT = Path(__file__).parents[2]
_BENCH = ("index_child", "index_data", "index_systems")
_OURS = ("exact", "recall", "requests", "scann", "selection", "tree", "tuning", "vectors", "build", "load", "filtering")
PACKAGES = {"faiss_ivf": "faiss-cpu", "faiss_hnsw": "faiss-cpu", "hnswlib": "hnswlib", "usearch": "usearch"}


def code_key(name: str) -> str:
    """Return a digest of the code and the packages that decide what ``name`` builds and how it is tuned."""
    files = [ROOT / "tests" / "benchmarks" / f"{module}.py" for module in _BENCH]
    if name not in PACKAGES:
        files += [ROOT / "recsys_cg" / "index" / f"{module}.py" for module in _OURS]
    package = PACKAGES.get(name, "scann")
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    return digest_json({"code": texts, "package": package, "version": metadata.version(package)})


class Pieces:
    """The pieces of one catalogue size, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the piece ``name`` of ``key``: what is kept, or what ``make`` returns now."""
        kept = self.read(name)
        if kept is not None and kept["key"] == key:
            found: dict[str, Any] = kept["value"]
            return found
        value = make()
        write_text_atomically(self.folder / f"{name}.json", json.dumps({"key": key, "value": value}) + "\n")
        return value

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what is kept under ``name``, with its key."""
        path = self.folder / f"{name}.json"
        if not path.is_file():
            return None
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept

    def clear(self, name: str) -> None:
        """Remove the files of an index that is built anew."""
        path = self.folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
