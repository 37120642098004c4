"""A project whose sampler, loss, kind of feature, index and metric all come from outside, walked the whole way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from recsys_cg.artifacts import read_manifest
from recsys_cg.config import load_config
from recsys_cg.serving import CandidateLookup
from recsys_cg.workflow.project import Project
from recsys_cg.workflow.run import run

OUTSIDE = "tests.extension.outside"
SETTINGS = [
    "model.dim=16",
    "model.blocks=1",
    "model.negatives=[{kind='in_batch', count=64}, "
    f"{{kind='{OUTSIDE}.sampler:EveryOther', count=32, options={{step=4}}}}]",
    f"model.loss='{OUTSIDE}.loss:squared_hinge'",
    "model.loss_options={margin=0.5}",
    "training.epochs=2",
    "training.batch_sequences=8",
    "training.row_length=32",
    "training.warmup_steps=5",
    f"index.kind='{OUTSIDE}.index:TwoHalves'",
    "index.options={colour='green'}",
    f"evaluation.metrics=['{OUTSIDE}.metric:first_page']",
    "evaluation.k=[20]",
    "evaluation.primary_k=20",
    "evaluation.baselines=['popularity']",
    "evaluation.bootstrap_samples=100",
    "gates.beat_baseline=off",  # two epochs are no match for it
]


@pytest.fixture(scope="module")
def project(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The world's own project file with one feature more, run to the end."""
    folder = tmp_path_factory.mktemp("outside")
    text = (world / "project.toml").read_text(encoding="utf-8")
    for name in ("events", "items.parquet", "impressions"):
        text = text.replace(f'path = "{name}"', f'path = "{world / name}"')
    text += f'\n[[items.features]]\nname = "letters"\nkind = "{OUTSIDE}.feature:Letters"\ncolumn = "title"\n'
    text += "options = {scale = 4.0}\n"
    (folder / "project.toml").write_text(text, encoding="utf-8")
    made = Project(load_config(folder / "project.toml", SETTINGS), folder / "work")
    run(made)
    return made


@pytest.fixture(scope="module")
def lookup(project: Project) -> CandidateLookup:
    return CandidateLookup.open(project.store_path)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_released_candidates_are_looked_up_through_the_index_from_outside(lookup: CandidateLookup) -> None:
    release = lookup.release
    assert release.retriever.kind == f"{OUTSIDE}.index:TwoHalves"
    assert "green" in release.retriever.why
    assert read_manifest(release.path, kind="release").info["index"]["recall_vs_exact"]["mean"] == 1.0
    known = pq.read_table(release.path / "items.parquet")["item_id"].to_pylist()
    answer = lookup.candidates(history=known[:2], k=5)
    found = [candidate.item_id for candidate in answer.candidates]
    assert answer.fallback is None
    assert len(set(found)) == 5
    assert set(found) <= set(known[2:])
    scores = [candidate.score for candidate in answer.candidates]
    assert scores == sorted(scores, reverse=True)


def test_the_release_says_what_it_was_trained_with(lookup: CandidateLookup) -> None:
    record = read(lookup.release.path / "encoder" / "training.json")
    assert record["loss"] == f"{OUTSIDE}.loss:squared_hinge"
    assert record["negatives"][1] == {"kind": f"{OUTSIDE}.sampler:EveryOther", "count": 32, "options": {"step": 4}}


def test_a_new_item_is_read_by_the_feature_from_outside(lookup: CandidateLookup) -> None:
    """Words are the same in capitals and without; the vowels and capitals of the outside feature are not."""
    small, large = (lookup.similar_content({"title": title}, k=5).candidates for title in ("abcde", "ABCDE"))
    assert len(small) == len(large) == 5
    assert small[0].score != large[0].score


def test_the_report_measures_the_metric_from_outside_and_defines_it(lookup: CandidateLookup) -> None:
    report = read(lookup.release.path / "report" / "report.json")
    assert 0.0 < report["systems"]["two_tower"]["overall"]["first_page@20"]["mean"] < 1.0
    assert report["protocol"]["definitions"]["first_page@20"].startswith("1 where a target is among the first half")
    assert report["published"] is True
