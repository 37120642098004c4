"""Kill a writer before each change that it makes to the file system, and look at what it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recsys_cg.artifacts import verify
from recsys_cg.errors import ArtifactError
from recsys_cg.release.repair import repair
from recsys_cg.release.store import Store
from tests.release.conftest import Publish, small_report, write_release, write_report

# Runs one operation in a fork for each n, killed before its n-th change below the store; prints the number of changes.
DRIVER = """
import os, shutil, signal, sys
from pathlib import Path
from recsys_cg.release.store import Store
import recsys_cg.release.contents, numpy, pyarrow.parquet

base, operation, release, report = sys.argv[1:5]
CHANGES = {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "shutil.copyfile", "os.truncate"}

def run(store):
    if operation == "publish":
        store.publish(Path(release), Path(report), expected_current="r1")
    elif operation == "rollback":
        store.rollback("r0")
    elif operation == "prune":
        store.prune(2)
    elif operation == "prune refusals":
        store.prune_refusals(1)
    else:
        store.refuse("r2", Path(report), ["no"])

def attempt(n):
    path = f"{base}-{n}"
    shutil.copytree(base, path)
    pid = os.fork()
    if pid == 0:
        left = [n]
        def watch(event, arguments):
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if (event in CHANGES or writes) and any(path in str(part) for part in arguments):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(watch)
        run(Store(path))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)

os.fsync = lambda handle: None  # a killed process loses no page that it wrote; the disk is not under test
n = 0
while attempt(n):
    n += 1
print(n)
"""


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.fixture
def attempts(store: Store, publish: Publish, tmp_path: Path):
    """Return a function: run an operation, killed at every point; give the stores that were left."""
    for name in ("r00", "r0", "r1"):
        publish(name)
    release = write_release(tmp_path / "next", "r2", seed=2)
    report = write_report(tmp_path / "next-report", small_report("r2"))

    def run(operation: str) -> list[Store]:
        command = [sys.executable, "-c", DRIVER, str(store.path), operation, str(release), str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return [Store(f"{store.path}-{n}") for n in range(int(done.stdout) + 1)]

    return run


def assert_consistent(store: Store, allowed: set[str]) -> None:
    current = store.current()
    assert current in allowed
    for summary in store.releases():
        assert summary.fault == ""
        verify(store.path_of(summary.name), kind="release")
        verify(store.path_of(summary.name) / "report")
    assert store.predecessor() is not None


def assert_mended(store: Store) -> None:
    before = store.current()
    assert all(finding.is_mended and not finding.is_serious for finding in repair(store))
    assert repair(store) == []
    assert store.current() == before
    assert not [path for path in store.path.rglob("*") if ".partial" in path.name]


def test_a_publish_killed_anywhere_can_be_repeated(attempts, tmp_path: Path) -> None:
    stores = attempts("publish")
    assert len(stores) > 20
    assert stores[-1].current() == "r2"
    assert {store.current() for store in stores} == {"r1", "r2"}
    for number, store in enumerate(stores):
        assert_consistent(store, {"r1", "r2"})
        if number % 3:
            continue
        if number % 2:
            assert_mended(store)
        if store.current() == "r1":
            store.publish(tmp_path / "next", tmp_path / "next-report", expected_current="r1")
        assert store.current() == "r2"
        assert store.predecessor() == "r1"
        assert store.rollback() == "r1"
        assert store.rollback() == "r0"


def test_a_rollback_killed_anywhere_is_done_or_not(attempts) -> None:
    stores = attempts("rollback")
    assert {store.current() for store in stores} == {"r0", "r1"}
    for store in stores:
        assert_consistent(store, {"r0", "r1"})
        assert_mended(store)
        assert store.rollback("r0") == "r0"
        assert store.predecessor() == "r00"


def test_a_prune_killed_anywhere_leaves_whole_releases(attempts) -> None:
    for store in attempts("prune"):
        assert_consistent(store, {"r1"})
        assert_mended(store)
        store.prune(2)
        assert [summary.name for summary in store.releases()] == ["r1", "r0"]


def test_a_refusal_killed_anywhere_leaves_current_alone(attempts) -> None:
    for store in attempts("refuse"):
        assert_consistent(store, {"r1"})
        assert_mended(store)
        for path in (store.path / "refused").glob("*"):
            verify(path)


def test_refused_reports_that_go_are_whole_or_gone_when_killed_anywhere(attempts, store: Store, tmp_path: Path) -> None:
    for name in ("x", "y"):
        store.refuse(name, write_report(tmp_path / name, small_report(name, published=False)), ["no"])
    for killed in attempts("prune refusals"):
        assert_consistent(killed, {"r1"})
        assert_mended(killed)
        for path in (killed.path / "refused").glob("*"):
            verify(path)
        killed.prune_refusals(1)
        assert [path.name for path in (killed.path / "refused").iterdir()] == ["y"]


def test_a_first_publish_killed_before_the_pointer_is_no_lost_pointer(store: Store, publish: Publish) -> None:
    publish("r1")
    (store.path / "CURRENT").unlink()
    findings = repair(store)
    assert [finding.is_serious for finding in findings] == [False]
    assert "stopped before CURRENT moved to r1" in findings[0].problem
    assert repair(store) == []


def test_repair_of_nothing_finds_nothing(store: Store, publish: Publish) -> None:
    assert repair(store) == []
    publish("r1")
    assert repair(store) == []


def test_repair_moves_current_from_a_damaged_release_to_the_last_good_one(store: Store, publish: Publish) -> None:
    for name in ("r1", "r2", "r3"):
        publish(name)
    for name in ("r2", "r3"):
        (store.path_of(name) / "vectors.npy").unlink()
    shown = repair(store, apply=False)
    assert store.current() == "r3"
    assert [finding.mend for finding in shown if finding.is_serious] == ["moved to r1"]
    assert not any(finding.is_mended for finding in shown)
    done = repair(store)
    assert store.current() == "r1"
    assert sum(finding.is_mended for finding in done) == 1
    assert {Path(finding.path).name for finding in done} == {"CURRENT", "r2", "r3"}
    assert store.log()[-1]["action"] == "repair"
    with pytest.raises(ArtifactError):
        verify(store.path_of("r2"))


@pytest.mark.parametrize("content", [None, b"", b"r9\n", b"../r1", b"\xff"])
def test_repair_finds_a_lost_or_damaged_pointer(store: Store, publish: Publish, content: bytes | None) -> None:
    publish("r1")
    publish("r2")
    pointer = store.path / "CURRENT"
    pointer.unlink()
    if content is not None:
        pointer.write_bytes(content)
    assert [finding.mend for finding in repair(store)] == ["moved to r2"]
    assert store.current() == "r2"
    assert repair(store) == []


def test_repair_without_any_good_release_says_what_to_do(store: Store, publish: Publish) -> None:
    publish("r1")
    (store.path_of("r1") / "vectors.npy").unlink()
    serious = [finding for finding in repair(store) if finding.is_serious]
    assert serious[0].mend == "publish a release: no earlier one can be trusted"
    assert not serious[0].is_mended
    assert store.current() == "r1"


def test_repair_drops_torn_log_lines_and_keeps_the_rest(store: Store, publish: Publish) -> None:
    publish("r1")
    store.pin("r1")
    publish("r2")
    with (store.path / "log.jsonl").open("a") as file:
        file.write('{"time": "2026')
    assert len(store.log()) == 3
    findings = repair(store)
    assert [finding.is_mended for finding in findings] == [True]
    assert (store.path / "log.jsonl").read_text().count("\n") == 3
    assert list(store.pins()) == ["r1"]


def test_a_torn_log_line_does_not_swallow_the_next_entry(store: Store, publish: Publish) -> None:
    publish("r1")
    with (store.path / "log.jsonl").open("a") as file:
        file.write('{"time": "2026')
    publish("r2")
    assert [entry["to"] for entry in store.log()] == ["r1", "r2"]
    assert store.predecessor() == "r1"
