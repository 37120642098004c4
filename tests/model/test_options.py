"""Options that change how a step is computed: each trains, and computes what the plain way computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.model.catalogue import load_catalogue
from recsys_cg.model.frameworks import tf
from recsys_cg.model.inputs import Sequences, stream_epoch
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.model.optimizer import build_optimizer
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.model.validation import RecallProbe
from tests.model.conftest import MODEL, SEED, TRAINING, train
from tests.model.test_export import litert, random_inputs

SHAPE = (4, 24)


def build(dataset: Path, model: dict[str, Any] | None = None, **training: Any) -> tuple[TwoTower, list[dict[str, Any]]]:
    data = Dataset.open(dataset)
    tf.keras.utils.set_random_seed(3)
    config = ModelConfig(**{**MODEL, "dropout": 0.0, "id_dropout": 0.0, **(model or {})})
    network = TwoTower(config, TrainingConfig(**training), load_catalogue(data), events=2, max_length=24, seed=1)
    network.build_weights()
    network.compile(optimizer=build_optimizer(TrainingConfig(**training), total_steps=100))
    network.optimizer.build(network.trainable_variables)
    sequences = Sequences.from_tables(data.iter_sequences())
    return network, list(stream_epoch(sequences, shape=SHAPE, seed=1, epoch=0))


def first_step(network: TwoTower, batch: dict[str, Any]) -> tuple[float, list[np.ndarray]]:
    """The gradients come in the order of the variables, which the options leave alone."""
    loss, gradients, _ = tf.function(network.loss_and_gradients)(batch)
    return float(loss), [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]


@pytest.fixture(scope="module")
def plain(dataset: Path) -> tuple[float, list[np.ndarray]]:
    network, batches = build(dataset)
    return first_step(network, batches[0])


@pytest.mark.parametrize(
    ("option", "tolerance"),
    [
        ({"softmax_chunk": 7}, 1e-4),
        pytest.param({"jit_compile": True}, 1e-4, marks=pytest.mark.slow),
        ({"mixed_precision": True}, 0.1),
    ],
)
def test_loss_and_gradient_are_those_of_the_plain_way(
    dataset: Path, plain: tuple[float, list[np.ndarray]], option: dict[str, Any], tolerance: float
) -> None:
    network, batches = build(dataset, **option)
    loss, gradients = first_step(network, batches[0])
    assert loss == pytest.approx(plain[0], rel=tolerance)
    computed, expected = (np.concatenate([part.ravel() for part in parts]) for parts in (gradients, plain[1]))
    assert np.linalg.norm(computed - expected) <= tolerance * np.linalg.norm(expected)


def test_mixed_precision_keeps_weights_and_vectors_in_float32(dataset: Path) -> None:
    network, _ = build(dataset, mixed_precision=True)
    assert {variable.dtype for variable in network.trainable_variables} == {tf.float32}
    assert network.query_tower.compute_dtype == "bfloat16"
    assert network.encode_items()[0].dtype == np.float32


def test_mixed_precision_validates_and_exports_the_float32_tower_of_its_weights(dataset: Path) -> None:
    mixed, _ = build(dataset, mixed_precision=True)
    plain, _ = build(dataset)
    assert plain.served_tower() is plain.query_tower
    for weight in mixed.query_tower.trainable_variables:
        weight.assign_add(0.1 * tf.random.stateless_normal(weight.shape, [len(weight.name), 1]))
    plain.query_tower.set_weights(mixed.query_tower.get_weights())
    served = mixed.served_tower()
    assert served.compute_dtype == "float32"
    assert len(mixed.trainable_variables) == len(plain.trainable_variables)
    inputs = {name: tf.constant(value) for name, value in random_inputs(8, 12, 16).items()}
    np.testing.assert_array_equal(mixed.encode_histories(inputs), plain.encode_histories(inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        {"loss": "symmetric"},
        {"loss": "sigmoid", "correction": "standard"},
        {"loss": "triplet", "correction": "none"},
        {"loss": "margin", "correction": "none"},
        {"query_encoder": "recency"},
        {"query_encoder": "mean", "mask_history": False},
        {"negatives": [{"kind": "uniform", "count": 64}]},
        {"negatives": [{"kind": "in_batch", "count": 64}, {"kind": "cross_batch", "count": 64, "max_age": 2}]},
        {"frequencies": "streaming"},
        {"projection_head": 8},
        {"projection_head": 8, "loss": "sigmoid", "correction": "none"},
    ],
    ids=lambda model: "-".join(f"{name}" for name in model),
)
def test_every_choice_lowers_its_loss_and_moves_every_weight(dataset: Path, model: dict[str, Any]) -> None:
    network, batches = build(dataset, model, warmup_steps=1)
    before = [variable.numpy() for variable in network.trainable_variables]
    step = tf.function(network.train_step, autograph=False)
    whole = [batch for batch in batches if batch["segment"].min() >= 0][:4]
    losses = [float(step(_tensors(batch))["loss"]) for _ in range(4) for batch in whole]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-4:]) < np.mean(losses[4:8]) + 1e-3
    still = [
        variable.name
        for variable, old in zip(network.trainable_variables, before, strict=True)
        if np.array_equal(variable.numpy(), old)
    ]
    # What a loss does not read does not move: similarities have no temperature.
    assert still == (["log:0"] if model.get("loss") in ("triplet", "margin") else [])


def _tensors(batch: dict[str, Any]) -> dict[str, Any]:
    """Pad the one part of varying length, so that the step is traced once."""
    size = 4096 - len(batch["own_item"])
    padded = {name: np.pad(batch[name], (0, size), mode="edge") for name in ("own_segment", "own_item")}
    return {name: tf.constant(value) for name, value in {**batch, **padded}.items()}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["mixed_precision", "jit_compile"])
def test_each_option_trains_to_an_encoder_that_serves_what_was_validated(
    dataset: Path, tmp_path: Path, option: str
) -> None:
    trained = train(dataset, tmp_path, training={option: True, "epochs": 3})
    data = Dataset.open(dataset)
    vectors, history = ItemEncoder.open(trained.directory).encode(data.items["item_id"], data.items)

    class Exported:
        def encode_histories(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            return tf.constant(litert(trained.directory, {name: value.numpy() for name, value in inputs.items()}))

    probe = RecallProbe(
        data.queries("validation"), max_history=data.max_history, k=TRAINING["validation_k"], most=10_000, seed=SEED
    )
    recall = probe.recall(Exported(), vectors, history)  # type: ignore[arg-type]
    assert recall == pytest.approx(trained.info["validation_recall"], abs=5e-3)  # near ties may fall either way
