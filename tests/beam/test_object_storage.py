"""Sources on object storage are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.beam.dataset import build_dataset
from recsys_cg.config import Config, load_config
from recsys_cg.errors import SourceError
from tests.object_storage import serve_bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with serve_bucket("sources-bucket") as url:
        yield url


def build(config: Config, directory: Path) -> dict[str, pa.Table]:
    directory.mkdir()
    build_dataset(config, directory)
    names = ("items.parquet", "sequences", "queries/validation", "queries/test", "histories")
    return {name: pq.read_table(directory / name) for name in names}


def test_a_dataset_from_s3_is_that_from_the_disk(world: Path, bucket: str, tmp_path: Path) -> None:
    fsspec.filesystem("s3").put(str(world), f"{bucket}/world", recursive=True)
    overrides = [f"interactions.path={bucket}/world/events", f"items.path={bucket}/world/items.parquet"]
    overrides += [f"impressions.path={bucket}/world/impressions"]
    local = build(load_config(world / "project.toml"), tmp_path / "local")
    remote = build(load_config(world / "project.toml", overrides), tmp_path / "remote")
    assert {name: table.equals(local[name]) for name, table in remote.items()} == dict.fromkeys(remote, True)


def test_a_missing_object_is_one_error_that_names_it(world: Path, bucket: str, tmp_path: Path) -> None:
    config = load_config(world / "project.toml", [f"interactions.path={bucket}/nowhere/events.csv"])
    with pytest.raises(SourceError, match=r"nowhere/events\.csv"):
        build(config, tmp_path / "remote")
