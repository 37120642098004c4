from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import FeatureConfig
from recsys_cg.data.arrays import content_arrays
from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import ConfigError, SourceError

KIND = "tests.extension.outside.feature:Letters"
CATALOGUE = pa.table({"title": ["Aeon", "xyz", None]})


def fit(kind: str = KIND, **options: object) -> FeatureSet:
    config = FeatureConfig(name="letters", kind=kind, column="title", options=options)
    return FeatureSet.fit(CATALOGUE, [config], np.ones(3, bool))


def test_a_kind_from_outside_gives_its_floats_row_for_row() -> None:
    features = fit(scale=4.0)
    arrays = content_arrays(features.features, features.encode(CATALOGUE))
    # "Aeon" has the vowels e and o and one capital among four letters, scaled by 4.
    assert arrays["f_letters"].tolist() == [[2.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert arrays["f_letters"].dtype == np.float32


def test_what_it_learned_is_kept_in_the_features_file() -> None:
    features = fit(scale=4.0)
    read = FeatureSet.from_json(features.to_json())
    assert read == features
    assert read.encode(CATALOGUE).equals(features.encode(CATALOGUE))


def test_the_item_tower_multiplies_it_like_a_dense_vector() -> None:
    from recsys_cg.config import ModelConfig
    from recsys_cg.model.frameworks import tf
    from recsys_cg.model.item_tower import ItemTower

    features = fit()
    arrays = content_arrays(features.features, features.encode(CATALOGUE))
    content = {name: tf.constant(rows) for name, rows in arrays.items()}
    tower = ItemTower(ModelConfig(dim=4, heads=1), features=features.features, items=3)
    known = tower.call(tf.constant([0, 0, 0]), content).numpy()
    assert known.shape == (3, 4)
    assert np.array_equal(known[1], known[2])  # alike in content, both without an id
    assert not np.array_equal(known[0], known[1])


def test_options_that_it_does_not_take_are_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"items.features.letters .* refuses its options: .*wrong"):
        fit(wrong=1)


def test_a_part_that_is_not_installed_where_the_features_are_read_is_named() -> None:
    text = fit().to_json().replace("tests.extension.outside.feature", "tests.extension.gone")
    with pytest.raises(ConfigError, match=r"tests\.extension\.gone cannot be imported here"):
        FeatureSet.from_json(text).encode(CATALOGUE)


def test_floats_that_are_not_finite_are_refused_with_the_feature() -> None:
    with pytest.raises(SourceError, match=r"feature 'letters': .* 2 finite numbers"):
        fit(kind=KIND.replace("Letters", "Undefined")).encode(CATALOGUE)


def test_options_are_for_kinds_from_outside_alone() -> None:
    with pytest.raises(ValueError, match="options are those of a kind of your own"):
        FeatureConfig(name="x", kind="text", options={"a": 1})


def test_a_kind_nobody_knows_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match="write one of categorical, text, numeric, dense, or a part of your own"):
        FeatureConfig(name="x", kind="txt")
