from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import seal
from recsys_cg.errors import ReleaseNotFoundError
from recsys_cg.geometry import l2_normalise
from recsys_cg.release.diff import diff_releases
from recsys_cg.release.store import Store
from tests.release.conftest import Publish, small_report, write_release, write_report


def test_a_release_does_not_differ_from_itself(store: Store, publish: Publish) -> None:
    publish("r1")
    diff = diff_releases(store, "r1", "r1")
    assert diff["items"]["kept"] == 6
    assert [diff["items"][name]["count"] for name in ("added", "removed", "changed_content")] == [0, 0, 0]
    assert not any(diff[part]["changed"] for part in ("encoder", "dataset", "index", "windows"))
    assert diff["vectors"] == {"kept": 6, "mean_similarity": pytest.approx(1.0, abs=1e-6)}
    assert {entry["difference"] for entry in diff["figures"]} == {0.0}


def test_items_and_figures_that_changed_are_listed(store: Store, publish: Publish, tmp_path: Path) -> None:
    publish("r1", items=6, report=small_report("r1", recall=0.25))
    release = write_release(tmp_path / "r2", "r2", items=6)
    items = pq.read_table(release / "items.parquet").to_pydict()
    items["item_id"][0] = "new"
    items["content_digest"][1] = "other"
    pq.write_table(pa.table(items), release / "items.parquet")
    manifest = json.loads((release / "manifest.json").read_text())
    seal(release, kind="release", key="k", info=manifest["info"])
    store.publish(release, write_report(tmp_path / "rep", small_report("r2", recall=0.5)), expected_current="r1")
    diff = diff_releases(store, "r1", "r2")
    assert diff["items"] == {
        "kept": 5,
        "added": {"count": 1, "first": ["new"]},
        "removed": {"count": 1, "first": ["i0"]},
        "changed_content": {"count": 1, "first": ["i1"]},
    }
    recall = next(e for e in diff["figures"] if (e["group"], e["metric"]) == ("overall", "recall@100"))
    assert (recall["old"], recall["new"], recall["difference"]) == (0.25, 0.5, 0.25)
    json.dumps(diff)


def test_vectors_of_two_encoders_are_not_compared(store: Store, publish: Publish) -> None:
    publish("r1")
    publish("r2", encoder="b")
    diff = diff_releases(store, "r1", "r2")
    assert diff["encoder"]["changed"]
    assert "vectors" not in diff


def test_one_encoder_shows_how_far_kept_items_moved(store: Store, publish: Publish) -> None:
    publish("r1", vectors=np.eye(4))
    publish("r2", vectors=l2_normalise(np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])))
    assert diff_releases(store, "r1", "r2")["vectors"]["mean_similarity"] == pytest.approx((3 + 0.5**0.5) / 4)


def test_an_unknown_release_is_named(store: Store, publish: Publish) -> None:
    publish("r1")
    with pytest.raises(ReleaseNotFoundError, match="r9"):
        diff_releases(store, "r1", "r9")
