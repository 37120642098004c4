from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from recsys_cg.config import ModelConfig
from recsys_cg.geometry import l2_normalise as reference
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower
from recsys_cg.model.normalisation import l2_normalise
from recsys_cg.model.query_tower import QueryTower, fitting_dropout, gap_levels, stateless_dropout

ENCODERS = ["transformer", "recency", "mean"]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Feature:
    name: str
    kind: str
    size: int = 0
    width: int = 0
    max_values: int = 1


def tower(encoder: str, *, length: int = 12) -> QueryTower:
    tf.keras.utils.set_random_seed(1)
    config = ModelConfig(dim=8, query_encoder=encoder, blocks=2, heads=2)
    built = QueryTower(config, events=3, max_length=length)
    inputs = history(1, length)
    built(*inputs)
    for variable in built.trainable_variables:  # zeros and ones would hide a wrong use
        variable.assign_add(tf.random.stateless_normal(variable.shape, [len(variable.name), 1]) * 0.3)
    return built


def history(rows: int, length: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    return (
        tf.constant(RNG.normal(size=(rows, length, 8)), tf.float32),
        tf.constant(RNG.exponential(1e4, size=(rows, length)), tf.float32),
        tf.constant(RNG.integers(0, 3, size=(rows, length)), tf.int32),
    )


def test_normalisation_is_the_one_of_the_project() -> None:
    vectors = np.concatenate([RNG.normal(size=(5, 8)), np.zeros((1, 8)), np.full((1, 8), 1e-9)]).astype(np.float32)
    np.testing.assert_allclose(l2_normalise(vectors).numpy(), reference(vectors), atol=1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_position_sees_nothing_after_it(encoder: str) -> None:
    query_tower = tower(encoder)
    vectors, gaps, events = history(2, 12)
    before = query_tower(vectors, gaps, events).numpy()
    changed = tf.concat([vectors[:, :7], vectors[:, 7:] + 1.0], axis=1)
    after = query_tower(changed, gaps, events).numpy()
    np.testing.assert_allclose(after[:, :7], before[:, :7], atol=1e-6)
    assert (np.abs(after[:, 7:] - before[:, 7:]).max(axis=-1) > 1e-4).all()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_packed_users_are_encoded_as_if_alone(encoder: str) -> None:
    query_tower = tower(encoder)
    vectors, gaps, events = history(1, 12)
    segment = tf.constant([[0] * 5 + [1] * 7])
    packed = query_tower(vectors, gaps, events, segment).numpy()[0]
    for part in (slice(0, 5), slice(5, 12)):
        alone = query_tower(vectors[:, part], gaps[:, part], events[:, part]).numpy()[0]
        np.testing.assert_allclose(packed[part], alone, atol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_last_position_of_a_padded_history_is_that_of_the_bare_one(encoder: str) -> None:
    query_tower = tower(encoder)
    vectors, gaps, events = history(4, 12)
    length = np.array([1, 3, 12, 0], dtype=np.int32)
    valid = np.arange(12) < length[:, None]
    padded = query_tower.encode_last(vectors * valid[..., None], gaps * valid, events * valid, tf.constant(length))
    for row, count in enumerate(length[:3]):
        alone = query_tower(vectors[row : row + 1, :count], gaps[row : row + 1, :count], events[row : row + 1, :count])
        np.testing.assert_allclose(padded[row].numpy(), alone[0, -1].numpy(), atol=1e-5)
    np.testing.assert_allclose(padded[3].numpy(), query_tower.empty().numpy(), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(padded.numpy(), axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_time_and_event_type_matter(encoder: str) -> None:
    query_tower = tower(encoder)
    vectors, gaps, events = history(1, 12)
    base = query_tower(vectors, gaps, events).numpy()[0, -1]
    later = query_tower(vectors, tf.concat([gaps[:, :-1], gaps[:, -1:] + 1e6], axis=1), events).numpy()[0, -1]
    other = query_tower(vectors, gaps, (events + 1) % 3).numpy()[0, -1]
    assert np.abs(base - later).max() > 1e-3
    assert np.abs(base - other).max() > 1e-3


def test_the_mean_encoder_ignores_order_and_the_others_do_not() -> None:
    vectors, _, events = history(1, 12)
    gaps = tf.zeros([1, 12])
    # The last item stays: it also reaches the output directly.
    order = [*reversed(range(11)), 11]
    for encoder, same in (("mean", True), ("recency", False), ("transformer", False)):
        query_tower = tower(encoder)
        forth = query_tower(vectors, gaps, events).numpy()[0, -1]
        back = query_tower(*(tf.gather(part, order, axis=1) for part in (vectors, gaps, events))).numpy()[0, -1]
        assert np.allclose(forth, back, atol=1e-5) is same


def test_gap_levels_interpolate_powers_of_two() -> None:
    levels = gap_levels(tf.constant([0.0, 1.0, 3.0, 2.0**1.5 - 1.0, 2.0**40])).numpy()
    np.testing.assert_allclose(levels.sum(axis=1), 1.0, atol=1e-5)
    assert [int(row.argmax()) for row in levels[[0, 1, 2, 4]]] == [0, 1, 2, 31]
    np.testing.assert_allclose(levels[3, 1:3], [0.5, 0.5], atol=1e-5)


def test_dropout_is_a_function_of_its_seed_and_keeps_the_mean() -> None:
    values = tf.ones([100, 101])
    dropped = stateless_dropout(values, 0.2, tf.constant([1, 2]), 3).numpy()
    np.testing.assert_array_equal(dropped, stateless_dropout(values, 0.2, tf.constant([1, 2]), 3).numpy())
    assert (dropped != stateless_dropout(values, 0.2, tf.constant([1, 3]), 3).numpy()).any()
    assert (dropped != stateless_dropout(values, 0.2, tf.constant([1, 2]), 4).numpy()).any()
    assert dropped.mean() == pytest.approx(1.0, abs=0.02)
    assert (dropped == 0).mean() == pytest.approx(0.2, abs=0.02)
    assert stateless_dropout(values, 0.2, None, 3) is values


@pytest.mark.parametrize(
    ("counts", "dropout"),
    [
        ([14, 14, 0], 0.5),  # 7 over a mean of 14; what was never met is not counted
        ([20, 50, 0, 0], 0.2),  # 7 over 35
        ([1, 2], 0.5),  # at most
        ([10**6, 10**12], 0.05),  # at least
        ([0, 0], 0.5),
        ([], 0.5),
    ],
)
def test_the_fewer_events_an_item_has_the_more_is_dropped(counts: list[int], dropout: float) -> None:
    assert fitting_dropout(np.array(counts, np.int64)) == dropout


FEATURES = (Feature("genre", "categorical", size=6, max_values=3), Feature("price", "numeric", width=2))


def item_tower(id_dropout: float = 0.0) -> ItemTower:
    return ItemTower(ModelConfig(dim=4, id_dropout=id_dropout), features=FEATURES, items=5)


def test_an_item_is_its_id_plus_its_content() -> None:
    built = item_tower()
    genre, price = (built._tables[name].numpy() for name in ("f_genre", "f_price"))
    content = {"f_genre": tf.constant([[1, 5, 0], [0, 0, 0]]), "f_price": tf.constant([[0.5, 0.0], [0.0, 1.0]])}
    embedded = built(tf.constant([3, 0]), content).numpy()
    ids = built.id_table.numpy()
    np.testing.assert_allclose(embedded[0], ids[3] + (genre[1] + genre[5]) / np.sqrt(2.0) + 0.5 * price[0], atol=1e-6)
    np.testing.assert_allclose(embedded[1], ids[0] + price[1], atol=1e-6)


def test_items_without_any_content_have_their_id_alone() -> None:
    built = ItemTower(ModelConfig(dim=4), features=(), items=2)
    np.testing.assert_array_equal(built(tf.constant([1]), {}).numpy(), built.id_table.numpy()[1:2])


def test_id_dropout_puts_the_shared_unknown_id_in_its_share_of_lookups() -> None:
    built = item_tower(id_dropout=0.25)
    content = {"f_genre": tf.zeros([4000, 3], tf.int32), "f_price": tf.zeros([4000, 2])}
    rows = tf.ones([4000], tf.int32)
    embedded = built(rows, content, seed=tf.constant([1, 2])).numpy()
    unknown = np.abs(embedded - built.id_table.numpy()[0]).max(axis=1) < 1e-6
    assert unknown.mean() == pytest.approx(0.25, abs=0.03)
    kept = built(rows, content).numpy()
    np.testing.assert_allclose(kept, np.broadcast_to(built.id_table.numpy()[1], kept.shape), atol=1e-6)


def test_every_weight_of_the_item_tower_learns() -> None:
    built = item_tower()
    content = {"f_genre": tf.constant([[1, 5, 0]]), "f_price": tf.constant([[0.5, 0.0]])}
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(built(tf.constant([3]), content))
    assert len(built.trainable_variables) == 3
    assert all(gradient is not None for gradient in tape.gradient(value, built.trainable_variables))
