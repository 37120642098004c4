from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError
from recsys_cg.serving import histories as module
from recsys_cg.serving.histories import HistoryStore, StoredHistory, write_histories
from tests.serving.world import SEQUENCES, sequence_table


def stored(directory: Path, user: str, items: int = 9) -> StoredHistory:
    found = HistoryStore.open(directory, items=items).get(user)
    assert found is not None
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    assert write_histories(tmp_path / "h", [sequence_table(SEQUENCES)], max_history=4) == 4
    return tmp_path / "h"


def test_a_history_comes_back_as_it_was_written(directory: Path):
    found = stored(directory, "ann")
    assert found.history.rows.tolist() == [1, 0, 0]
    assert found.history.times_us.tolist() == [1000, 2000, 3000]
    assert found.history.events.tolist() == [1, 0, 0]
    assert found.seen.tolist() == [0, 1]


def test_of_a_long_history_the_last_events_are_kept_and_all_rows_are_seen(directory: Path):
    found = stored(directory, "böb")
    assert found.history.rows.tolist() == [2, 3, 4, 0]
    assert found.history.times_us.tolist() == [3, 4, 5, 6]
    assert found.history.events.tolist() == [0, 0, 0, 1]
    assert found.seen.tolist() == [0, 1, 2, 3, 4]


def test_user_ids_that_lmdb_cannot_hold_work(directory: Path):
    assert stored(directory, "u" * 900).history.rows.tolist() == [2]
    assert stored(directory, "").history.rows.tolist() == [3]


@pytest.mark.parametrize("user", ["nobody", "u" * 901, "\ud800", "an", "ann\0"])
def test_an_unknown_user_is_none(directory: Path, user: str):
    assert HistoryStore.open(directory, items=9).get(user) is None


def test_rows_are_mapped_and_what_is_gone_is_left_out(tmp_path: Path):
    row_map = np.array([5, -1, 6, -1, 7], np.int32)
    written = write_histories(
        tmp_path / "h",
        [sequence_table([SEQUENCES[1], ("gone", [1, 3], [1, 2], [0, 0])])],
        max_history=2,
        row_map=row_map,
    )
    assert written == 1
    found = stored(tmp_path / "h", "böb")
    assert (found.history.rows.tolist(), found.seen.tolist()) == ([7, 5], [5, 6, 7])
    assert HistoryStore.open(tmp_path / "h", items=9).get("gone") is None


def test_a_row_outside_the_map_is_refused(tmp_path: Path):
    with pytest.raises(ArtifactCorruptError, match="the catalogue has 2 items"):
        write_histories(tmp_path / "h", [sequence_table(SEQUENCES)], max_history=2, row_map=np.array([0, 1], np.int32))


def test_no_users_at_all(tmp_path: Path):
    assert write_histories(tmp_path / "h", [], max_history=2) == 0
    store = HistoryStore.open(tmp_path / "h", items=0)
    assert (len(store), store.get("x")) == (0, None)


def test_more_data_than_the_first_map_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_FIRST_MAP_BYTES", 1 << 16)
    events = 1000
    users = [(f"user {number}", list(range(events)), list(range(events)), [0] * events) for number in range(100)]
    assert write_histories(tmp_path / "h", [sequence_table(users)], max_history=events) == 100
    assert len(HistoryStore.open(tmp_path / "h", items=events)) == 100
    assert stored(tmp_path / "h", "user 99", events).history.rows.tolist() == list(range(events))


def test_the_file_does_not_depend_on_time_or_place(tmp_path: Path):
    for name in ("one", "two"):
        write_histories(tmp_path / name, [sequence_table(SEQUENCES)], max_history=4)
    assert (tmp_path / "one" / "data.mdb").read_bytes() == (tmp_path / "two" / "data.mdb").read_bytes()


def test_reading_writes_nothing_and_needs_no_right_to(directory: Path):
    directory.chmod(0o555)
    (directory / "data.mdb").chmod(0o444)
    before = (directory / "data.mdb").read_bytes()
    assert stored(directory, "ann").seen.tolist() == [0, 1]
    assert [path.name for path in directory.iterdir()] == ["data.mdb"]
    assert (directory / "data.mdb").read_bytes() == before
    directory.chmod(0o755)


def test_two_readers_of_one_file_in_one_process(directory: Path):
    one, two = HistoryStore.open(directory, items=9), HistoryStore.open(directory, items=9)
    assert one.get("ann") is not None
    del one
    assert two.get("ann") is not None


def test_a_moved_directory_reads_the_same(directory: Path, tmp_path: Path):
    shutil.move(directory, tmp_path / "moved")
    assert stored(tmp_path / "moved", "ann").seen.tolist() == [0, 1]


def test_a_missing_or_foreign_file_is_refused(directory: Path, tmp_path: Path):
    with pytest.raises(ArtifactMissingError, match="holds no histories"):
        HistoryStore.open(tmp_path / "nowhere", items=9)
    (directory / "data.mdb").write_bytes(b"something else entirely" * 1000)
    with pytest.raises(ArtifactCorruptError, match="cannot be opened as LMDB"):
        HistoryStore.open(directory, items=9)


def test_a_row_that_the_release_does_not_have_is_corruption(directory: Path):
    with pytest.raises(ArtifactCorruptError, match="row 4 of 4 items"):
        HistoryStore.open(directory, items=4).get("böb")
