from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.data.content import Feature, FeatureSet
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, SearchError
from recsys_cg.serving.content import ContentEncoder
from recsys_cg.serving.lookup import CandidateLookup
from tests.serving.world import FEATURES, World, write_release

HALF = math.sqrt(0.5)


@pytest.fixture(scope="module")
def encoder(release_path: Path) -> ContentEncoder:
    return ContentEncoder.open(release_path / "encoder")


@pytest.fixture(scope="module")
def lookup(release_path: Path) -> CandidateLookup:
    return CandidateLookup.open(release_path)


def test_a_row_is_embedded_by_the_fitted_features(encoder: ContentEncoder):
    rows = [{"genre": "alpha|beta"}, {"genre": "alpha", "price": 15}, {"genre": "news", "title": "ignored"}]
    expected = [[HALF, HALF, 0, 0], [HALF, 0, 0, HALF], [0, 0, 1, 0]]
    np.testing.assert_allclose(encoder.encode(rows), expected, atol=1e-6)


@pytest.mark.parametrize("row", [{"price": 15}, {"price": "15"}, {"price": 15.0, "genre": None}, {"price": "+1.5e1"}])
def test_a_number_is_read_as_the_catalogue_reads_it(encoder: ContentEncoder, row: dict[str, object]):
    np.testing.assert_allclose(encoder.encode([row]), [[0, 0, 0, 1]], atol=1e-6)


def test_several_values_may_be_a_list(encoder: ContentEncoder):
    np.testing.assert_allclose(encoder.encode([{"genre": ["beta", "alpha"]}]), [[HALF, HALF, 0, 0]], atol=1e-6)


def test_no_row_gives_no_vector(encoder: ContentEncoder):
    assert encoder.encode([]).shape == (0, 4)


@pytest.mark.parametrize("row", [{}, {"title": "Alpha"}, {"genre": None, "price": None}])
def test_a_row_without_anything_that_a_feature_reads_is_refused(encoder: ContentEncoder, row: dict[str, object]):
    with pytest.raises(SearchError, match="none of the columns genre, price"):
        encoder.encode([row])


@pytest.mark.parametrize(
    "row",
    [
        {"genre": {"a": 1}},
        {"genre": [["a"]]},
        {"genre": ["a", 1]},
        {"price": "cheap"},
        {"genre": "\ud800"},
        {"price": [1]},
    ],
)
def test_a_value_that_is_no_such_feature_is_refused(encoder: ContentEncoder, row: dict[str, object]):
    with pytest.raises(SearchError, match="content"):
        encoder.encode([row])


@pytest.mark.parametrize("price", [10**400, float("nan"), float("inf")])
def test_a_number_beyond_all_bounds_is_clipped_missing_or_refused(encoder: ContentEncoder, price: float):
    try:
        vectors = encoder.encode([{"genre": "alpha", "price": price}])
    except SearchError:
        return
    np.testing.assert_allclose(vectors, [[1, 0, 0, 0]], atol=1e-6)


def test_what_is_no_row_is_refused(encoder: ContentEncoder):
    with pytest.raises(SearchError, match="row 0 is str"):
        encoder.encode(["alpha"])  # type: ignore[list-item]


def test_an_encoder_without_features_says_so(tower: Path, tmp_path: Path):
    write_release(tmp_path / "release", World(tower, features=None))
    opened = CandidateLookup.open(tmp_path / "release")
    with pytest.raises(ArtifactMissingError, match=r"trained without \[\[items.features\]\]"):
        opened.similar_content({"genre": "alpha"})
    assert opened.similar("a", 1).shortfall == 0


def test_a_graph_of_other_features_is_refused(tower: Path, tmp_path: Path):
    other = FeatureSet((Feature("colour", "categorical", "colour", hash_buckets=1),))
    write_release(tmp_path / "release", World(tower, features=other))
    with pytest.raises(ArtifactCorruptError, match="f_genre, f_price"):
        CandidateLookup.open(tmp_path / "release").similar_content({"colour": "red"})


def test_a_graph_that_was_changed_after_opening_is_refused(tower: Path, tmp_path: Path):
    write_release(tmp_path / "release", World(tower))
    opened = CandidateLookup.open(tmp_path / "release")
    path = tmp_path / "release" / "encoder" / "item" / "content.tflite"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactCorruptError, match="was changed"):
        opened.similar_content({"genre": "alpha"})


def test_items_like_new_content_are_found(lookup: CandidateLookup):
    answer = lookup.similar_content({"genre": "alpha"}, 3)
    assert [one.item_id for one in answer.candidates] == ["a", "ab", "ac"]
    assert [one.score for one in answer.candidates] == pytest.approx([1, HALF, HALF], abs=1e-6)


def test_new_content_finds_available_items_only(lookup: CandidateLookup):
    row = {"genre": "alpha", "price": 15}
    assert lookup.similar_content(row, 1, at="2019-01-01").candidates[0].item_id == "gone"
    assert lookup.similar_content(row, 1, at="2031-01-01").candidates[0].item_id == "soon"


def test_threads_embedding_at_once_get_their_own_vectors(encoder: ContentEncoder):
    rows = [{"genre": "alpha"}, {"genre": "beta"}, {"genre": "other"}, {"price": 99}]
    wrong: list[int] = []

    def work(place: int) -> None:
        found = [int(np.argmax(encoder.encode([rows[place]])[0])) for _ in range(50)]
        wrong.extend(one for one in found if one != place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_features_of_the_tests_are_those_of_the_graph():
    assert [(one.field_name, one.size, one.width) for one in FEATURES.features] == [
        ("f_genre", 4, 0),
        ("f_price", 0, 2),
    ]
