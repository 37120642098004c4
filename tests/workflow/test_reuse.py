"""Which vectors of the release that serves still hold for the items as they are now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.workflow.assembly import EncoderSource, previous_vectors

VECTORS = np.eye(4, dtype=np.float32)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Items a to d, the last one embedded by another encoder."""
    items = {
        "item_id": ["a", "b", "c", "d"],
        "content_digest": ["1", "2", "3", "4"],
        "encoder_digest": ["now", "now", "now", "earlier"],
    }
    path = tmp_path / "release"
    path.mkdir()
    pq.write_table(pa.table(items), path / "items.parquet")
    np.save(path / "vectors.npy", VECTORS)
    seal(path, kind="release", key="0" * 64, info={"history_vectors": "vectors.npy"})
    return path


def reused(release: Path, items: dict[str, str]) -> list[int]:
    """Return what is reused for items given as id -> content digest."""
    table = pa.table({"item_id": pa.array(items, pa.string()), "content_digest": pa.array(items.values(), pa.string())})
    rows, old = previous_vectors(release, EncoderSource(release, "now"), table)
    np.testing.assert_array_equal(old.vectors, VECTORS)
    return list(rows.tolist())


def test_the_same_item_of_the_same_content_keeps_its_vector_wherever_it_stands(release: Path) -> None:
    assert reused(release, {"c": "3", "a": "1"}) == [2, 0]


def test_a_changed_a_new_and_a_differently_encoded_item_are_embedded_again(release: Path) -> None:
    assert reused(release, {"a": "changed", "b": "2", "new": "1", "d": "4"}) == [-1, 1, -1, -1]


def test_no_item_reuses_nothing(release: Path) -> None:
    assert reused(release, {}) == []
