from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.shards import Shard
from recsys_cg.errors import (
    ConfigError,
    ConservationError,
    DataError,
    EngineError,
    RecsysError,
    SourceError,
    TooManyRejectsError,
)
from recsys_cg.schema import items_schema, queries_schema, rejects_schema, sequences_schema

from .projects import EVENTS, build, read_dataset, write_project

WINDOWS = """
[dataset]
validation_from = 1970-01-01T00:00:06Z
test_from = 1970-01-01T00:00:08Z
test_until = 1970-01-01T00:00:09Z
"""


def test_every_file_holds_what_the_schema_says_and_every_row_is_accounted_for(tmp_path: Path) -> None:
    info = build(write_project(tmp_path, WINDOWS), tmp_path / "d")
    assert info["rows"] == {
        "in": 11,
        "kept": 9,
        "rejected": {},
        "filtered": {"after_test_until": 1, "duplicate": 1},
    }
    assert info["windows"] == {
        "train_from_us": 1_000_000,
        "validation_from_us": 6_000_000,
        "test_from_us": 8_000_000,
        "until_us": 9_000_000,
    }
    assert (info["items"], info["users"], info["train_events"]) == (4, 3, 6)
    assert info["queries"] == {"validation": 1, "test": 2}
    assert info["events"] == [""]
    assert not (tmp_path / "d" / ".scratch").exists()
    seal(tmp_path / "d", kind="dataset", key="k", info=info)
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.items.schema == items_schema
    assert dataset.sequences().schema == sequences_schema
    assert dataset.queries("validation").schema == dataset.queries("test").schema == queries_schema
    assert pq.read_table(tmp_path / "d" / "rejects").schema == rejects_schema
    assert len(list(dataset.iter_sequences())) == 8
    assert dataset.impressions() is None
    assert (dataset.events, dataset.max_history, dataset.features.features) == (("",), 50, ())


def test_sequences_and_queries_by_hand(tmp_path: Path) -> None:
    build(write_project(tmp_path, WINDOWS), tmp_path / "d")
    tables = read_dataset(tmp_path / "d")
    ids = [row["item_id"] for row in tables["items"]]
    assert ids == ["x", "007", "y,1", "z"]  # three events, then one each, by item_id
    named = {row["user_id"]: [ids[item] for item in row["item_rows"]] for row in tables["sequences"]}
    assert named == {"ann": ["x", "y,1"], "bob": ["x", "z"], "cid": ["x", "007"]}
    (query,) = tables["queries/validation"]
    assert (query["user_id"], query["time_us"], query["targets"], query["history"]) == ("ann", 6_000_000, [3], [0, 2])
    asked = {row["user_id"]: row for row in tables["queries/test"]}
    assert [ids[item] for item in asked["ann"]["history"]] == ["x", "y,1", "z"]
    assert [ids[item] for item in asked["bob"]["targets"]] == ["007"]
    histories = {row["user_id"]: [ids[item] for item in row["item_rows"]] for row in tables["histories"]}
    assert histories["ann"] == ["x", "y,1", "z", "x"]


def test_shares_by_time_cut_the_same_instant_for_all_users(tmp_path: Path) -> None:
    info = build(
        write_project(tmp_path), tmp_path / "d", "dataset.validation_fraction=0.2", "dataset.test_fraction=0.3"
    )
    assert info["rows"]["kept"] == 10
    assert info["windows"]["validation_from_us"] == 4_000_001
    assert info["windows"]["test_from_us"] == 6_000_001
    assert (info["train_events"], info["queries"]) == (5, {"validation": 2, "test": 3})


def test_event_types_have_weights_and_codes(tmp_path: Path) -> None:
    project = tmp_path / "project.toml"
    write_project(tmp_path, 'event = "event"\nevent_weights = { view = 0.5, buy = 2.0 }\n' + WINDOWS)
    info = build(project, tmp_path / "d")
    assert info["events"] == ["buy", "view"]
    ann = next(row for row in read_dataset(tmp_path / "d")["sequences"] if row["user_id"] == "ann")
    assert (ann["events"], ann["weights"]) == ([1, 0], [0.5, 2.0])
    weights = {row["item_id"]: row["train_weight"] for row in read_dataset(tmp_path / "d")["items"]}
    assert weights == {"x": 1.5, "007": 0.5, "y,1": 2.0, "z": 0.5}


def test_event_types_without_declared_weights_are_those_of_the_data(tmp_path: Path) -> None:
    info = build(write_project(tmp_path, 'event = "event"\n' + WINDOWS), tmp_path / "d")
    assert info["events"] == ["buy", "view"]


def test_more_event_types_than_codes_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    rows = "".join(f"u,i,{n + 1},kind{n}\n" for n in range(200))
    project = write_project(tmp_path, 'event = "event"\n', events="user_id,item_id,timestamp,event\n" + rows)
    with pytest.raises(DataError, match=r"has 200 types.*event_weights"):
        build(project, tmp_path / "d")


def test_minimum_counts_thin_training_and_nothing_else(tmp_path: Path) -> None:
    info = build(write_project(tmp_path, WINDOWS + "min_item_events = 2\n"), tmp_path / "a")
    assert info["rows"]["filtered"]["min_item_events"] == 3
    assert (info["rows"]["kept"], info["train_events"]) == (6, 3)
    tables = read_dataset(tmp_path / "a")
    assert [row["train_count"] for row in tables["items"]] == [3, 0, 0, 0]
    assert len(next(row for row in tables["queries/test"] if row["user_id"] == "ann")["history"]) == 3
    info = build(write_project(tmp_path, WINDOWS + "min_item_events = 2\nmin_user_events = 2\n"), tmp_path / "b")
    assert info["rows"]["filtered"] == {
        "after_test_until": 1,
        "duplicate": 1,
        "min_item_events": 3,
        "min_user_events": 3,
    }
    assert info["train_events"] == 0


def _random_events(folder: Path, seed: int, files: int) -> None:
    """Write one fixed log over ``files`` files, rows and files in an order that ``seed`` decides."""
    rng = np.random.default_rng(0)
    count = 3_000
    columns = {
        "user_id": [f"u{n}" for n in rng.zipf(1.4, count) % 400],
        "item_id": [f"i{n}" for n in rng.zipf(1.6, count) % 80],
        "timestamp": rng.integers(1, 900, count),
        "event": rng.choice(["view", "buy", "wish"], count),
    }
    table = pa.table(columns)
    order = np.random.default_rng(seed).permutation(count)
    folder.mkdir(parents=True)
    for number, part in enumerate(np.array_split(order, files)):
        pq.write_table(table.take(pa.array(part)), folder / f"{seed}-{files - number}.parquet", row_group_size=200)


OPTIONS = """
event = "event"
event_weights = { view = 0.1, buy = 0.7 }
[dataset]
min_user_events = 3
min_item_events = 2
max_user_events = 55
targets = "window"
max_history = 20
"""


def test_results_depend_neither_on_shards_nor_blocks_nor_the_order_of_files(tmp_path: Path) -> None:
    results = []
    for number, (files, shards, block_rows) in enumerate([(1, 1, 100_000), (5, 7, 130), (3, 4, 17)]):
        folder = tmp_path / str(number)
        _random_events(folder / "events", number, files)
        project = write_project(folder, OPTIONS, events=None, name="events")
        info = build(project, folder / "d", f"dataset.shards={shards}", f"dataset.block_rows={block_rows}")
        results.append((info, read_dataset(folder / "d")))
    assert results[0][0]["rows"]["filtered"].keys() == {
        "duplicate",
        "max_user_events",
        "min_item_events",
        "min_user_events",
        "unlisted_event",
    }
    assert results[0] == results[1] == results[2]


def test_a_catalogue_brings_titles_features_and_cold_items(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(
        '{"id": "x", "name": "The X", "tags": ["a", "b"]}\n{"id": "cold", "name": "Cold", "tags": ["c"]}\n'
        '{"id": "new", "name": "New", "tags": []}\n'
    )
    text = WINDOWS + '[items]\npath = "items.jsonl"\nitem = "id"\ntitle = "name"\n'
    text += '[[items.features]]\nname = "tags"\nkind = "categorical"\nmin_items = 1\nhash_buckets = 1\n'
    info = build(write_project(tmp_path, text), tmp_path / "d")
    assert info["catalogue"] == {"in": 3, "kept": 3, "rejected": {}, "filtered": {}}
    rows = {row["item_id"]: row for row in read_dataset(tmp_path / "d")["items"]}
    assert set(rows) == {"x", "y,1", "z", "007", "cold", "new"}
    assert rows["x"]["f_tags"] == [1, 2]
    assert rows["cold"]["f_tags"] == [3]
    assert (rows["cold"]["bucket"], rows["z"]["in_catalogue"], rows["x"]["title"]) == ("cold", False, "The X")
    assert json.loads((tmp_path / "d" / "features.json").read_text())["features"][0]["vocabulary"] == ["a", "b"]


def test_unknown_items_are_refused_on_demand_and_counted(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item_id\nx\ny,1\n".replace("y,1", '"y,1"'))
    text = WINDOWS + 'unknown_items = "reject"\nmax_rejects = 0.6\n[items]\npath = "items.csv"\n'
    info = build(write_project(tmp_path, text), tmp_path / "d")
    assert info["rows"]["rejected"] == {"unknown_item": 5}
    assert info["items"] == 2
    rejects = read_dataset(tmp_path / "d")["rejects"]
    assert sorted(row["row"] for row in rejects) == [5, 7, 8, 9, 11]
    assert json.loads(next(row for row in rejects if row["row"] == 7)["record"])["item_id"] == "007"


def test_impressions_are_cleaned_written_and_tied_to_what_followed(tmp_path: Path) -> None:
    (tmp_path / "shown.csv").write_text(
        "user_id,item_id,timestamp,position,propensity,random\n"
        "ann,z,5,2,0.25,false\nann,x,8,0,0.5,true\nann,x,9,1,0.5,true\nbob,nothing,1,0,0.5,1\n,x,1,0,0.5,1\n"
    )
    text = WINDOWS + 'max_rejects = 0.5\n[impressions]\npath = "shown.csv"\nposition = "position"\n'
    text += 'propensity = "propensity"\nrandom = "random"\n'
    info = build(write_project(tmp_path, text), tmp_path / "d")
    assert info["impressions"] == {
        "in": 5,
        "kept": 3,
        "rejected": {"missing_user": 1},
        "filtered": {"unknown_item": 1},
    }
    tables = read_dataset(tmp_path / "d")
    assert [(row["user_id"], row["position"], row["policy"]) for row in tables["impressions"]] == [
        ("ann", 0, None),
        ("ann", 1, None),
        ("ann", 2, None),
    ]
    (query,) = tables["queries/validation"]
    assert (query["target_position"], query["target_propensity"], query["target_random"]) == ([2], [0.25], [False])
    asked = {row["user_id"]: row["target_propensity"] for row in tables["queries/test"]}
    assert asked == {"ann": [0.5], "bob": [None]}
    assert tables["rejects"][0]["source"].endswith("shown.csv")


def test_broken_rows_are_kept_with_source_row_and_reason(tmp_path: Path) -> None:
    events = EVENTS + "eve,,10,view\neve,x\n,x,1,view\neve,x,later,view\n"
    info = build(write_project(tmp_path, WINDOWS + "max_rejects = 0.5\n", events=events), tmp_path / "d")
    assert info["rows"]["rejected"] == {
        "missing_item": 1,
        "missing_user": 1,
        "unreadable_time": 1,
        "wrong_number_of_fields": 1,
    }
    assert info["rows"]["in"] == 15
    found = {row["row"]: row for row in read_dataset(tmp_path / "d")["rejects"]}
    assert {number: row["reason"] for number, row in found.items()} == {
        12: "missing_item",
        13: "wrong_number_of_fields",
        14: "missing_user",
        15: "unreadable_time",
    }
    assert found[12]["source"] == str(tmp_path / "events.csv")
    assert json.loads(found[15]["record"]) == {"user_id": "eve", "item_id": "x", "timestamp": "later"}


def test_too_many_broken_rows_stop_the_run_with_counts_and_examples(tmp_path: Path) -> None:
    events = EVENTS + ",x,1,view\n,x,2,view\neve,x,later,view\n"
    with pytest.raises(TooManyRejectsError) as raised:
        build(write_project(tmp_path, WINDOWS, events=events), tmp_path / "d")
    message = str(raised.value)
    assert "3 of 14 rows of [interactions] were refused (21.43%; dataset.max_rejects allows 1.00%)" in message
    assert "missing_user: 2, e.g. row 12 of" in message
    assert "unreadable_time: 1, e.g. row 14 of" in message


def _gzip_cut(path: Path) -> None:
    import gzip

    data = gzip.compress(
        ("user_id,item_id,timestamp\n" + "".join(f"u{n},i{n},{n * 37 % 999}\n" for n in range(90_000))).encode()
    )
    path.write_bytes(data[: len(data) * 3 // 4])


def _parquet_cut(path: Path) -> None:
    pq.write_table(pa.table({"user_id": ["a"] * 99, "item_id": ["b"] * 99, "timestamp": range(99)}), path)
    path.write_bytes(path.read_bytes()[:-20])


BAD: list[Any] = [
    ("events.csv", None, "", SourceError, r"events\.csv: no such file or folder"),
    ("events.csv", "", "", SourceError, r"events\.csv: the file is empty"),
    ("events.csv", "user_id,item_id,timestamp\n", "", SourceError, r"events\.csv: the source holds no rows"),
    (
        "events.csv",
        "user,item_id,timestamp\na,b,1\n",
        "",
        SourceError,
        r"no column 'user_id'; it has 'user'.*did you mean",
    ),
    (
        "events.csv",
        "user_id,item_id,timestamp\na,b,monday\n",
        "",
        SourceError,
        r"no time in column 'timestamp'.*'monday'",
    ),
    (
        "events.csv",
        "user_id,item_id,timestamp\na,b,1500000000000\n",
        "",
        SourceError,
        r"time_unit = 's'.*set time_unit",
    ),
    (
        "events.csv",
        "user_id,item_id,timestamp\na,b,1\nc,d",
        "",
        SourceError,
        r"events\.csv: the file ends in the middle",
    ),
    ("events.csv.gz", _gzip_cut, "", SourceError, r"events\.csv\.gz: the compressed file ends in the middle"),
    ("events.parquet", _parquet_cut, "", SourceError, r"events\.parquet: no whole Parquet file"),
    ("events.csv", EVENTS, 'filters = ["quantity >> 0"]\n', ConfigError, "write column op literal"),
    ("events.csv", EVENTS, 'filters = ["quantity > 0"]\n', SourceError, "no column 'quantity'"),
    ("events.csv", EVENTS, 'time_zone = "Mars/Base"\n', ConfigError, "no such time zone"),
    ("events.csv", EVENTS, 'filters = ["timestamp > 99"]\n', DataError, "no interaction is left"),
    ("events.csv", EVENTS, '[items]\npath = "nowhere.csv"\n', SourceError, r"nowhere\.csv: no such file"),
    ("events.csv", EVENTS, '[impressions]\npath = "nowhere.csv"\n', SourceError, r"nowhere\.csv: no such file"),
]


@pytest.mark.parametrize(("name", "content", "text", "error", "message"), BAD)
def test_bad_input_is_one_clear_error(
    tmp_path: Path, name: str, content: Any, text: str, error: type[RecsysError], message: str
) -> None:
    project = write_project(tmp_path, text, events=content if isinstance(content, str) else None, name=name)
    if callable(content):
        content(tmp_path / name)
    with pytest.raises(error, match=message):
        build(project, tmp_path / "d")


def test_a_cut_found_late_by_a_worker_is_still_the_error_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"u{n % 50},i{n % 20},{n}\n" for n in range(300_000))
    project = write_project(tmp_path, events="user_id,item_id,timestamp\n" + rows + "last,ro")
    with pytest.raises(SourceError, match="ends in the middle of a row"):
        build(project, tmp_path / "d")
    assert "Traceback" not in caplog.text


def test_lost_rows_fail_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsys_cg.beam import interactions

    whole = interactions.clean_block

    def lossy(*arguments: Any, **options: Any) -> Any:
        cleaned = whole(*arguments, **options)
        return type(cleaned)(cleaned.events.slice(1), cleaned.rejects, cleaned.filtered, cleaned.rows)

    monkeypatch.setattr(interactions, "clean_block", lossy)
    with pytest.raises(ConservationError, match="11 rows in"):
        build(write_project(tmp_path, WINDOWS), tmp_path / "d")


@pytest.mark.slow
def test_two_worker_processes_give_the_same_result(tmp_path: Path) -> None:
    _random_events(tmp_path / "events", 0, 4)
    project = write_project(tmp_path, OPTIONS, events=None, name="events")
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    first = build(project, tmp_path / "one")
    second = build(project, tmp_path / "two", runner=flags)
    assert first == second
    assert read_dataset(tmp_path / "one") == read_dataset(tmp_path / "two")


def test_a_catalogue_of_other_identifiers_is_refused_when_features_are_fitted(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("item_id\nX\nY\n")
    project = write_project(tmp_path, WINDOWS + '[items]\npath = "c.csv"\n')
    with pytest.raises(DataError, match=r"c\.csv: none of its 2 items is met .* the same identifiers"):
        build(project, tmp_path / "d")


def test_a_full_disk_is_one_error_without_a_word_of_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr(Shard, "save", refuse)
    with pytest.raises(EngineError, match=r"could not read or write its files .*: No space left on device"):
        build(write_project(tmp_path, WINDOWS), tmp_path / "d")
    assert not caplog.records


def test_events_that_all_lie_long_ago_make_the_time_unit_doubtful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("recsys_cg.beam.dataset.say", said.append)
    seconds = "user_id,item_id,timestamp\n" + "".join(f"u,i{n},{1_700_000_000 + n}\n" for n in range(10))
    build(write_project(tmp_path, 'time_unit = "ms"\n', events=seconds), tmp_path / "ms")
    assert said == [
        "dataset: the newest event is of 1970-01-20T16:13:20.009000Z; is interactions.time_unit = 'ms' right?"
    ]
    build(write_project(tmp_path, events=seconds), tmp_path / "s")
    assert len(said) == 1


def test_training_events_that_all_weigh_nothing_are_refused(tmp_path: Path) -> None:
    text = 'event = "event"\nevent_weights = {view = 0.0, buy = 1.0}\n'
    events = EVENTS.replace('ann,"y,1",2,buy\n', "")  # the only purchase is in the test window
    with pytest.raises(DataError, match=r"events\.csv: every training event weighs 0"):
        build(write_project(tmp_path, text + WINDOWS, events=events), tmp_path / "d")


def test_a_list_for_an_identifier_is_one_reject_and_the_job_goes_on(tmp_path: Path) -> None:
    lines = [{"user_id": f"u{n % 3}", "item_id": f"i{n % 5}", "timestamp": n + 1} for n in range(30)]
    lines[7]["user_id"], lines[11]["item_id"], lines[13]["timestamp"] = ["u1"], {"id": "i1"}, [14]
    events = "\n".join(json.dumps(line) for line in lines) + "\n"
    project = write_project(tmp_path, events=events, name="events.jsonl")
    info = build(project, tmp_path / "d", "dataset.max_rejects=0.5")
    assert info["rows"] == {"in": 30, "kept": 27, "rejected": {"nested_value": 3}, "filtered": {}}
    rejects = read_dataset(tmp_path / "d")["rejects"]
    assert sorted((row["row"], row["reason"]) for row in rejects) == [(n, "nested_value") for n in (8, 12, 14)]
    with pytest.raises(TooManyRejectsError, match=r'nested_value: 3, e\.g\. row 8 .*"user_id": \["u1"\]'):
        build(project, tmp_path / "e", "dataset.max_rejects=0.05")


def test_a_catalogue_takes_lists_for_its_features_and_not_for_its_items(tmp_path: Path) -> None:
    catalogue = [
        {"item_id": "x", "tags": ["a", "b"], "price": 1},
        {"item_id": ["z"], "tags": "a", "price": 2},
        {"item_id": "007", "tags": "b", "price": [3]},
        {"item_id": "y,1", "tags": None, "price": 4},
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(json.dumps(line) for line in catalogue) + "\n")
    kinds = {"tags": "categorical", "price": "numeric"}
    features = "".join(f'[[items.features]]\nname = "{name}"\nkind = "{kind}"\n' for name, kind in kinds.items())
    project = write_project(tmp_path, f'[items]\npath = "items.jsonl"\n{features}')
    info = build(project, tmp_path / "d", "dataset.max_rejects=0.5")
    assert info["catalogue"] == {"in": 4, "kept": 2, "rejected": {"nested_value": 2}, "filtered": {}}
    listed = {row["item_id"]: row["f_tags"] for row in read_dataset(tmp_path / "d")["items"] if row["in_catalogue"]}
    assert {item: len(tags) for item, tags in listed.items()} == {"x": 2, "y,1": 0}
