from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.artifacts import seal, verify
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactMissingError,
    EncoderMismatchError,
    GateRefusedError,
    MetricMismatchError,
    NonFiniteError,
    ReleaseNotFoundError,
    StoreError,
)
from recsys_cg.release.files import hold_lock
from recsys_cg.release.store import Store
from tests.release.conftest import Publish, small_report, write_release, write_report


def test_an_unwritten_store_reads_as_empty(store: Store) -> None:
    assert store.current() is None
    assert store.predecessor() is None
    assert store.releases() == []
    assert store.log() == []
    assert not store.path.exists()


def test_publish_moves_current_and_keeps_release_and_report_verified(store: Store, publish: Publish) -> None:
    assert publish("r1") == "r1"
    assert (store.path / "CURRENT").read_text() == "r1\n"
    assert verify(store.path_of("r1"), kind="release").info["release"] == "r1"
    assert verify(store.path_of("r1") / "report").kind == "report"
    assert store.report_of("r1")["release"] == "r1"
    entry = store.log()[-1]
    assert (entry["action"], entry["from"], entry["to"]) == ("publish", None, "r1")
    assert entry["by"]
    assert entry["time"].endswith("Z")


def test_files_are_hard_linked_and_the_source_may_go(store: Store, publish: Publish, tmp_path: Path) -> None:
    publish("r1")
    source = tmp_path / "work/r1/release/vectors.npy"
    assert source.stat().st_ino == (store.path_of("r1") / "vectors.npy").stat().st_ino
    source.unlink()
    verify(store.path_of("r1"))


def test_files_are_copied_where_no_link_can_be(
    store: Store, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    publish("r1")
    source = tmp_path / "work/r1/release/vectors.npy"
    assert source.stat().st_ino != (store.path_of("r1") / "vectors.npy").stat().st_ino
    verify(store.path_of("r1"))


def test_a_sealed_report_keeps_its_manifest(store: Store, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", "r1")
    report = write_report(tmp_path / "report", small_report("r1"))
    seal(report, kind="evaluation", key="k")
    store.publish(release, report, expected_current=None)
    assert verify(store.path_of("r1") / "report").kind == "evaluation"


def test_a_sealed_report_that_lost_a_file_is_refused(store: Store, tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", small_report("r1"))
    seal(report, kind="evaluation", key="k")
    (report / "report.md").unlink()
    with pytest.raises(ArtifactMissingError, match=r"report\.md"):
        store.publish(write_release(tmp_path / "release", "r1"), report, expected_current=None)
    assert store.releases() == []


def test_a_report_written_again_in_place_leaves_the_published_one_alone(store: Store, tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", small_report("r1"))
    store.publish(write_release(tmp_path / "release", "r1"), report, expected_current=None)
    write_report(report, small_report("r2"))
    assert store.report_of("r1")["release"] == "r1"


def test_the_second_of_two_publishers_learns_who_won(store: Store, publish: Publish) -> None:
    publish("r1")
    publish("r2", expected="r1")
    with pytest.raises(StoreError, match=r"CURRENT is r2, not r1 .* moved it there at .*publish again"):
        publish("r3", expected="r1")
    assert store.current() == "r2"
    with pytest.raises(ReleaseNotFoundError):
        store.path_of("r3")


def test_of_many_publishers_at_once_one_wins(store: Store, tmp_path: Path) -> None:
    outcomes: dict[str, str] = {}

    def run(name: str) -> None:
        release = write_release(tmp_path / name, name)
        report = write_report(tmp_path / f"{name}-report", small_report(name))
        barrier.wait()
        try:
            outcomes[name] = store.publish(release, report, expected_current=None)
        except StoreError as error:
            outcomes[name] = str(error)

    names = [f"r{n}" for n in range(6)]
    barrier = threading.Barrier(len(names))
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name, outcome in outcomes.items() if outcome == name]
    assert winners == [store.current()]
    assert all(f"CURRENT is {winners[0]}" in text for name, text in outcomes.items() if name not in winners)
    assert [entry["to"] for entry in store.log()] == winners


def test_publishing_what_is_current_changes_nothing(store: Store, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", "r1")
    report = write_report(tmp_path / "report", small_report("r1"))
    store.publish(release, report, expected_current=None)
    assert store.publish(release, report, expected_current=None) == "r1"
    assert len(store.log()) == 1
    other = write_release(tmp_path / "other", "r1", seed=1)
    with pytest.raises(StoreError, match="another release of this name"):
        store.publish(other, report, expected_current="r1")


def test_a_release_of_a_used_name_with_other_bytes_is_refused(store: Store, publish: Publish, tmp_path: Path) -> None:
    publish("r1")
    publish("r2")
    other = write_release(tmp_path / "other", "r1", seed=1)
    report = write_report(tmp_path / "report", small_report("r1"))
    with pytest.raises(StoreError, match="another release of this name"):
        store.publish(other, report, expected_current="r2")
    assert store.current() == "r2"


@pytest.mark.parametrize("name", ["", "..", "../r", "a/b", ".hidden", "-x", "r\n", "ü", "x" * 101, "\x00"])
def test_no_path_passes_for_a_name(store: Store, tmp_path: Path, name: str) -> None:
    for call in (store.path_of, store.rollback, store.pin, store.unpin):
        with pytest.raises(StoreError, match="no release name"):
            call(name)
    release = write_release(tmp_path / "release", name)
    report = write_report(tmp_path / "report", small_report(name))
    with pytest.raises(StoreError, match="no release name"):
        store.publish(release, report, expected_current=None)
    assert store.current() is None


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"release": "r2"}, StoreError, "is of release 'r2', not of r1"),
        ({"published": False}, GateRefusedError, "not judged fit"),
        ({"published": None}, GateRefusedError, "not judged fit"),
        ({"gates": []}, GateRefusedError, "holds no verdict"),
        ({"gates": [{"name": "coverage", "passed": False}]}, GateRefusedError, "coverage failed, and no reason"),
        ({"gates": [{"name": "coverage", "passed": False}], "forced": {"reason": " "}}, GateRefusedError, "no reason"),
    ],
)
def test_a_report_that_does_not_allow_it_stops_the_publish(
    store: Store, publish: Publish, changes: dict[str, object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        publish("r1", report=small_report("r1", **changes))
    assert store.current() is None
    assert store.releases() == []


def test_a_recorded_reason_overrides_a_failed_gate(store: Store, publish: Publish) -> None:
    report = small_report("r1", gates=[{"name": "coverage", "passed": False}], forced={"reason": "first week"})
    assert publish("r1", report=report) == "r1"
    assert store.report_of("r1")["forced"]["reason"] == "first week"


def test_a_collapsed_release_is_never_published_whatever_the_reason(store: Store, publish: Publish) -> None:
    report = small_report("r1", gates=[{"name": "effective_rank", "passed": False}], forced={"reason": "hurry"})
    with pytest.raises(GateRefusedError, match="effective_rank failed, and no reason overrides that"):
        publish("r1", report=report)
    assert store.current() is None


def test_damage_is_refused_and_leaves_no_trace(store: Store, tmp_path: Path) -> None:
    report = write_report(tmp_path / "report", small_report("r1"))
    changed = write_release(tmp_path / "changed", "r1")
    raw = bytearray((changed / "vectors.npy").read_bytes())
    raw[-1] ^= 1
    (changed / "vectors.npy").write_bytes(bytes(raw))
    with pytest.raises(ArtifactCorruptError, match=r"vectors\.npy was changed"):
        store.publish(changed, report, expected_current=None)
    missing = write_release(tmp_path / "missing", "r1")
    (missing / "index/index.json").unlink()
    with pytest.raises(ArtifactMissingError, match=r"index\.json"):
        store.publish(missing, report, expected_current=None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactMissingError, match="not a whole artifact"):
        store.publish(tmp_path / "empty", report, expected_current=None)
    with pytest.raises(ArtifactMissingError, match=r"report\.json"):
        store.publish(write_release(tmp_path / "fine", "r1"), tmp_path / "empty", expected_current=None)
    assert list(store.backend.releases.iterdir()) == []


def test_a_manifest_that_leads_out_of_its_directory_is_refused(store: Store, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", "r1")
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["files"]["../secret"] = {"bytes": 1, "sha256": "0"}
    del manifest["sealed"]
    (release / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "secret").write_text("x")
    with pytest.raises(ArtifactCorruptError, match="leads out of it"):
        store.publish(release, write_report(tmp_path / "report", small_report("r1")), expected_current=None)


def test_vectors_that_cannot_be_searched_are_refused(store: Store, publish: Publish) -> None:
    with pytest.raises(MetricMismatchError, match="off by up to 1"):
        publish("r1", vectors=2.0 * np.eye(4))
    broken = np.eye(4)
    broken[2, 1] = np.nan
    with pytest.raises(NonFiniteError, match="1 of 4 item vectors"):
        publish("r2", vectors=broken)
    assert store.current() is None


def test_a_mix_of_encoders_is_refused(store: Store, publish: Publish, tmp_path: Path) -> None:
    with pytest.raises(EncoderMismatchError, match="embedded by ffff"):
        publish("r1", item_encoder="f" * 64)
    mixed = write_release(tmp_path / "mixed", "r2")
    (mixed / "encoder/query/query.tflite").write_text("another tower")
    manifest = json.loads((mixed / "manifest.json").read_text())
    seal(mixed, kind="release", key="k", info=manifest["info"])
    with pytest.raises(EncoderMismatchError, match=r"query\.tflite is not the file of encoder"):
        store.publish(mixed, write_report(tmp_path / "report", small_report("r2")), expected_current=None)


def test_rollback_goes_back_one_release_each_time(store: Store, publish: Publish) -> None:
    for name in ("r1", "r2", "r3"):
        publish(name)
    assert store.rollback(reason="too many complaints") == "r2"
    assert store.log()[-1]["reason"] == "too many complaints"
    assert store.rollback() == "r1"
    with pytest.raises(StoreError, match="r1 has no predecessor"):
        store.rollback()
    assert store.rollback("r3") == "r3"
    assert store.predecessor() == "r2"


def test_rollback_refuses_what_is_absent_damaged_or_empty(store: Store, publish: Publish) -> None:
    with pytest.raises(StoreError, match="nothing was published"):
        store.rollback()
    publish("r1")
    publish("r2")
    with pytest.raises(ReleaseNotFoundError, match="no release r9; it has: r1, r2"):
        store.rollback("r9")
    (store.path_of("r1") / "index/index.json").unlink()
    with pytest.raises(ArtifactMissingError):
        store.rollback()
    assert store.current() == "r2"


def test_releases_are_listed_newest_first_with_their_figures(store: Store, publish: Publish) -> None:
    publish("r1", report=small_report("r1", recall=0.25))
    publish("r2", report=small_report("r2", recall=0.5))
    store.pin("r1", reason="the reference")
    first, second = store.releases()
    assert (first.name, first.is_current, first.is_predecessor, first.is_pinned) == ("r2", True, False, False)
    assert (second.name, second.is_current, second.is_predecessor, second.is_pinned) == ("r1", False, True, True)
    assert first.headline == {
        "recall@100": 0.5,
        "tail_recall@100": 0.2,
        "catalogue_coverage@100": 0.75,
        "index_recall_vs_exact@100": 0.99,
    }
    assert first.created.endswith("Z")


def test_a_damaged_release_is_listed_with_its_fault(store: Store, publish: Publish) -> None:
    publish("r1")
    publish("r2")
    (store.path_of("r1") / "report/report.json").write_text("{")
    (store.path_of("r2") / "manifest.json").unlink()
    faults = {summary.name: summary.fault for summary in store.releases()}
    assert "report.json is damaged" in faults["r1"]
    assert "not a whole artifact" in faults["r2"]


def test_prune_keeps_current_its_predecessor_and_pinned_ones(store: Store, publish: Publish) -> None:
    names = [f"r{n}" for n in range(7)]
    for name in names:
        publish(name)
    store.pin("r0")
    store.rollback("r3")
    assert store.predecessor() == "r2"
    assert store.prune(4) == ["r1", "r4", "r5"]
    assert [summary.name for summary in store.releases()] == ["r6", "r3", "r2", "r0"]
    assert store.prune(4) == []
    assert store.prune(2) == ["r6"]
    store.unpin("r0")
    assert store.prune(2) == ["r0"]
    assert store.rollback() == "r2"
    with pytest.raises(StoreError, match="keep = 1"):
        store.prune(1)


def test_rollback_to_a_deleted_predecessor_names_what_is_left(store: Store, publish: Publish) -> None:
    for name in ("r1", "r2", "r3"):
        publish(name)
    store.prune(2)
    store.rollback()
    with pytest.raises(ReleaseNotFoundError, match="no release r1; it has: r2, r3"):
        store.rollback()


def test_pins_are_listed_with_their_reason_and_taken_back(store: Store, publish: Publish) -> None:
    publish("r1")
    store.pin("r1", reason="a/b test", actor="ann")
    assert store.pins()["r1"]["reason"] == "a/b test"
    assert store.pins()["r1"]["by"] == "ann"
    store.unpin("r1")
    assert store.pins() == {}
    with pytest.raises(StoreError, match="r1 is not pinned; pinned are: none"):
        store.unpin("r1")
    with pytest.raises(ReleaseNotFoundError):
        store.pin("r2")


def test_a_refused_release_leaves_its_report_and_reasons(store: Store, publish: Publish, tmp_path: Path) -> None:
    publish("r1")
    report = write_report(tmp_path / "refused", small_report("r2", published=False))
    where = store.refuse("r2", report, ["tail recall fell by 0.1"])
    assert json.loads((where / "reasons.json").read_text())["reasons"] == ["tail recall fell by 0.1"]
    assert json.loads((where / "report.json").read_text())["release"] == "r2"
    verify(where)
    assert store.current() == "r1"
    assert store.log()[-1]["reasons"] == ["tail recall fell by 0.1"]
    assert store.refuse("r2", report, ["again"]) == where
    assert json.loads((where / "reasons.json").read_text())["reasons"] == ["again"]


def test_reports_of_refused_releases_are_kept_by_when_they_were_refused(
    store: Store, publish: Publish, tmp_path: Path
) -> None:
    publish("r1")
    for name in ("z", "b", "a", "c", "b"):  # b was refused again, and so is newer than c
        store.refuse(name, write_report(tmp_path / name, small_report(name, published=False)), ["no"])
    (store.path / "refused" / "unlogged").mkdir()
    assert store.prune_refusals(9) == []
    assert store.prune_refusals(3) == ["unlogged", "z"]
    assert store.prune_refusals(2, actor="ann") == ["a"]
    assert sorted(path.name for path in (store.path / "refused").iterdir()) == ["b", "c"]
    assert (store.log()[-1]["action"], store.log()[-1]["refused"], store.log()[-1]["by"]) == ("prune", "a", "ann")
    assert [entry["release"] for entry in store.log() if entry["action"] == "refuse"] == ["z", "b", "a", "c", "b"]
    assert (store.current(), store.prune(2)) == ("r1", [])
    with pytest.raises(StoreError, match="at least 1"):
        store.prune_refusals(0)


def test_an_empty_store_has_no_refused_reports_to_prune(store: Store) -> None:
    assert store.prune_refusals(1) == []


def test_a_writer_waits_for_the_lock_and_then_says_who_holds_it(store: Store, publish: Publish) -> None:
    publish("r1")
    impatient = Store(store.path, lock_timeout_s=0.05)
    with hold_lock(store.path, 1.0), pytest.raises(StoreError, match=rf"held by process {os.getpid()} on"):
        impatient.rollback("r1")
    assert impatient.rollback("r1") == "r1"


def test_a_damaged_pointer_is_an_error_not_a_path(store: Store, publish: Publish) -> None:
    publish("r1")
    (store.path / "CURRENT").write_text("../../etc")
    with pytest.raises(StoreError, match="no release name; doctor --store"):
        store.current()
    (store.path / "CURRENT").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="cannot be read"):
        store.current()


def test_an_unknown_protocol_is_refused_in_words() -> None:
    with pytest.raises(StoreError, match="Protocol not known: gopher"):
        Store("gopher://bucket/store")


def test_a_file_url_is_the_directory(store: Store, publish: Publish) -> None:
    publish("r1")
    assert Store(store.path.as_uri()).path == store.path
    assert Store(store.path.as_uri()).current() == "r1"


def test_a_moved_store_answers_the_same(store: Store, publish: Publish, tmp_path: Path) -> None:
    publish("r1")
    publish("r2")
    moved = Store(store.path.rename(tmp_path / "elsewhere"))
    assert moved.current() == "r2"
    assert moved.rollback() == "r1"


def test_errors_are_of_the_family(store: Store) -> None:
    with pytest.raises(ArtifactError):
        store.publish(store.path, store.path, expected_current=None)
