from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import FORMAT, seal
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactFormatError,
    ArtifactMissingError,
    EncoderMismatchError,
)
from recsys_cg.release.contents import check_vectors, measure_vectors, open_release
from tests.release.conftest import item_table, write_release


def reseal(release: Path, **info: object) -> None:
    manifest = json.loads((release / "manifest.json").read_text())
    seal(release, kind="release", key="k", info={**manifest["info"], **info})


def test_an_opened_release_gives_items_and_mapped_vectors(tmp_path: Path) -> None:
    release = open_release(write_release(tmp_path / "r", "r1", items=6))
    assert release.name == "r1"
    assert release.items.num_rows == 6
    assert release.vectors.shape == (6, 4)
    assert isinstance(release.vectors.base, np.memmap)
    assert release.history_vectors is release.vectors


def test_a_moved_release_opens_and_answers_the_same(tmp_path: Path) -> None:
    before = open_release(write_release(tmp_path / "r", "r1")).vectors.copy()
    (tmp_path / "r").rename(tmp_path / "moved")
    assert np.array_equal(open_release(tmp_path / "moved").vectors, before)


def test_history_vectors_of_their_own_are_read(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", "r1", items=3)
    np.save(release / "history_vectors.npy", np.ones((3, 2), np.float32))
    reseal(release, history_vectors="history_vectors.npy")
    assert open_release(release).history_vectors.shape == (3, 2)


def test_a_release_without_items_opens(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", "r1", vectors=np.zeros((0, 4)))
    assert open_release(release).vectors.shape == (0, 4)


def test_each_kind_of_damage_is_named(tmp_path: Path) -> None:
    changed = write_release(tmp_path / "changed", "r1")
    raw = bytearray((changed / "items.parquet").read_bytes())
    raw[10] ^= 0xFF
    (changed / "items.parquet").write_bytes(bytes(raw))
    with pytest.raises(ArtifactCorruptError, match=r"items\.parquet was changed"):
        open_release(changed)
    missing = write_release(tmp_path / "missing", "r1")
    (missing / "vectors.npy").unlink()
    with pytest.raises(ArtifactMissingError, match=r"vectors\.npy"):
        open_release(missing)
    newer = write_release(tmp_path / "newer", "r1")
    manifest = json.loads((newer / "manifest.json").read_text())
    (newer / "manifest.json").write_text(json.dumps({**manifest, "format": FORMAT + 1}))
    with pytest.raises(ArtifactFormatError, match="upgrade it"):
        open_release(newer)
    encoder = write_release(tmp_path / "encoder", "r1")
    with pytest.raises(ArtifactError, match="holds a encoder"):
        open_release(encoder / "encoder")


def test_an_encoder_of_another_digest_is_refused(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", "r1")
    other = write_release(tmp_path / "o", "r1", encoder="b")
    for file in (other / "encoder").rglob("*"):
        if file.is_file():
            (release / "encoder" / file.relative_to(other / "encoder")).write_bytes(file.read_bytes())
    reseal(release)
    with pytest.raises(EncoderMismatchError, match="but its vectors are of encoder"):
        open_release(release)


@pytest.mark.parametrize(
    ("vectors", "match"),
    [
        (np.ones((6, 4), np.float64), "float64"),
        (np.ones((5, 4), np.float32), r"not float32 \[6, dim\]"),
        (np.ones(6, np.float32), r"not float32 \[6, dim\]"),
        (np.ones((6, 3), np.float32), "3 dimensions, not 4"),
    ],
)
def test_vectors_of_another_shape_than_the_items_are_refused(tmp_path: Path, vectors: np.ndarray, match: str) -> None:
    release = write_release(tmp_path / "r", "r1", items=6)
    np.save(release / "vectors.npy", vectors)
    reseal(release)
    with pytest.raises(ArtifactCorruptError, match=match):
        open_release(release)


def test_items_out_of_order_or_without_a_column_are_refused(tmp_path: Path) -> None:
    release = write_release(tmp_path / "r", "r1", items=3)
    digest = open_release(release).manifest.info["encoder_digest"]
    pq.write_table(item_table(3, digest).take([2, 1, 0]), release / "items.parquet")
    reseal(release)
    with pytest.raises(ArtifactCorruptError, match="does not count from 0"):
        open_release(release)
    pq.write_table(item_table(3, digest).drop_columns(["q", "title"]), release / "items.parquet")
    reseal(release)
    with pytest.raises(ArtifactCorruptError, match="lacks the columns title, q"):
        open_release(release)
    (release / "items.parquet").write_bytes(b"PAR1")
    reseal(release)
    with pytest.raises(ArtifactCorruptError, match="cannot be read"):
        open_release(release)


def test_vectors_are_measured_row_by_row() -> None:
    vectors = np.array([[3.0, 4.0], [0.6, 0.8], [np.nan, 1.0], [np.inf, 0.0]])
    assert measure_vectors(vectors) == {"count": 4, "dim": 2, "not_finite": 2, "max_norm_error": 4.0}
    assert measure_vectors(np.zeros((0, 2)))["max_norm_error"] == 0.0
    assert check_vectors(np.array([[0.6, 0.8]], np.float32))["max_norm_error"] < 1e-6
