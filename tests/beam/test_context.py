from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.beam.dataset import build_dataset
from recsys_cg.config import load_config
from recsys_cg.data.context import ContextSet
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import SourceError

from .projects import EVENTS, build, read_dataset, write_project

# Hours 0 to 5 are training, 6 and 7 validation, 8 test; 'tv' is met first in validation.
EVENTS_WITH_DEVICE = """user_id,item_id,timestamp,device
ann,x,0,phone
ann,y,3600,pc
bob,x,3600,
bob,z,7200,phone
cid,x,7200, phone
cid,y,10800,pc
ann,z,21600,tv
bob,y,28800,pc
ann,w,28800,tv
"""
CONTEXT = """
[[interactions.context]]
name = "device"
kind = "categorical"
hash_buckets = 2
[[interactions.context]]
name = "hour"
kind = "hour_of_day"
"""
WINDOWS = """
[dataset]
validation_from = 1970-01-01T06:00:00Z
test_from = 1970-01-01T08:00:00Z
"""


def _project(folder: Path, context: str = CONTEXT, events: str = EVENTS_WITH_DEVICE) -> Path:
    return write_project(folder, context + WINDOWS, events=events)


def test_sequences_and_queries_carry_the_context_of_each_event_and_of_what_is_asked(tmp_path: Path) -> None:
    info = build(_project(tmp_path), tmp_path / "d")
    seal(tmp_path / "d", kind="dataset", key="k", info=info)
    dataset = Dataset.open(tmp_path / "d")
    device, hour = dataset.context.features
    assert (device.vocabulary, device.size, hour.size) == (("phone", "pc"), 5, 25)  # nothing of validation or test
    tables = read_dataset(tmp_path / "d")
    named = {row["user_id"]: (row["c_device"], row["c_hour"]) for row in tables["sequences"]}
    assert named == {"ann": ([1, 2], [1, 2]), "bob": ([0, 1], [2, 3]), "cid": ([1, 2], [3, 4])}
    (validation,) = tables["queries/validation"]
    tv = device.encode(pa.array(["tv"]))[0]
    assert tv >= 3  # a bucket
    assert (validation["c_device"], validation["c_hour"]) == (tv, 7)  # of the event asked for, not of the last one met
    test = {row["user_id"]: (row["c_device"], row["c_hour"]) for row in tables["queries/test"]}
    assert test == {"bob": (2, 9), "ann": (tv, 9)}
    assert "c_device" not in tables["histories"][0]


def test_a_dataset_without_context_is_what_it_was(tmp_path: Path) -> None:
    build(_project(tmp_path, context=""), tmp_path / "d")
    assert not (tmp_path / "d" / "context.json").exists()
    tables = read_dataset(tmp_path / "d")
    assert not [name for folder in ("sequences", "queries/test") for name in tables[folder][0] if name.startswith("c_")]


def test_time_alone_needs_no_column(tmp_path: Path) -> None:
    only = '[[interactions.context]]\nname = "day"\nkind = "day_of_week"\ntime_zone = "America/Sao_Paulo"\n'
    build(_project(tmp_path, only), tmp_path / "d")
    sequences = read_dataset(tmp_path / "d")["sequences"]
    assert {code for row in sequences for code in row["c_day"]} == {3, 4}  # Wednesday until 03:00 UTC


def test_the_result_depends_neither_on_shards_nor_on_the_order_of_rows(tmp_path: Path) -> None:
    head, *rows = EVENTS_WITH_DEVICE.splitlines()
    rows += ["dan,x,3600,pc", "dan,x,3600,phone", "dan,x,3600,"]  # one of equal events is kept: of the first context
    turned = "\n".join([head, *reversed(rows)]) + "\n"
    build(_project(tmp_path / "a", events="\n".join([head, *rows]) + "\n"), tmp_path / "a" / "d")
    build(_project(tmp_path / "b", events=turned), tmp_path / "b" / "d", "dataset.shards=1")
    build(_project(tmp_path / "c", events=turned), tmp_path / "c" / "d", "dataset.block_rows=2")
    first, second, third = (read_dataset(tmp_path / name / "d") for name in "abc")
    assert first == second == third
    dan = next(row for row in first["sequences"] if row["user_id"] == "dan")
    assert (dan["c_device"], len(dan["item_rows"])) == ([0], 1)


def test_a_query_for_a_window_has_the_context_of_its_first_event(tmp_path: Path) -> None:
    build(_project(tmp_path, events=EVENTS_WITH_DEVICE + "ann,y,32400,pc\n"), tmp_path / "d", "dataset.targets=window")
    ann = next(row for row in read_dataset(tmp_path / "d")["queries/test"] if row["user_id"] == "ann")
    assert (ann["c_hour"], len(ann["targets"])) == (9, 2)


def test_min_counts_leave_rare_events_out_of_the_vocabulary(tmp_path: Path) -> None:
    build(_project(tmp_path), tmp_path / "d", "dataset.min_item_events=3")
    fitted = ContextSet.from_json((tmp_path / "d" / "context.json").read_text())
    assert fitted.features[0].vocabulary == ("phone",)  # x alone is met three times, and never on a pc


def test_features_of_a_kept_encoder_are_used_as_they_are(tmp_path: Path) -> None:
    config = load_config(_project(tmp_path))
    fitted = ContextSet.fit(config.interactions.context, _no_counts())
    (tmp_path / "d").mkdir()
    build_dataset(config, tmp_path / "d", context=fitted)
    assert ContextSet.from_json((tmp_path / "d" / "context.json").read_text()) == fitted
    codes = {code for row in read_dataset(tmp_path / "d")["sequences"] for code in row["c_device"]}
    assert codes <= {0, 1, 2}  # buckets only
    (tmp_path / "e").mkdir()
    with pytest.raises(SourceError, match="keep them as they were"):
        build_dataset(config, tmp_path / "e", context=ContextSet())


def _no_counts() -> pa.Table:
    from recsys_cg.data.context_values import counts_schema

    return counts_schema.empty_table()


@pytest.mark.parametrize("rows", ["", "ann,x,1,pc\n"])
def test_almost_no_events_are_no_trouble(tmp_path: Path, rows: str) -> None:
    events = EVENTS_WITH_DEVICE.splitlines()[0] + "\n" + rows + "bob,x,2,\n"
    build(_project(tmp_path, events=events), tmp_path / "d", "dataset.min_user_events=1")
    assert json.loads((tmp_path / "d" / "context.json").read_text())["context"][0]["name"] == "device"


def test_a_column_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    project: Any = write_project(tmp_path, CONTEXT + WINDOWS, events=EVENTS)
    with pytest.raises(SourceError, match="device"):
        build(project, tmp_path / "d")
