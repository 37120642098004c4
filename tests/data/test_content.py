from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import FeatureConfig
from recsys_cg.data.content import FeatureSet, content_digests
from recsys_cg.errors import ArtifactCorruptError, SourceError


def _fit(column: pa.Array, known: list[bool] | None = None, **options: Any) -> FeatureSet:
    table = pa.table({"c": column})
    mask = np.array(known if known is not None else [True] * len(column), dtype=bool)
    return FeatureSet.fit(table, [FeatureConfig(name="c", **{"min_items": 1, **options})], mask)


def _encode(features: FeatureSet, column: pa.Array) -> list[Any]:
    encoded = features.encode(pa.table({"c": column}))
    assert encoded.column_names == ["f_c"]
    values: list[Any] = encoded["f_c"].to_pylist()
    return values


def test_vocabulary_is_by_frequency_then_value_and_padding_is_never_inside() -> None:
    column = pa.array(["b", "a", "a", "c", None, ""])
    features = _fit(column, kind="categorical", hash_buckets=4)
    assert features.features[0].vocabulary == ("a", "b", "c")
    assert features.features[0].size == 1 + 3 + 4
    assert _encode(features, column) == [[2], [1], [1], [3], [], []]


def test_values_that_only_later_items_have_go_to_hash_buckets() -> None:
    column = pa.array(["a", "b", "b", "b"])
    features = _fit(column, [True, False, False, False], kind="categorical", hash_buckets=3)
    assert features.features[0].vocabulary == ("a",)
    codes = _encode(features, column)
    assert codes[0] == [1]
    assert codes[1] == codes[2]
    assert 2 <= codes[1][0] <= 4


def test_the_tail_beyond_max_vocabulary_is_hashed() -> None:
    features = _fit(pa.array(["a", "a", "b", "c"]), kind="categorical", max_vocabulary=1, hash_buckets=2)
    assert features.features[0].vocabulary == ("a",)
    assert all(2 <= code <= 3 for (code,) in _encode(features, pa.array(["b", "c", "never"])))


def test_a_value_of_too_few_training_items_is_hashed() -> None:
    column = pa.array([["a", "b"], ["a", "b"], ["a", "c"], ["c"], ["d", "d"]])
    known = [True, True, True, False, True]
    config = FeatureConfig(name="c", kind="categorical", hash_buckets=1)
    features = FeatureSet.fit(pa.table({"c": column}), [config], np.array(known))
    assert features.features[0].vocabulary == ("a", "b"), "c has one training item, d says itself twice of one"
    assert _encode(features, column) == [[1, 2], [1, 2], [1, 3], [3], [3]]
    assert _fit(column, known, kind="categorical", min_items=3).features[0].vocabulary == ("a",)
    assert _fit(column, known, kind="categorical", min_items=4).features[0].vocabulary == ()


def test_several_values_by_separator_or_list_are_distinct_trimmed_and_limited() -> None:
    features = _fit(pa.array(["x| y |x||z"]), kind="categorical", separator="|", max_values=2)
    assert features.features[0].vocabulary == ("x", "y", "z")
    assert _encode(features, pa.array(["x| y |x||z", "z"])) == [[1, 2], [3]]
    lists = _fit(pa.array([["x", "y"], [], None, ["y"]]), kind="categorical")
    assert _encode(lists, pa.array([["x", "y"], [], None, ["y"]])) == [[2, 1], [], [], [1]]


def test_text_is_normalised_lower_case_and_split_at_what_is_no_letter_or_digit() -> None:
    text = pa.array(["The ﬁlm: THE Émile-Zola (1995)", "東京 tower", "!!!", None])
    features = _fit(text, kind="text", max_values=10)
    words = ["the", "film", "émile", "zola", "1995", "東京", "tower"]
    assert set(features.features[0].vocabulary) == {unicodedata.normalize("NFKD", word) for word in words}
    assert [len(codes) for codes in _encode(features, text)] == [5, 2, 0, 0]


def test_numeric_is_scaled_by_median_and_quartiles_of_training_and_missing_is_its_own_value() -> None:
    column = pa.array([1.0, 2.0, 3.0, 4.0, 5.0, None, float("nan"), 1e9])
    features = _fit(column, [True] * 7 + [False], kind="numeric", knots=0)
    assert (features.features[0].centre, features.features[0].scale) == (3.0, 2.0)
    assert _encode(features, column) == [
        [-1.0, 0.0],
        [-0.5, 0.0],
        [0.0, 0.0],
        [0.5, 0.0],
        [1.0, 0.0],
        [0.0, 1.0],
        [0.0, 1.0],
        [10.0, 0.0],
    ]


def test_numeric_text_is_read_and_a_column_of_words_is_an_error() -> None:
    column = pa.array(["1", " 2.5", "unknown", None])
    assert [row[1] for row in _encode(_fit(column, kind="numeric"), column)] == [0.0, 0.0, 1.0, 1.0]
    with pytest.raises(SourceError, match=r"'c': no value is a number, e.g. 'red'"):
        _fit(pa.array(["red", None]), kind="numeric")


def test_a_number_is_shared_by_the_two_quantiles_of_training_around_it() -> None:
    column = pa.array([*(20.0 * place for place in range(6)), 5000.0])
    features = _fit(column, [True] * 6 + [False], kind="numeric", knots=3)
    assert features.features[0].knots == (20.0, 40.0, 80.0), "in the middle of each third, or next to it"
    asked = pa.array([20.0, 25.0, 40.0, 70.0, 80.0, 81.0, -1.0, None])
    assert [row[2:] for row in _encode(features, asked)] == [
        [1.0, 0.0, 0.0],
        [0.75, 0.25, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, 0.25, 0.75],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0],
        [1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0],
    ]


@pytest.mark.parametrize("values", [[0.0, 1.0, 0.0, 1.0], [2.0], [5e-324, 0.0, 1e-323], []])
def test_a_number_of_two_values_or_less_has_no_knots(values: list[float]) -> None:
    features = _fit(pa.array(values, pa.float64()), kind="numeric")
    assert features.features[0].knots == ()
    assert np.isfinite(_encode(features, pa.array([0.0, 1.0, 5e-324]))).all()


def test_a_frequent_number_is_a_knot_and_the_others_are_quantiles_of_the_rest() -> None:
    column = pa.array([0.0] * 960 + [float(number) for number in range(1, 41)])
    knots = _fit(column, kind="numeric", knots=5).features[0].knots
    assert knots == (0.0, 6.0, 16.0, 25.0, 35.0)
    assert _encode(_fit(column, kind="numeric", knots=5), pa.array([0.0]))[0][2:] == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_each_of_few_numbers_is_a_knot_and_an_outlier_among_many_is_none() -> None:
    assert _fit(pa.array([1.0, 2.0, 4.0, 4.0]), kind="numeric").features[0].knots == (1.0, 2.0, 4.0)
    many = pa.array([*map(float, range(1000)), 1e9])
    knots = _fit(many, kind="numeric").features[0].knots
    assert len(knots) == 16
    assert knots[-1] < 1000


@pytest.mark.parametrize("knots", [1, 2])
def test_too_few_knots_to_bend_at_are_refused(knots: int) -> None:
    with pytest.raises(ValueError, match=f"knots = {knots}: nothing bends at fewer than 3"):
        FeatureConfig(name="c", kind="numeric", knots=knots)


@pytest.mark.parametrize("values", [[5.0, 5.0, 5.0], [5.0], [None, None], []])
def test_a_constant_or_absent_number_scales_without_dividing_by_zero(values: list[float | None]) -> None:
    features = _fit(pa.array(values, pa.float64()), kind="numeric")
    assert _encode(features, pa.array([5.0])) == [[0.0 if values and values[0] else 5.0, 0.0]]


@pytest.mark.parametrize(
    "column",
    [pa.array([[1, 2], None]), pa.array(["[1, 2]", None]), pa.array(["1 2", ""]), pa.array([[1.0, 2.0], None])],
)
def test_dense_vectors_are_kept_and_missing_ones_are_zeros(column: pa.Array) -> None:
    assert _encode(_fit(column, kind="dense", dim=2), column) == [[1.0, 2.0], [0.0, 0.0]]


@pytest.mark.parametrize("bad", [[1.0], [1.0, 2.0, 3.0], [1.0, float("nan")], [1.0, None], [1e300, 0.0]])
def test_a_wrong_vector_is_an_error_that_names_feature_and_row(bad: list[Any]) -> None:
    column = pa.array([[1.0, 2.0], bad])
    with pytest.raises(SourceError, match="feature 'c': row 2"):
        _encode(_fit(column, kind="dense", dim=2), column)


def test_features_survive_json_and_damage_is_told() -> None:
    features = _fit(pa.array(["ü", '"']), kind="categorical")
    assert FeatureSet.from_json(features.to_json()) == features
    numbers = _fit(pa.array([1.0, 2.0, 4.0]), kind="numeric")
    assert len(numbers.features[0].knots) == 3
    assert FeatureSet.from_json(numbers.to_json()) == numbers
    with pytest.raises(ArtifactCorruptError, match=r"features\.json"):
        FeatureSet.from_json("{}")


def test_a_catalogue_without_the_column_is_refused() -> None:
    with pytest.raises(SourceError, match=r"column 'c' of the catalogue, which is not read now.*: d$"):
        _fit(pa.array(["a"]), kind="categorical").encode(pa.table({"@item_id": ["i"], "d": ["a"]}))


def _digests(codes: list[list[int]], titles: list[str | None], name: str = "f_a") -> list[str]:
    table = pa.table({name: pa.array(codes, pa.list_(pa.int32()))})
    values: list[str] = content_digests(table, pa.array(titles, pa.string())).to_pylist()
    return values


def test_digests_change_with_any_content_and_with_nothing_else() -> None:
    base = _digests([[1, 2]], ["t"])[0]
    assert len(base) == 32
    others = [
        _digests([[2, 1]], ["t"]),
        _digests([[1]], ["t"]),
        _digests([[1, 2, 0]], ["t"]),
        _digests([[1, 2]], ["u"]),
        _digests([[1, 2]], [None]),
        _digests([[1, 2]], [""]),
        _digests([[1, 2]], ["t"], "f_b"),
    ]
    assert len({base, *(one[0] for one in others)}) == 8
    assert _digests([[9], [1, 2], []], ["x", "t", None])[1] == base


def test_numbers_and_vectors_are_part_of_the_digest() -> None:
    def one(value: float) -> str:
        table = pa.table({"f_n": pa.FixedSizeListArray.from_arrays(pa.array([value, 0.0], pa.float32()), 2)})
        digest: str = content_digests(table, pa.array(["t"]))[0].as_py()
        return digest

    assert one(1.0) != one(1.0000001)
    assert one(1.0) == one(1.0)


def test_numbers_near_the_largest_float_are_scaled_to_finite_ones() -> None:
    column = pa.table({"x": [1e308, -1e308, 1e308, -1e308, 0.0, None]})
    features = FeatureSet.fit(column, [FeatureConfig(name="x", kind="numeric")], np.ones(6, dtype=bool))
    encoded = np.array(features.encode(column)["f_x"].to_pylist())
    assert np.isfinite(encoded).all()
    assert encoded[:, 0].tolist() == [10.0, -10.0, 10.0, -10.0, 0.0, 0.0]
    assert features.features[0].knots == (-1e308, 0.0, 1e308)
    assert encoded[:, 2:].sum(axis=1).tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    between = np.array(features.encode(pa.table({"x": [5e307]}))["f_x"].to_pylist())
    np.testing.assert_allclose(between[0, 2:], [0.0, 0.5, 0.5])
