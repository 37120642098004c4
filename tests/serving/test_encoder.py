from __future__ import annotations

import json
import math
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, MetricMismatchError, SearchError
from recsys_cg.serving.encoder import EncoderContract, QueryEncoder


@pytest.fixture(scope="module")
def encoder(release_path: Path) -> QueryEncoder:
    return QueryEncoder.open(release_path / "encoder")


@pytest.fixture
def folder(release_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release_path / "encoder", tmp_path / "encoder"))


def tensors(lengths: list[int]) -> dict[str, np.ndarray]:
    """History i holds unit vector 0 first and then unit vector 1, 1000 s apart and 0 s before the query."""
    batch = len(lengths)
    history = np.zeros((batch, 4, 4), np.float32)
    history[:, 0, 0] = 1
    history[:, 1:, 1] = 1
    gap_s = np.zeros((batch, 4), np.float32)
    gap_s[:, 0] = 1000
    return {
        "history": history,
        "gap_s": gap_s,
        "event": np.zeros((batch, 4), np.int32),
        "length": np.array(lengths, np.int32),
    }


def test_the_vector_is_what_the_tower_computes(encoder: QueryEncoder):
    older, newer = math.exp(-1), 1.0
    norm = math.hypot(older, newer)
    assert encoder.encode(**tensors([2])) == pytest.approx(np.array([[older / norm, newer / norm, 0, 0]]), abs=1e-6)


def test_the_event_counts(encoder: QueryEncoder):
    given = tensors([2])
    given["event"][0, 0] = 1
    older, newer = 2 * math.exp(-1), 1.0
    norm = math.hypot(older, newer)
    assert encoder.encode(**given)[0, :2] == pytest.approx([older / norm, newer / norm], abs=1e-6)


def test_an_empty_history_gives_a_finite_unit_vector(encoder: QueryEncoder):
    assert encoder.encode(**tensors([0])).tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize("batch", [0, 1, 2, 255, 256, 257, 600])
def test_a_batch_of_any_size_gives_each_row_its_own_vector(encoder: QueryEncoder, batch: int):
    lengths = [place % 5 for place in range(batch)]
    alone = {length: encoder.encode(**tensors([length]))[0] for length in range(5)}
    together = encoder.encode(**tensors(lengths))
    assert together.shape == (batch, 4)
    for place, length in enumerate(lengths):
        assert together[place] == pytest.approx(alone[length], abs=1e-6)


def test_many_threads_get_their_own_answers(release_path: Path):
    encoder = QueryEncoder.open(release_path / "encoder", interpreters=2)
    wrong: list[object] = []

    def work(length: int) -> None:
        expected = tensors([length])
        want = encoder.encode(**expected)
        for batch in (1, 3, 1, 2) * 20:
            got = encoder.encode(**tensors([length] * batch))
            if not np.allclose(got, want, atol=1e-6):
                wrong.append((length, batch))

    threads = [threading.Thread(target=work, args=(length,)) for length in (0, 1, 2, 3, 4, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert wrong == []
    assert len(encoder._idle) <= 2


def test_a_batch_is_encoded_in_parts_whose_sizes_keep_their_interpreters(release_path: Path):
    encoder = QueryEncoder.open(release_path / "encoder", interpreters=8)
    for batch in (1, 5, 9, 71, 6):
        assert encoder.encode(**tensors([2] * batch)).shape == (batch, 4)
    assert sorted(runner.rows for runner in encoder._idle) == [1, 2, 4, 8, 32]


def test_with_fewer_interpreters_than_sizes_the_one_idle_longest_changes(release_path: Path):
    encoder = QueryEncoder.open(release_path / "encoder", interpreters=2)
    for batch in (4, 1, 2):
        assert encoder.encode(**tensors([2] * batch)).shape == (batch, 4)
    assert [runner.rows for runner in encoder._idle] == [1, 2]


def test_a_nan_in_a_history_is_an_error_not_a_vector(encoder: QueryEncoder):
    given = tensors([1, 2])
    given["history"][1, 0, 0] = np.nan
    with pytest.raises(ArtifactCorruptError, match=r"NaN or infinity for rows \[1\]"):
        encoder.encode(**given)


def test_a_vector_that_is_not_of_unit_norm_is_an_error(encoder: QueryEncoder):
    given = tensors([1])
    given["history"][0, 0] = 1e-8
    with pytest.raises(MetricMismatchError, match="unit norm was promised"):
        encoder.encode(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("history", np.zeros((1, 4, 3), np.float32)),
        ("history", np.zeros((1, 4, 4), np.float64)),
        ("gap_s", np.zeros((2, 4), np.float32)),
        ("event", np.zeros((1, 4), np.int64)),
        ("event", np.zeros((1, 5), np.int32)),
    ],
)
def test_another_shape_or_type_is_refused(encoder: QueryEncoder, name: str, value: np.ndarray):
    with pytest.raises(SearchError, match=f"^{name} is "):
        encoder.encode(**(tensors([1]) | {name: value}))


def test_the_contract_is_read(folder: Path):
    assert EncoderContract.read(folder) == EncoderContract(4, 4, 4, ("buy", "view"))


def test_the_bonus_of_repeats_is_read(folder: Path):
    path = folder / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 3, "repeat_bonus": 0.5}))
    assert EncoderContract.read(folder).repeat_bonus == 0.5


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"normalisation": "none"}, MetricMismatchError),
        ({"schema": 2}, ArtifactCorruptError),
        ({"schema": 3}, ArtifactCorruptError),
        ({"repeat_bonus": 0.5}, ArtifactCorruptError),
        ({"schema": 3, "repeat_bonus": 2.5}, ArtifactCorruptError),
        ({"schema": 3, "repeat_bonus": -0.5}, ArtifactCorruptError),
        ({"schema": 3, "repeat_bonus": float("nan")}, ArtifactCorruptError),
        ({"dim": "x"}, ArtifactCorruptError),
        ({"dim": None}, ArtifactCorruptError),
        ({"max_history": 0}, ArtifactCorruptError),
        ({"events": []}, ArtifactCorruptError),
        ({"dim": 5}, ArtifactCorruptError),
        ({"max_history": 5}, ArtifactCorruptError),
    ],
)
def test_a_contract_that_does_not_hold_is_refused(folder: Path, change: dict, error: type[Exception]):
    path = folder / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error):
        QueryEncoder.open(folder)


def test_a_missing_or_damaged_file_is_named(folder: Path):
    model = folder / "query" / "query.tflite"
    whole = model.read_bytes()
    for content in (b"", b"not a model", whole[: len(whole) // 2]):
        model.write_bytes(content)
        with pytest.raises(ArtifactCorruptError, match=r"query\.tflite"):
            QueryEncoder.open(folder)
    model.unlink()
    with pytest.raises(ArtifactMissingError, match=r"query\.tflite"):
        QueryEncoder.open(folder)
    (folder / "encoder.json").write_text("{")
    with pytest.raises(ArtifactCorruptError, match=r"encoder\.json"):
        QueryEncoder.open(folder)
    (folder / "encoder.json").unlink()
    with pytest.raises(ArtifactMissingError, match=r"encoder\.json"):
        QueryEncoder.open(folder)
