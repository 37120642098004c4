"""Context features: the query tower reads them, learns from them, and does without them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.context import ContextFeature, ContextSet
from recsys_cg.data.dataset import Dataset
from recsys_cg.model.catalogue import load_catalogue
from recsys_cg.model.context import ContextMixer
from recsys_cg.model.frameworks import tf
from recsys_cg.model.histories import gather_histories, query_arrays
from recsys_cg.model.inputs import Sequences, batch_signature, pack_batch, split_batch
from recsys_cg.model.query_tower import QueryTower
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.schema import EncoderFiles
from tests.model.conftest import Trained, train
from tests.model.datasets import write_dataset
from tests.model.test_export import litert, random_inputs, saved_model

CONTEXT = ContextSet(
    (
        ContextFeature("device", "categorical", ("pc", "phone"), hash_buckets=2),
        ContextFeature("hour", "hour_of_day"),
    )
)
ITEMS = 80
COLUMNS = ["c_device", "c_hour"]
COUNTS = [np.ones(size, np.int64) for size in CONTEXT.sizes]


def _events(users: int = 250, events: int = 8) -> pd.DataFrame:
    """On a pc users meet even items and on a phone odd ones, whatever they met before; a fifth has no device."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"user": np.repeat([f"u{user}" for user in range(users)], events)})
    device = rng.integers(1, 3, len(frame))
    item = 2 * rng.integers(0, ITEMS // 2, len(frame)) + device - 1
    frame["item"] = [f"i{number:02}" for number in item]
    frame["time_us"] = (np.tile(np.arange(events), users) * 86_400 + rng.integers(0, 80_000, len(frame))) * 1_000_000
    frame["code"], frame["weight"] = np.int8(0), np.float32(1.0)
    frame["c_device"] = np.where(rng.random(len(frame)) < 0.2, 0, device).astype(np.int32)
    frame["c_hour"] = CONTEXT.features[1].encode_times(frame["time_us"].to_numpy())
    return frame


@pytest.fixture(scope="module")
def context_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    catalogue = pd.DataFrame({"item_id": [f"i{number:02}" for number in range(ITEMS)]})
    path = tmp_path_factory.mktemp("context") / "dataset"
    return write_dataset(path, _events(), catalogue, (), max_history=10, context=CONTEXT)


@pytest.fixture(scope="module")
def encoder(context_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(
        context_dataset,
        tmp_path_factory.mktemp("encoder"),
        training={"epochs": 16, "patience": 16, "validation_k": ITEMS // 2},
    )


def _inputs(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    context = np.stack([rng.integers(0, size, rows) for size in CONTEXT.sizes], axis=1).astype(np.int32)
    inputs = {**random_inputs(rows, 10, 16), "context": context}
    inputs["event"][:] = 0
    return inputs


def _share_of_even(encoder: Trained, device: int, length: int) -> float:
    """Return the share of even items among the 20 nearest to queries on ``device``."""
    from recsys_cg.model.item_encoder import ItemEncoder

    items = Dataset.open(encoder.dataset).items
    vectors, history = ItemEncoder.open(encoder.directory).encode(items["item_id"], items)
    inputs = _inputs(64)
    rng = np.random.default_rng(2)
    inputs["history"] = history[rng.integers(0, ITEMS, (64, 10))]
    inputs["length"][:] = length
    inputs["context"][:, 0] = device
    nearest = np.argsort(-litert(encoder.directory, inputs) @ vectors.T, axis=1)[:, : ITEMS // 2]
    even = np.array([int(item[1:]) % 2 == 0 for item in items["item_id"].to_pylist()])
    return float(even[nearest].mean())


def test_a_context_that_decides_the_target_is_learned(encoder: Trained) -> None:
    assert encoder.info["validation_recall"] > 0.65  # chance is a half, and all there is for the fifth without a device
    for length in (0, 1, 10):  # a user without history, too
        assert _share_of_even(encoder, 1, length) > 0.65
        assert _share_of_even(encoder, 2, length) < 0.35


def test_without_a_context_the_answer_is_open(encoder: Trained) -> None:
    assert 0.2 < _share_of_even(encoder, 0, 5) < 0.8
    unmet = CONTEXT.features[0].size - 1  # a bucket that training never met is worth nothing
    assert _share_of_even(encoder, unmet, 5) == _share_of_even(encoder, 0, 5)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_exports_equal_each_other_for_any_batch(encoder: Trained, rows: int) -> None:
    inputs = _inputs(rows)
    found = litert(encoder.directory, inputs)
    np.testing.assert_allclose(found, saved_model(encoder.directory, inputs), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-4)


def test_exports_equal_the_training_graph(context_dataset: Path, tmp_path: Path) -> None:
    from recsys_cg.model.export import export_query_tower

    tower = QueryTower(ModelConfig(dim=16, blocks=1), events=2, max_length=40, context=COUNTS)
    tower(tf.zeros([1, 10, 16]), tf.zeros([1, 10]), tf.zeros([1, 10], tf.int32))
    rng = np.random.default_rng(3)
    tower.set_weights([rng.normal(size=weight.shape, scale=0.3) for weight in tower.get_weights()])
    export_query_tower(tower, tmp_path, dim=16, max_history=10)
    inputs = _inputs(33)
    inputs["length"][:2] = [0, 10]
    states = tower.states(inputs["history"], inputs["gap_s"], inputs["event"])
    last = tf.gather(states, np.maximum(inputs["length"] - 1, 0), batch_dims=1)
    last = tf.where((inputs["length"] == 0)[:, None], tower.empty()[None], last)
    expected = tower.finish(last, inputs["context"]).numpy()
    np.testing.assert_allclose(litert(tmp_path, inputs), expected, atol=1e-5)
    np.testing.assert_allclose(saved_model(tmp_path, inputs), expected, atol=1e-5)
    absent = tower.finish(last).numpy()
    inputs["context"][:] = 0
    np.testing.assert_allclose(litert(tmp_path, inputs), absent, atol=1e-5)


def test_the_contract_names_the_features_and_is_of_a_format_that_older_readers_refuse(
    encoder: Trained, trained: Trained
) -> None:
    contract = json.loads((encoder.directory / EncoderFiles.CONTRACT).read_text())
    assert (contract["schema"], ContextSet.from_list(contract["context"])) == (2, CONTEXT)
    plain = json.loads((trained.directory / EncoderFiles.CONTRACT).read_text())
    assert plain["schema"] == 1
    assert "context" not in plain


def test_a_tower_without_context_has_no_such_input_and_no_such_weights(trained: Trained) -> None:
    signature = tf.saved_model.load(str(trained.directory / EncoderFiles.QUERY_SAVED_MODEL)).signatures
    assert set(signature["serving_default"].structured_input_signature[1]) == {"history", "gap_s", "event", "length"}
    tower = QueryTower(ModelConfig(dim=16), events=2, max_length=4)
    assert tower.context == 0
    assert "context" not in batch_signature((2, 4))


def test_each_target_is_packed_with_its_own_context(context_dataset: Path) -> None:
    sequences = Sequences.from_tables(Dataset.open(context_dataset).iter_sequences(), COLUMNS)
    context = sequences.context
    assert context is not None
    assert context.shape == (sequences.events, 2)
    places = np.arange(sequences.starts[3], sequences.starts[5])
    batch = pack_batch(sequences, places, shape=(4, 8))
    np.testing.assert_array_equal(batch["context"].reshape(-1, 2)[: len(places)], context[places])
    assert not batch["context"].reshape(-1, 2)[len(places) :].any()
    np.testing.assert_array_equal(split_batch(batch, 1, 2)["context"], batch["context"][2:])
    assert batch_signature((4, 8), context=context)["context"].shape == batch["context"].shape


def test_a_query_is_what_training_computes_at_its_event(context_dataset: Path) -> None:
    data = Dataset.open(context_dataset)
    network = TwoTower(
        ModelConfig(dim=16, blocks=1, negatives=[{"kind": "uniform", "count": 4}]),
        TrainingConfig(),
        load_catalogue(data),
        events=1,
        max_length=100,
        seed=1,
        context=COUNTS,
    )
    network.build_weights()
    rng = np.random.default_rng(4)
    tower = network.query_tower
    tower.set_weights([rng.normal(size=weight.shape, scale=0.3) for weight in tower.get_weights()])
    _, history = network.encode_items()
    seen: list[np.ndarray] = []
    network.task = lambda queries, *_: seen.append(queries.numpy()) or tf.constant(0.0)  # type: ignore[func-returns-value]
    queries = data.queries("validation").slice(0, 20)
    arrays = query_arrays(queries, 10, COLUMNS)
    for number, query in enumerate(queries.to_pylist()):
        rows = [*query["history"], query["targets"][0]]
        times = np.array([*query["history_times_us"], query["time_us"]])
        count = len(rows)
        sequences = Sequences(
            items=np.array(rows, np.int32),
            codes=np.zeros(count, np.int32),
            gaps_s=np.append(np.diff(times), 0).astype(np.float32) / 1e6,
            weights=np.ones(count, np.float32),
            before=np.arange(-1, count - 1),
            starts=np.array([0, count]),
            context=np.array([[1, 1]] * (count - 1) + [[query["c_device"], query["c_hour"]]], np.int32),
        )
        batch = pack_batch(sequences, np.arange(count), shape=(1, 12))
        network.compute_loss({name: tf.constant(value) for name, value in batch.items()})
        asked = network.encode_histories(gather_histories(arrays, history, slice(number, number + 1))).numpy()
        np.testing.assert_allclose(asked[0], seen[-1][count - 1], atol=1e-5)


def test_code_zero_and_a_code_not_met_in_training_add_nothing_and_others_do() -> None:
    mixer = ContextMixer([np.array([1, 3, 0]), np.array([0, 1, 0, 9])], width=8, dropout=0.5)
    states = tf.random.stateless_normal([6, 8], [1, 2])
    absent = mixer(states, None).numpy()
    np.testing.assert_array_equal(mixer(states, tf.zeros([6, 2], tf.int32)).numpy(), absent)
    np.testing.assert_array_equal(mixer(states, tf.fill([6, 2], 2)).numpy(), absent)
    one = mixer(states, tf.constant([[1, 0]] * 6)).numpy()
    two = mixer(states, tf.constant([[1, 3]] * 6)).numpy()
    assert (np.abs(one - absent).max(axis=1) > 0.05).all()
    assert (np.abs(two - one).max(axis=1) > 0.05).all()


def test_a_share_of_queries_sees_no_context_and_a_share_of_features_is_hidden_from_the_others() -> None:
    mixer = ContextMixer([np.ones(2, np.int64)] * 3, width=2, dropout=0.25)
    codes = tf.ones([20_000, 3], tf.int32)
    seed = tf.constant([1, 2])
    kept = mixer._hide(codes, seed).numpy()
    np.testing.assert_array_equal(kept, mixer._hide(codes, seed).numpy())
    assert (kept == 0).all(axis=1).mean() == pytest.approx(0.25 + 0.75 * 0.25**3, abs=0.015)
    assert (kept == 1).all(axis=1).mean() == pytest.approx(0.75**4, abs=0.015)
    np.testing.assert_array_equal(mixer._hide(codes, None), codes)
