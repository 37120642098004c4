from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from recsys_cg.config import IndexConfig
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, ConfigError, IndexBuildError
from recsys_cg.index.base import Retriever
from recsys_cg.index.build import build_index
from recsys_cg.index.load import open_index
from tests.contracts.retriever import RetrieverContract, make_queries, make_vectors
from tests.extension.outside.index import TwoHalves

KIND = "tests.extension.outside.index:TwoHalves"


def build(directory: Path, **changes: object) -> dict[str, object]:
    config = IndexConfig.model_validate({"kind": KIND, "k": 20, "options": {"colour": "blue"}, **changes})
    return build_index(make_vectors(), directory, config=config, queries=make_queries(100, 1), seed=3)


class TestTheBackendFromOutside(RetrieverContract):
    """It keeps the search contract, as every backend does: this class is all that it takes to see that."""

    @staticmethod
    def make() -> Retriever:
        return TwoHalves(make_vectors(), "under test")


def test_it_is_built_proved_and_written_down(tmp_path: Path) -> None:
    info = build(tmp_path / "index")
    assert info["kind"] == KIND
    assert info["why"] == "two halves, as asked for"
    recall = info["recall_vs_exact"]
    assert isinstance(recall, dict)
    assert (recall["mean"], recall["k"], recall["queries"]) == (1.0, 20, 100)
    document = json.loads((tmp_path / "index" / "index.json").read_text(encoding="utf-8"))
    assert document["files"] == {"halves.json": {"bytes": len('{"colour": "blue"}')}}


def test_it_is_opened_by_its_name_wherever_the_directory_lies(tmp_path: Path) -> None:
    build(tmp_path / "index")
    (tmp_path / "index").rename(tmp_path / "elsewhere")
    retriever = open_index(tmp_path / "elsewhere", make_vectors())
    assert retriever.kind == KIND
    assert "blue" in retriever.why


def test_below_the_declared_recall_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexBuildError, match=r"below index\.target_recall"):
        build(tmp_path / "index", kind=KIND.replace("TwoHalves", "OneHalf"))


def test_where_it_is_not_installed_exact_search_answers_and_says_so(tmp_path: Path) -> None:
    build(tmp_path / "index")
    path = tmp_path / "index" / "index.json"
    path.write_text(path.read_text(encoding="utf-8").replace("tests.extension.outside", "tests.extension.gone"))
    retriever = open_index(tmp_path / "index", make_vectors())
    assert retriever.kind == "exact"
    assert "tests.extension.gone" in retriever.why


@pytest.mark.parametrize("change", ["missing", "longer", "strange"])
def test_files_that_are_not_those_recorded_are_refused(tmp_path: Path, change: str) -> None:
    build(tmp_path / "index")
    folder = tmp_path / "index" / "own"
    if change == "missing":
        (folder / "halves.json").unlink()
    elif change == "longer":
        (folder / "halves.json").write_text("{}" * 20, encoding="utf-8")
    else:
        shutil.copy(folder / "halves.json", folder / "more.json")
    with pytest.raises(ArtifactMissingError if change == "missing" else ArtifactCorruptError):
        open_index(tmp_path / "index", make_vectors())


def test_options_need_a_backend_of_ones_own() -> None:
    with pytest.raises(ValueError, match="options are those of a backend of your own"):
        IndexConfig(kind="scann", options={"colour": "blue"})


def test_what_is_no_backend_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not offer build and open"):
        build(tmp_path / "index", kind="tests.extension.outside.metric:first_page")
