from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.config import ModelConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.model.frameworks import tf
from recsys_cg.model.geometry import GeometryProbe
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.model.projection import ProjectionHead
from recsys_cg.model.validation import RecallProbe
from recsys_cg.schema import EncoderFiles
from tests.model.conftest import SEED, TRAINING, train
from tests.model.test_export import random_inputs
from tests.model.test_losses import POSITIVE_IDS, WEIGHTS, C, P, Q, candidates_of, floats, softmax, task_of
from tests.model.test_options import build

RNG = np.random.default_rng(0)


def transcribed(head: ProjectionHead, vectors: np.ndarray) -> np.ndarray:
    hidden, bias, out = (weight.numpy() for weight in (head._hidden, head._bias, head._out))
    projected = np.maximum(vectors @ hidden + bias, 0.0) @ out
    return projected / np.linalg.norm(projected, axis=-1, keepdims=True)


def test_the_head_is_two_layers_and_a_norm_on_any_axes() -> None:
    head = ProjectionHead(ModelConfig(dim=8, projection_head=5))
    head._bias.assign(RNG.normal(size=8))
    vectors = RNG.normal(size=(3, 2, 8)).astype(np.float32)
    projected = head(vectors).numpy()
    assert projected.shape == (3, 2, 5)
    np.testing.assert_allclose(projected, transcribed(head, vectors), atol=1e-5)


def test_the_loss_is_that_of_the_vectors_behind_the_head() -> None:
    task = task_of("softmax", "refined", projection_head=6)
    task.head = head = ProjectionHead(ModelConfig(dim=3, heads=1, projection_head=6))
    head._bias.assign([2.0, 2.0, 2.0])  # three units could all be off
    computed = task.per_query(floats(Q), floats(P), candidates_of(floats(C)), floats(WEIGHTS)).numpy()
    behind = [transcribed(head, vectors.astype(np.float32)) for vectors in (Q, P, C)]
    np.testing.assert_allclose(computed, softmax(*behind, "refined"), rtol=1e-4)
    assert len(computed) == len(POSITIVE_IDS)


def test_what_export_and_validation_read_knows_nothing_of_the_head(dataset: Path) -> None:
    headed, batches = build(dataset, {"projection_head": 8})
    plain, _ = build(dataset)
    for tower, other in ((headed.item_tower, plain.item_tower), (headed.query_tower, plain.query_tower)):
        assert [weight.shape for weight in tower.variables] == [weight.shape for weight in other.variables]
        other.set_weights(tower.get_weights())
    for one, two in zip(headed.encode_items(), plain.encode_items(), strict=True):
        np.testing.assert_array_equal(one, two)
    inputs = random_inputs(16, 12, 16)
    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    expected = plain.encode_histories(tensors).numpy()
    np.testing.assert_array_equal(headed.encode_histories(tensors).numpy(), expected)
    batch = {name: tf.constant(value) for name, value in batches[0].items()}
    losses = [float(network.compute_loss(batch)) for network in (headed, plain)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert headed.parameters == plain.parameters + 16 * 16 + 16 + 16 * 8


@pytest.mark.slow
def test_what_is_validated_watched_and_exported_are_one_and_the_same_vectors(dataset: Path, tmp_path: Path) -> None:
    trained = train(dataset, tmp_path, model={"projection_head": 32, "fit_content": False})
    data = Dataset.open(dataset)
    vectors, history = ItemEncoder.open(trained.directory).encode(data.items["item_id"], data.items)
    signature = tf.saved_model.load(str(trained.directory / EncoderFiles.QUERY_SAVED_MODEL))

    class Exported:
        def encode_histories(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            return signature.signatures["serving_default"](**inputs)["query"]

    probe = RecallProbe(
        data.queries("validation"), max_history=data.max_history, k=TRAINING["validation_k"], most=10_000, seed=SEED
    )
    recall = probe.recall(Exported(), vectors, history)  # type: ignore[arg-type]
    assert recall == pytest.approx(trained.info["validation_recall"], abs=1e-6)
    record = json.loads((trained.directory / EncoderFiles.TRAINING).read_text())
    watched = record["epochs"][trained.info["best_epoch"] - 1]["geometry"]
    counts = data.items["train_count"].to_numpy()
    figures = GeometryProbe(counts, seed=SEED).measure(vectors[:2], np.arange(2, dtype=np.int32), history)
    for name in ("effective_rank", "mean_pairwise_similarity", "uniformity"):
        assert watched[name] == pytest.approx(figures[name], abs=1e-4)
