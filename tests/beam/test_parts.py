from __future__ import annotations

from pathlib import Path

import pytest

from recsys_cg.beam.parts import write_directory_whole, write_part, write_whole


def test_a_part_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    part = tmp_path / "queries" / "test" / "part-00003.parquet"
    with write_part(tmp_path, "queries/test", 3) as file:
        file.write_text("rows")
        assert not part.exists()
    assert part.read_text() == "rows"


def test_a_bundle_that_dies_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "items"
    target.write_text("first")
    with pytest.raises(KeyError), write_whole(target, tmp_path / "scratch") as file:
        file.write_text({"half": "ha"}["whole"])
    assert target.read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items", "scratch"]


def test_two_bundles_at_the_same_time_leave_one_whole_directory(tmp_path: Path) -> None:
    target, scratch = tmp_path / "shards" / "0", tmp_path / "scratch"
    with write_directory_whole(target, scratch) as one, write_directory_whole(target, scratch) as two:
        for folder in (one, two):
            folder.mkdir()
            (folder / "user.npy").write_text("rows")
    assert [path.name for path in target.iterdir()] == ["user.npy"]
    assert list((scratch / "unfinished").iterdir()) == []
