"""The store on an S3-compatible server on this machine."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recsys_cg.artifacts import verify
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    EnvironmentMismatchError,
    GateRefusedError,
    ReleaseNotFoundError,
    StoreError,
)
from recsys_cg.release.bucket import Bucket
from recsys_cg.release.contents import open_release
from recsys_cg.release.diff import diff_releases
from recsys_cg.release.remote_repair import UPLOAD_GRACE, repair_remote
from recsys_cg.release.repair import repair
from recsys_cg.release.store import Store
from tests.object_storage import serve_bucket
from tests.release.conftest import small_report, write_release, write_report


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with serve_bucket("releases-bucket") as url:
        yield url


@pytest.fixture
def in_memory() -> None:
    """Ask for the file system in memory, where what is tested does not depend on S3: it is fast."""


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    root = "memory:/" if "in_memory" in request.fixturenames else request.getfixturevalue("bucket")
    return f"{root}/{uuid.uuid4().hex}/store"


@pytest.fixture
def store(url: str, tmp_path: Path) -> Store:
    return Store(url, cache=tmp_path / "cache")


@pytest.fixture
def write(tmp_path: Path):
    """Return a function that writes a release and its report and gives both."""

    def run(name: str, *, report: dict[str, Any] | None = None, **options: Any) -> tuple[Path, Path]:
        folder = tmp_path / "work" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        release = write_release(folder / "release", name, **options)
        return release, write_report(folder / "report", report or small_report(name))

    return run


@pytest.fixture
def publish(store: Store, write):
    def run(name: str, *, expected: Any = ..., **options: Any) -> str:
        return store.publish(*write(name, **options), expected_current=store.current() if expected is ... else expected)

    return run


def test_an_unwritten_store_reads_as_empty(store: Store) -> None:
    assert store.current() is None
    assert store.releases() == []
    assert store.log() == []
    assert repair(store) == []


def test_a_published_release_is_read_back_whole_by_another_process(store: Store, publish, tmp_path: Path) -> None:
    publish("r1", vectors=None)
    reader = Store(store.path, cache=tmp_path / "reader")
    assert reader.current() == "r1"
    release = reader.path_of("r1")
    assert open_release(release).name == "r1"
    assert verify(release / "report").kind == "report"
    assert reader.report_of("r1")["release"] == "r1"
    assert reader.backend.bucket.read("CURRENT") == b"r1\n"
    assert [path.name for path in release.parent.iterdir()] == ["r1"]


@pytest.mark.usefixtures("in_memory")
def test_a_copy_is_made_once(store: Store, publish, monkeypatch: pytest.MonkeyPatch) -> None:
    publish("r1")
    first = store.path_of("r1")
    monkeypatch.setattr(Bucket, "download", lambda *_: pytest.fail("downloaded again"))
    assert store.path_of("r1") == first


@pytest.mark.usefixtures("in_memory")
def test_the_cache_keeps_the_newest_copies(store: Store, publish) -> None:
    for name in ("r1", "r2", "r3", "r4"):
        publish(name)
        store.path_of(name)
    assert sorted(path.name for path in store.path_of("r4").parent.iterdir()) == ["r2", "r3", "r4"]


def test_the_second_of_two_publishers_learns_who_won(store: Store, publish) -> None:
    publish("r1")
    publish("r2", expected="r1")
    with pytest.raises(StoreError, match=r"CURRENT is r2, not r1 .* moved it there at .*publish again"):
        publish("r3", expected="r1")
    assert store.current() == "r2"


def test_of_publishers_at_once_one_wins(url: str, write, tmp_path: Path) -> None:
    prepared = {f"r{n}": write(f"r{n}") for n in range(4)}
    barrier = threading.Barrier(len(prepared))
    outcomes: dict[str, str] = {}

    def run(name: str) -> None:
        own = Store(url, cache=tmp_path / f"cache-{name}")
        barrier.wait()
        try:
            outcomes[name] = own.publish(*prepared[name], expected_current=None)
        except StoreError as error:
            outcomes[name] = str(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in prepared]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Store(url, cache=tmp_path / "cache")
    winners = [name for name, outcome in outcomes.items() if outcome == name]
    assert winners == [store.current()]
    assert all(f"CURRENT is {winners[0]}" in text for name, text in outcomes.items() if name not in winners)


def test_a_writer_that_was_overtaken_by_a_pin_looks_again_and_wins(store: Store, publish, write) -> None:
    publish("r1")
    other = Store(store.path, cache=store.backend.cache)
    create, tries = store.backend.bucket.create, []

    def overtake(name: str, content: bytes) -> bool:
        if name.startswith("log/") and not tries:
            tries.append(name)
            other.pin("r1", reason="in between")
        return create(name, content)

    store.backend.bucket.create = overtake
    store.publish(*write("r2"), expected_current="r1")
    assert store.current() == "r2"
    assert [entry["action"] for entry in store.log()] == ["publish", "pin", "publish"]


@pytest.mark.usefixtures("in_memory")
def test_a_writer_overtaken_for_ever_gives_up_in_words(store: Store, publish, write) -> None:
    publish("r1")
    store.backend.bucket.create = lambda name, _: not name.startswith("log/")
    with pytest.raises(StoreError, match="faster 20 times in a row"):
        store.publish(*write("r2"), expected_current="r1")


def test_rollback_goes_back_one_release_each_time_and_verifies_every_byte(store: Store, publish) -> None:
    for name in ("r1", "r2", "r3"):
        publish(name)
    store.path_of("r2")
    assert store.rollback(reason="complaints") == "r2"
    assert store.rollback() == "r1"
    with pytest.raises(StoreError, match="r1 has no predecessor"):
        store.rollback()
    bucket = store.backend.bucket
    name = "releases/r3/vectors.npy"
    raw = bytearray(bucket.read(name) or b"")
    raw[-1] ^= 1
    bucket.write(name, bytes(raw))
    with pytest.raises(ArtifactCorruptError, match=r"vectors\.npy was changed"):
        store.rollback("r3")
    with pytest.raises(ReleaseNotFoundError, match="no release r9; it has: r1, r2, r3"):
        store.rollback("r9")
    assert store.current() == "r1"


@pytest.mark.usefixtures("in_memory")
def test_releases_pins_and_retention_work_as_in_a_local_store(store: Store, publish) -> None:
    for name in ("r0", "r1", "r2", "r3", "r4"):
        publish(name)
    store.pin("r0", reason="reference", actor="ann")
    assert store.pins()["r0"]["by"] == "ann"
    listed = {summary.name: summary for summary in store.releases()}
    assert listed["r4"].is_current
    assert listed["r3"].is_predecessor
    assert listed["r0"].is_pinned
    assert listed["r4"].headline["recall@100"] == 0.4
    assert store.prune(3) == ["r1", "r2"]
    assert sorted(summary.name for summary in store.releases()) == ["r0", "r3", "r4"]
    assert not store.backend.bucket.find("releases/r1")
    store.unpin("r0")
    with pytest.raises(StoreError, match="r0 is not pinned"):
        store.unpin("r0")
    with pytest.raises(ReleaseNotFoundError):
        store.pin("r1")
    with pytest.raises(ReleaseNotFoundError):
        store.report_of("r1")


def test_a_refused_report_is_kept_there_and_here(store: Store, write) -> None:
    _, report = write("r1")
    local = store.refuse("r1", report, ["the tail fell"])
    verify(local)
    assert json.loads(store.backend.bucket.read("refused/r1/reasons.json") or b"")["reasons"] == ["the tail fell"]
    assert store.current() is None
    assert store.log()[-1]["action"] == "refuse"
    other = store.refuse("r0", write("r0")[1], ["no"])
    assert store.prune_refusals(1) == ["r1"]
    assert store.backend.refusals() == ["r0"]
    assert not store.backend.bucket.find("refused/r1")
    assert (local.exists(), other.exists()) == (False, True)


@pytest.mark.usefixtures("in_memory")
def test_what_a_local_store_refuses_is_refused_here_too(store: Store, write, tmp_path: Path) -> None:
    release, report = write("r1")
    (release / "index/index.json").unlink()
    with pytest.raises(ArtifactMissingError, match=r"index\.json"):
        store.publish(release, report, expected_current=None)
    with pytest.raises(GateRefusedError):
        store.publish(*write("r1", report=small_report("r1", published=False)), expected_current=None)
    assert store.backend.bucket.find("") == {}


@pytest.mark.usefixtures("in_memory")
def test_one_name_is_one_release(store: Store, publish, write) -> None:
    first = write("r1", seed=0)
    assert store.publish(*first, expected_current=None) == "r1"
    assert store.publish(*first, expected_current=None) == "r1"
    with pytest.raises(StoreError, match="another release of this name"):
        publish("r1", seed=1)
    publish("r2")
    with pytest.raises(StoreError, match="another release of this name"):
        publish("r1", seed=1)
    assert store.publish(*first, expected_current="r2") == "r1"
    assert [entry["to"] for entry in store.log()] == ["r1", "r2", "r1"]


@pytest.mark.usefixtures("in_memory")
def test_two_releases_are_compared(store: Store, publish) -> None:
    publish("r1", items=6)
    publish("r2", items=8)
    diff = diff_releases(store, "r1", "r2")
    assert (diff["items"]["kept"], diff["items"]["added"]["count"]) == (6, 2)


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("operation", ["publish", "rollback", "prune"])
def test_a_writer_stopped_before_any_request_leaves_a_consistent_store(
    store: Store, publish, write, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("r0", "r1", "r2"):
        publish(name)
    prepared = write("r3", seed=3)
    run = {
        "publish": lambda: store.publish(*prepared, expected_current="r2"),
        "rollback": lambda: store.rollback("r1"),
        "prune": lambda: store.prune(2),
    }[operation]
    changes = {"write", "create", "upload", "delete"}
    for limit in itertools.count():
        left = [limit]
        with monkeypatch.context() as patch:
            for method in changes:
                patch.setattr(Bucket, method, _counted(getattr(Bucket, method), left))
            try:
                run()
                break
            except Killed:
                pass
        assert store.current() in {"r1", "r2", "r3"}
        for summary in store.releases():
            assert summary.fault == ""
            verify(store.backend.fetch(summary.name, anew=True))
    assert limit >= 2
    later = datetime.now(UTC) + 2 * UPLOAD_GRACE
    assert all(
        finding.is_mended and not finding.is_serious for finding in repair_remote(store.backend, apply=True, at=later)
    )
    assert repair(store) == []


def _counted(method: Any, left: list[int]) -> Any:
    def run(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return method(*arguments, **options)

    return run


def test_repair_leaves_a_fresh_upload_alone_and_removes_an_old_one(store: Store, publish) -> None:
    publish("r1")
    store.backend.bucket.write("releases/r2/vectors.npy", b"half")
    assert [finding.is_mended for finding in repair(store)] == [False]
    later = datetime.now(UTC) + UPLOAD_GRACE + timedelta(minutes=1)
    assert [finding.is_mended for finding in repair_remote(store.backend, apply=True, at=later)] == [True]
    assert store.backend.bucket.find("releases/r2") == {}
    assert repair(store) == []


@pytest.mark.usefixtures("in_memory")
def test_repair_moves_current_from_a_broken_release_and_mends_the_copy_of_the_pointer(store: Store, publish) -> None:
    publish("r1")
    publish("r2")
    store.backend.bucket.write("CURRENT", b"nonsense")
    assert store.current() == "r2"
    assert [finding.mend for finding in repair(store)] == ["written again"]
    store.backend.bucket.delete(["releases/r2/vectors.npy"])
    shown = repair(store, apply=False)
    assert store.current() == "r2"
    assert [finding.mend for finding in shown if finding.is_serious] == ["moved to r1"]
    repair(store)
    assert store.current() == "r1"
    assert store.backend.bucket.read("CURRENT") == b"r1\n"


@pytest.mark.usefixtures("in_memory")
def test_a_damaged_log_entry_is_named(store: Store, publish) -> None:
    publish("r1")
    store.backend.bucket.write("log/00000002.json", b"{")
    with pytest.raises(StoreError, match=r"log/00000002\.json is damaged"):
        store.current()


def test_a_bucket_that_is_not_there_is_one_clear_error(bucket: str, tmp_path: Path, write) -> None:
    absent = Store("s3://no-such-bucket/store", cache=tmp_path)
    with pytest.raises(StoreError, match="s3://no-such-bucket/store cannot be used"):
        absent.publish(*write("r1"), expected_current=None)


def test_a_missing_package_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    with pytest.raises(EnvironmentMismatchError, match=r"pip install 'recsys-cg\[s3\]'"):
        Store("s3://bucket/store")
