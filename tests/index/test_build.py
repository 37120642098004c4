"""Building and opening an index: which backend, what it says of itself, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cg.config import IndexConfig
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactFormatError,
    ArtifactMissingError,
    EnvironmentMismatchError,
    IndexBuildError,
    MetricMismatchError,
    SearchError,
)
from recsys_cg.index import build, tree, tuning
from recsys_cg.index.build import build_index
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.index.load import open_index
from tests.contracts.retriever import RetrieverContract, make_queries, make_vectors, unit

ITEMS, DIM = 3000, 16
SCANN = IndexConfig(kind="scann", k=20, target_recall=0.9)


def clustered(count: int, seed: int) -> np.ndarray:
    centres = np.random.default_rng(0).normal(size=(60, DIM))
    rng = np.random.default_rng(seed)
    return unit(centres[rng.integers(0, 60, count)] + 0.6 * rng.normal(size=(count, DIM)))


VECTORS, QUERIES = clustered(ITEMS, 1), clustered(600, 2)
BUCKETS = ["head"] * 300 + ["tail"] * 2700


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The index, where a search costs as many microseconds as it looks into partitions: no test rests on a clock."""
    directory = tmp_path_factory.mktemp("index") / "index"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuning, "_time", lambda tuned, probes, k: float(tuned.parameters.leaves_to_search))
        return directory, build_index(VECTORS, directory, config=SCANN, queries=QUERIES, buckets=BUCKETS, seed=3)


@pytest.fixture
def copy(built: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(built[0], tmp_path / "copy"))


def edit(directory: Path, **changes: Any) -> None:
    path = directory / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class TestBuiltExactIndex(RetrieverContract):
    @staticmethod
    def make() -> Any:
        import tempfile

        directory = Path(tempfile.mkdtemp())
        build_index(make_vectors(), directory, config=IndexConfig(kind="exact"), queries=make_queries(3, 0))
        try:
            return open_index(directory, make_vectors())
        finally:
            shutil.rmtree(directory)


def test_scann_is_chosen_where_it_reaches_the_target_on_held_out_queries(built: tuple[Path, dict[str, Any]]) -> None:
    directory, info = built
    assert info["kind"] == "scann"
    recall = info["recall_vs_exact"]
    assert recall["k"] == 20
    assert recall["mean"] >= 0.9
    assert recall["ci95"][0] <= recall["mean"] <= recall["ci95"][1]
    assert set(recall["by_bucket"]) == {"head", "tail"}
    assert info["parameters"]["tuning_queries"] + recall["queries"] <= len(QUERIES)
    assert info["bytes"] == sum(path.stat().st_size for path in (directory / "scann").iterdir())
    assert json.loads(json.dumps(info)) == info
    assert {key: json.loads((directory / "index.json").read_text())[key] for key in info} == info


def test_the_settings_tried_are_recorded_as_a_frontier_of_recall_and_cost(built: tuple[Path, dict[str, Any]]) -> None:
    _, info = built
    points = info["operating_points"]
    assert len(points) >= 2
    assert [point["chosen"] for point in points].count(True) == 1
    chosen = next(point for point in points if point["chosen"])
    assert {key: chosen[key] for key in ("leaves", "leaves_to_search", "reorder")} == {
        key: info["parameters"][key] for key in ("leaves", "leaves_to_search", "reorder")
    }
    assert chosen["recall"] == info["parameters"]["tuning_recall"]
    assert points == sorted(points, key=lambda point: (point["microseconds"], point["recall"]))
    assert [point["recall"] for point in points] == sorted({point["recall"] for point in points})


def test_the_recorded_recall_is_what_other_queries_see(built: tuple[Path, dict[str, Any]]) -> None:
    queries = clustered(800, 9)
    exact = ExactRetriever(VECTORS).search(queries, 20).rows
    found = open_index(built[0], VECTORS).search(queries, 20).rows
    recall = np.mean([len(np.intersect1d(a, b)) / 20 for a, b in zip(exact, found, strict=True)])
    assert recall >= 0.88


def test_an_index_says_that_trees_take_no_seed(built: tuple[Path, dict[str, Any]]) -> None:
    assert "no seed" in json.loads((built[0] / "index.json").read_text())["determinism"]


def test_a_moved_index_answers_the_same_after_the_original_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    build_index(VECTORS, directory, config=SCANN, queries=QUERIES)
    before = open_index(directory, VECTORS).search(QUERIES, 30)
    directory.rename(tmp_path / "ü b")
    after = open_index(tmp_path / "ü b", VECTORS).search(QUERIES, 30)
    np.testing.assert_array_equal(before.rows, after.rows)
    assert str(tmp_path) not in (tmp_path / "ü b" / "scann" / "scann_assets.pbtxt").read_text()


def test_an_index_is_opened_beside_a_memory_map(copy: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "vectors.npy", VECTORS)
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    retriever = open_index(copy, vectors)
    assert (retriever.kind, retriever.is_exact, retriever.size, retriever.dim) == ("scann", False, ITEMS, DIM)
    assert retriever.search(QUERIES[:2], 5, allow=np.array([4])).rows[:, 0].tolist() == [4, 4]


@pytest.mark.parametrize("items", [0, 1, 15, 99])
def test_every_small_size_is_searched_exactly_and_says_so(tmp_path: Path, items: int) -> None:
    info = build_index(VECTORS[:items], tmp_path / "i", config=SCANN, queries=QUERIES)
    assert info["kind"] == "exact"
    assert f"{items} items" in info["why"]
    result = open_index(tmp_path / "i", VECTORS[:items]).search(QUERIES[:2], 5)
    assert result.found.tolist() == [min(5, items)] * 2


@pytest.mark.parametrize(
    ("config", "queries", "words"),
    [
        (IndexConfig(kind="exact"), QUERIES, "index.kind = 'exact'"),
        (IndexConfig(kind="auto", exact_below=3001), QUERIES, "index.exact_below = 3,001"),
        (SCANN, QUERIES[:63], "63 tuning queries are too few"),
        (SCANN, QUERIES[:0], "0 tuning queries are too few"),
        (IndexConfig(kind="scann", k=2000), QUERIES, "too few for a tree with lists of 2000"),
    ],
)
def test_exact_search_is_chosen_for_a_reason(
    tmp_path: Path, config: IndexConfig, queries: np.ndarray, words: str
) -> None:
    info = build_index(VECTORS, tmp_path, config=config, queries=queries)
    assert (info["kind"], info["recall_vs_exact"]["mean"]) == ("exact", 1.0)
    assert words in info["why"]
    retriever = open_index(tmp_path, VECTORS)
    assert retriever.is_exact
    assert words in retriever.why


def test_a_target_that_cannot_be_reached_gives_exact_search(tmp_path: Path) -> None:
    """Noise in 64 dimensions: half the tree's candidates, scored again 12 times over, still miss some."""
    rng = np.random.default_rng(0)
    vectors, queries = unit(rng.normal(size=(20_000, 64))), unit(rng.normal(size=(128, 64)))
    config = IndexConfig(kind="scann", k=10, target_recall=1.0)
    info = build_index(vectors, tmp_path, config=config, queries=queries)
    assert info["kind"] == "exact"
    assert "no ScaNN setting reached recall@10 of 1.0" in info["why"]


def test_without_scann_exact_search_is_built_and_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise EnvironmentMismatchError("ScaNN cannot be imported (ImportError: no wheel)")

    monkeypatch.setattr(build, "import_scann", fail)
    info = build_index(VECTORS, tmp_path, config=SCANN, queries=QUERIES)
    assert info["kind"] == "exact"
    assert "no wheel" in info["why"]


def test_a_scann_index_without_scann_is_searched_exactly(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise EnvironmentMismatchError("ScaNN cannot be imported (ImportError: no wheel)")

    monkeypatch.setattr(tree, "import_scann", fail)
    retriever = open_index(copy, VECTORS)
    assert retriever.kind == "exact"
    assert "in place of ScaNN" in retriever.why
    np.testing.assert_array_equal(retriever.search(QUERIES, 5).rows, ExactRetriever(VECTORS).search(QUERIES, 5).rows)


def test_the_split_of_the_queries_follows_the_seed() -> None:
    from recsys_cg.index.selection import _split

    first, again, other = (_split(QUERIES, 100, seed) for seed in (1, 1, 2))
    assert [len(part) for part in first] == [100, 100, 100]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert len(np.unique(np.concatenate(first), axis=0)) == 300


def test_broken_vectors_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    vectors = VECTORS.copy()
    vectors[7] = np.nan
    with pytest.raises(IndexBuildError, match=r"row 7 \(NaN\)"):
        build_index(vectors, tmp_path / "new", config=SCANN, queries=QUERIES)
    assert not (tmp_path / "new").exists()


def test_broken_queries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MetricMismatchError):
        build_index(VECTORS, tmp_path / "a", config=SCANN, queries=2 * QUERIES)
    with pytest.raises(SearchError, match="shape"):
        build_index(VECTORS, tmp_path / "b", config=SCANN, queries=QUERIES[:, :5])


def test_buckets_of_another_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexBuildError, match="2 buckets for 3000 vectors"):
        build_index(VECTORS, tmp_path, config=SCANN, queries=QUERIES, buckets=["head", "tail"])


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.npy").write_text("")
    with pytest.raises(IndexBuildError, match="not empty"):
        build_index(VECTORS, tmp_path, config=SCANN, queries=QUERIES)


@pytest.mark.parametrize("name", ["index.json", "scann/scann_assets.pbtxt", "scann/hashed_dataset.npy"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ArtifactMissingError, match=Path(name).name):
        open_index(copy, VECTORS)


@pytest.mark.parametrize(
    "name",
    ["hashed_dataset.npy", "dataset.npy", "datapoint_to_token.npy", "serialized_partitioner.pb", "scann_config.pb"],
)
@pytest.mark.parametrize("keep", [0, 40, 0.5, 0.999])
def test_a_truncated_file_is_an_error_not_a_crash(copy: Path, name: str, keep: float) -> None:
    path = copy / "scann" / name
    data = path.read_bytes()
    path.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    with pytest.raises(ArtifactCorruptError, match=name):
        open_index(copy, VECTORS)


def test_an_array_of_other_rows_is_refused(copy: Path) -> None:
    np.save(copy / "scann" / "dataset.npy", VECTORS[:-1])
    with pytest.raises(ArtifactCorruptError, match=r"dataset\.npy"):
        open_index(copy, VECTORS)


def test_pickled_ids_are_never_read(copy: Path) -> None:
    (copy / "scann" / "scann_docids.pkl").write_bytes(b"cposix\nsystem\n")
    with pytest.raises(ArtifactCorruptError, match=r"scann_docids\.pkl"):
        open_index(copy, VECTORS)


def test_vectors_of_another_release_are_refused(copy: Path) -> None:
    with pytest.raises(ArtifactCorruptError, match="3000, 16"):
        open_index(copy, VECTORS[:-1])
    with pytest.raises(ArtifactCorruptError, match="float64"):
        open_index(copy, VECTORS.astype(np.float64))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"schema": 2}, ArtifactFormatError),
        ({"schema": None}, ArtifactCorruptError),
        ({"metric": "euclidean"}, MetricMismatchError),
        ({"parameters": {"leaves": 50}}, ArtifactCorruptError),
        ({"parameters": {"leaves": 50, "leaves_to_search": 0, "reorder": 40, "k": 20}}, ArtifactCorruptError),
    ],
)
def test_an_index_file_that_cannot_be_served_is_refused(
    copy: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    edit(copy, **changes)
    with pytest.raises(error):
        open_index(copy, VECTORS)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}'])
def test_an_index_file_that_is_none_is_refused(copy: Path, text: str) -> None:
    (copy / "index.json").write_text(text)
    with pytest.raises(ArtifactCorruptError):
        open_index(copy, VECTORS)
