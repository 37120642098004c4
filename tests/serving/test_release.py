from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactFormatError,
    ArtifactMissingError,
    EncoderMismatchError,
    MetricMismatchError,
)
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.release import Release
from tests.serving.world import ITEMS, World, write_release


@pytest.fixture
def copied(release_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release_path, tmp_path / "elsewhere" / "copy"))


def reseal(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    seal(path, kind="release", key="0", info=manifest["info"])


def test_a_copy_elsewhere_gives_the_same_answers_without_the_original(release_path: Path, copied: Path):
    want = CandidateLookup.open(release_path).candidates(history=["a", "c"], user_id="ann", k=9)
    moved = copied.rename(copied.parent / "moved again")
    assert CandidateLookup.open(moved).candidates(history=["a", "c"], user_id="ann", k=9) == want


def test_a_changed_byte_is_refused_and_named(copied: Path):
    for name in ("vectors.npy", "items.parquet", "encoder/query/query.tflite", "histories.lmdb/data.mdb"):
        file = copied / name
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ArtifactCorruptError, match=file.name):
            Release.open(copied)
        file.write_bytes(whole)
    Release.open(copied)


def test_a_missing_file_is_refused_and_named(copied: Path):
    (copied / "vectors.npy").unlink()
    with pytest.raises(ArtifactMissingError, match=r"vectors\.npy"):
        Release.open(copied)
    (copied / "manifest.json").unlink()
    with pytest.raises(ArtifactMissingError, match=r"no manifest\.json"):
        Release.open(copied)


def test_a_newer_format_is_refused(copied: Path):
    path = copied / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(ArtifactFormatError, match="format 99"):
        Release.open(copied)


def test_another_kind_of_directory_is_refused(copied: Path):
    seal(copied, kind="dataset", key="0")
    with pytest.raises(ArtifactError, match="holds a dataset, not a release"):
        Release.open(copied)


def test_items_of_another_encoder_are_refused(tower: Path, tmp_path: Path):
    digests = ["e" * 64] * (len(ITEMS) - 1) + ["f" * 64]
    write_release(tmp_path / "r", World(tower, encoder_digests=digests))
    with pytest.raises(EncoderMismatchError, match="embedded by ffffffffffff"):
        Release.open(tmp_path / "r")


def test_an_encoder_of_another_digest_is_refused(copied: Path, tmp_path: Path):
    other = tmp_path / "other"
    shutil.copytree(copied / "encoder", other)
    manifest = seal(other, kind="encoder", key="1")
    shutil.copyfile(other / "manifest.json", copied / "encoder" / "manifest.json")
    reseal(copied)
    with pytest.raises(EncoderMismatchError, match=manifest.digest[:12]):
        Release.open(copied)


def test_a_query_tower_that_is_not_its_encoders_is_refused(tower: Path, tmp_path: Path):
    encoder = tmp_path / "encoder"
    (encoder / "query").mkdir(parents=True)
    (encoder / "query" / "query.tflite").write_bytes(b"another tower")
    (encoder / "encoder.json").write_text("{}")
    digest = seal(encoder, kind="encoder", key="1").digest
    path = tmp_path / "r"
    write_release(path, World(tower, encoder_digests=[digest] * len(ITEMS), info={"encoder_digest": digest}))
    Release.open(path)
    shutil.copyfile(encoder / "manifest.json", path / "encoder" / "manifest.json")
    reseal(path)
    with pytest.raises(EncoderMismatchError, match=r"is not the file of encoder"):
        Release.open(path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"info": {"metric": "dot"}}, MetricMismatchError, "of metric 'dot'"),
        ({"info": {"metric": None}}, ArtifactCorruptError, "info.metric is None"),
        ({"info": {"release": 5}}, ArtifactCorruptError, "info.release is 5"),
        ({"info": {"history_vectors": "/etc/passwd"}}, ArtifactCorruptError, "info.history_vectors"),
        ({"info": {"history_vectors": "history_vectors.npy"}}, ArtifactMissingError, "history_vectors.npy"),
        ({"contract": {"normalisation": "none"}}, MetricMismatchError, "normalisation 'none'"),
        ({"vectors": np.eye(9, 4, dtype=np.float64)}, ArtifactCorruptError, "float64"),
        ({"vectors": np.ones((9, 4), np.float32)}, MetricMismatchError, "not of unit norm, e.g. 2"),
        ({"vectors": np.full((9, 4), np.nan, np.float32)}, MetricMismatchError, "not of unit norm, e.g. nan"),
        ({"vectors": np.eye(8, 4, dtype=np.float32)}, ArtifactCorruptError, r"\(8, 4\), not float32 \[9, dim\]"),
        ({"items": (*ITEMS[:8], ITEMS[0])}, ArtifactCorruptError, "'a' is there twice"),
        (
            {"items": (*ITEMS[:8], replace(ITEMS[8], bucket="lost"))},
            ArtifactCorruptError,
            "'lost' is none of the buckets",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(tower: Path, tmp_path: Path, change: dict, error, message: str):
    write_release(tmp_path / "r", replace(World(tower), **change))
    with pytest.raises(error, match=message):
        Release.open(tmp_path / "r")


def test_a_table_without_a_column_or_with_null_ids_is_refused(copied: Path):
    path = copied / "items.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["bucket"]), path)
    reseal(copied)
    with pytest.raises(ArtifactCorruptError, match="bucket"):
        Release.open(copied)
    path.write_bytes(b"PAR1")
    reseal(copied)
    with pytest.raises(ArtifactCorruptError, match=r"items\.parquet cannot be read"):
        Release.open(copied)


def test_history_vectors_of_their_own_are_read(tower: Path, tmp_path: Path):
    path = tmp_path / "r"
    write_release(path, World(tower, info={"history_vectors": "history_vectors.npy"}))
    np.save(path / "history_vectors.npy", np.roll(np.load(path / "vectors.npy"), 1, axis=1))
    reseal(path)
    answer = CandidateLookup.open(path).candidates(history=["a"], k=1, deny_seen=False)
    assert answer.candidates[0].item_id == "b"


def test_vectors_are_mapped_not_copied(release_path: Path):
    release = Release.open(release_path)
    base = release.vectors.base
    assert isinstance(base, np.memmap)
    assert release.history_vectors is release.vectors
