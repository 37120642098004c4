"""The main job from end to end, as a user runs it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import read_manifest, verify
from tests.pipelines.conftest import Site, call, command


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_run_ends_with_one_json_object_that_names_release_and_report(site: Site) -> None:
    result = read_json(site.workdir / "result.json")
    assert result["release"] == site.current().name
    assert Path(result["report"]).is_file()
    assert all(gate["passed"] for gate in result["gates"])


def test_each_stage_says_that_it_works(site: Site) -> None:
    log = (site.workdir / "log.txt").read_text(encoding="utf-8")
    for line in ("dataset: building", "encoder: building", "release: building", "evaluation: building", "is CURRENT"):
        assert line in log


def test_the_release_is_whole_and_of_one_encoder(site: Site) -> None:
    release = site.current()
    manifest = verify(release, kind="release")
    items = pq.read_table(release / "items.parquet")
    vectors = np.load(release / "vectors.npy")
    assert manifest.info["index"]["kind"] == "scann"
    assert len(items) == len(vectors) == manifest.info["items"]
    assert items["encoder_digest"].unique().to_pylist() == [manifest.info["encoder_digest"]]
    assert read_manifest(release / "encoder", kind="encoder").digest == manifest.info["encoder_digest"]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_the_report_keeps_its_contract(site: Site) -> None:
    report = read_json(site.current() / "report" / "report.json")
    assert report["schema"] == 1
    assert report["published"] is True
    assert set(report["systems"]) == {"two_tower", "popularity", "ease"}
    overall = report["systems"]["two_tower"]["overall"]
    assert overall["queries"] == report["protocol"]["queries"] > 0
    low, high = overall["recall@20"]["ci95"]
    assert 0 <= low <= overall["recall@20"]["mean"] <= high <= 1
    for part in ("coverage", "index", "vectors", "geometry", "freshness", "gates"):
        assert report[part], part
    assert report["freshness"]["stale_fraction"] == 0.0
    assert "recall@20" in report["protocol"]["definitions"]


def test_no_row_of_the_log_is_lost(site: Site) -> None:
    (directory,) = (site.workdir / "dataset").iterdir()
    rows = read_manifest(directory).info["rows"]
    accounted = rows["kept"] + sum(rows["rejected"].values()) + sum(rows["filtered"].values())
    assert rows["in"] == accounted == read_json(site.config.parent / "world.json")["counts"]["events"]


def test_a_second_run_skips_every_stage_and_publishes_nothing_new(copy_site: Callable[[], Site]) -> None:
    site = copy_site()
    before = site.current().name
    done = call("run", *site.options())
    assert done.stderr.count("unchanged, skipped") == 4
    assert site.current().name == before


def test_a_lookup_answers_from_the_release_with_titles(site: Site) -> None:
    item = pq.read_table(site.current() / "items.parquet")["item_id"][0].as_py()
    answer = json.loads(call("lookup", "--store", str(site.store), "--history", item, "-k", "5", "--json").stdout)
    assert answer["release"] == site.current().name
    assert answer["fallback"] is None
    assert len(answer["candidates"]) == 5
    assert all(one["title"] for one in answer["candidates"])
    assert item not in [one["item_id"] for one in answer["candidates"]]


def test_a_stored_user_is_answered_and_an_unknown_one_gets_the_stated_fallback(site: Site) -> None:
    (directory,) = (site.workdir / "dataset").iterdir()
    user = pq.read_table(directory / "histories")["user_id"][0].as_py()
    known = json.loads(call("lookup", "--store", str(site.store), "--user", user, "--json").stdout)
    unknown = json.loads(call("lookup", "--store", str(site.store), "--user", "nobody", "--json").stdout)
    assert known["fallback"] is None
    assert unknown["fallback"] == "unknown_user"
    assert len(unknown["candidates"]) == 10


def test_a_query_without_history_is_measured_by_what_a_lookup_answers(site: Site) -> None:
    from recsys_cg.serving.lookup import CandidateLookup

    (directory,) = (site.workdir / "dataset").iterdir()
    queries = pq.read_table(directory / "queries" / "test")
    items = pq.read_table(site.current() / "items.parquet")["item_id"].to_pylist()
    per_query = pq.read_table(site.current() / "report" / "per_query.parquet").to_pylist()
    ranks = {(one["user_id"], one["time_us"]): one["rank"] for one in per_query if one["system"] == "two_tower"}
    lookup = CandidateLookup.open(site.store)
    compared = 0
    for query in queries.to_pylist():
        key = (query["user_id"], query["time_us"])
        if query["history_length"] or key not in ranks:
            continue
        answer = lookup.candidates(history=[], k=20, at=query["time_us"] / 1e6)
        places = [one.item_id for one in answer.candidates]
        target = items[query["targets"][0]]
        assert ranks[key] == (places.index(target) if target in places else None)
        compared += 1
    assert compared > 3


def test_a_moved_release_gives_the_same_answers(site: Site, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "r"
    shutil.copytree(site.current(), moved)
    item = pq.read_table(moved / "items.parquet")["item_id"][3].as_py()
    arguments = ["lookup", "--history", item, "-k", "9", "--json"]
    here = json.loads(call(*arguments, "--store", str(site.store)).stdout)
    there = json.loads(call(*arguments, "--release", str(moved)).stdout)
    assert there == here


@pytest.mark.parametrize("name", ["vectors.npy", "items.parquet", "encoder/query/query.tflite", "index/index.json"])
def test_a_changed_byte_of_the_release_is_refused_by_name(site: Site, tmp_path: Path, name: str) -> None:
    moved = tmp_path / "r"
    shutil.copytree(site.current(), moved)
    content = bytearray((moved / name).read_bytes())
    content[len(content) // 2] ^= 1
    (moved / name).write_bytes(bytes(content))
    done = call("lookup", "--release", str(moved), "--history", "x", check=False)
    assert done.returncode == 1
    assert name in done.stderr
    assert "was changed after it was written" in done.stderr


def test_a_missing_file_and_a_newer_format_are_refused_by_name(site: Site, tmp_path: Path) -> None:
    moved = tmp_path / "r"
    shutil.copytree(site.current(), moved)
    manifest = read_json(moved / "manifest.json")
    (moved / "vectors.npy").unlink()
    done = call("lookup", "--release", str(moved), "--history", "x", check=False)
    assert (done.returncode, "lacks vectors.npy" in done.stderr) == (1, True)
    (moved / "manifest.json").write_text(json.dumps({**manifest, "format": 99}), encoding="utf-8")
    done = call("lookup", "--release", str(moved), "--history", "x", check=False)
    assert (done.returncode, "has format 99" in done.stderr) == (1, True)


def test_a_gate_refuses_with_exit_code_3_and_leaves_current_alone(copy_site: Callable[[], Site]) -> None:
    site = copy_site()
    before = site.current().name
    options = site.options("gates.min_coverage=1.0", "project.seed=43", "training.epochs=1")
    done = call("run", *options, check=False)
    assert done.returncode == 3
    assert "coverage" in done.stderr
    assert site.current().name == before
    assert list((site.store / "refused").glob("*/report.html"))
    forced = call("run", *options, "--force", "the launch cannot wait", "--json")
    assert json.loads(forced.stdout.splitlines()[-1])["forced"]["reason"] == "the launch cannot wait"
    assert site.current().name != before
    call("rollback", "--store", str(site.store))
    assert site.current().name == before


def test_a_refresh_without_change_does_nothing(copy_site: Callable[[], Site]) -> None:
    site = copy_site()
    done = call("refresh", *site.options())
    assert "nothing changes" in done.stderr


def test_a_refresh_takes_new_items_in_and_lets_delisted_ones_go(
    copy_site: Callable[[], Site], world: Path, tmp_path: Path
) -> None:
    site = copy_site()
    catalogue = pq.read_table(world / "items.parquet").to_pylist()
    gone = max(
        pq.read_table(site.current() / "items.parquet", columns=["item_id", "train_count"]).to_pylist(),
        key=lambda item: item["train_count"],
    )["item_id"]
    like = next(item for item in catalogue if item["item_id"] == gone)
    fresh = {
        **like,
        "item_id": "brand new ✨",
        "title": "Brand new ✨",
        "available_from": None,
        "available_until": None,
    }
    kept = [item for item in catalogue if item["item_id"] != gone]
    schema = pq.read_schema(world / "items.parquet")
    pq.write_table(pa.Table.from_pylist([*kept, fresh], schema), tmp_path / "items.parquet")
    done = call("refresh", *site.options(f"items.path={tmp_path / 'items.parquet'}"))
    # the new one, and the delisted one, which has no content any more and serves in histories by its id
    assert "embedding 2 new or changed items" in done.stderr
    lookup = ["lookup", "--store", str(site.store), "--json"]
    answer = json.loads(call(*lookup, "--history", kept[0]["item_id"], "-k", "180").stdout)
    ids = {one["item_id"] for one in answer["candidates"]}
    assert gone not in ids
    assert "brand new ✨" in ids
    history = json.loads(call(*lookup, "--history", "brand new ✨").stdout)
    assert history["fallback"] is None


def test_a_release_that_ranks_by_what_trends_fits_its_bonus_and_is_measured_with_it(
    copy_site: Callable[[], Site],
) -> None:
    site = copy_site()
    options = [*site.options("index.trend_half_life_hours=24.0"), "--force", "to see it", "--json"]
    done = call("run", *options)
    assert "encoder: inputs and configuration unchanged" in done.stderr
    assert "trend bonus" in done.stderr
    trends = read_manifest(site.current(), kind="release").info["trends"]
    assert trends["half_life_hours"] == 24.0
    assert trends["validation_recall"][f"{trends['bonus']:g}"] == max(trends["validation_recall"].values())
    report = read_json(Path(json.loads(done.stdout.splitlines()[-1])["report"]).with_suffix(".json"))
    settings = report["systems"]["two_tower"]["settings"]
    assert (settings["trend_half_life_hours"], settings["trend_bonus"]) == (24.0, trends["bonus"])


def test_killed_at_several_points_the_next_run_completes(world: Path, tmp_path: Path) -> None:
    site = Site(world / "project.toml", tmp_path / "work")
    for line in ("dataset: building", "epoch 1", "release: embedding", "evaluate:"):
        process = subprocess.Popen(command("run", *site.options()), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert process.stderr is not None
        for said in process.stderr:
            if line.encode() in said:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
        process.stderr.close()
        assert process.returncode == -signal.SIGKILL, line
        assert not (site.store / "CURRENT").exists()
        for directory in site.workdir.glob("*/*"):
            if directory.parent.name != "checkpoints" and not directory.name.startswith("."):
                verify(directory)
    call("run", *site.options())
    verify(site.current(), kind="release")
    leftovers = [path for path in site.workdir.rglob(".partial-*") if path.parent.name != "checkpoints"]
    assert leftovers == []


def test_two_runs_on_one_workdir_do_not_corrupt_it(world: Path, tmp_path: Path) -> None:
    site = Site(world / "project.toml", tmp_path / "work")
    first = subprocess.Popen(command("dataset", *site.options()), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert first.stderr is not None
    first.stderr.readline()  # it holds the work directory now
    second = call("dataset", *site.options(), check=False)
    first.communicate()
    assert first.returncode == 0
    assert (second.returncode, "is in use by process" in second.stderr) in ((1, True), (0, False))
    (directory,) = (path for path in (site.workdir / "dataset").iterdir() if not path.name.startswith("."))
    verify(directory, kind="dataset")
