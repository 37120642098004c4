"""Train a two-tower encoder on a dataset directory and export it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from recsys_cg.artifacts import digest_json
from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.model.catalogue import Catalogue, load_catalogue
from recsys_cg.model.checkpoints import TrainingState
from recsys_cg.model.distribution import build_strategy
from recsys_cg.model.export import export_item_tower, export_query_tower, write_contract, write_item_tables
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.loop import TrainingLoop
from recsys_cg.model.mining import audit_table
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.model.validation import RecallProbe
from recsys_cg.progress import say
from recsys_cg.schema import EncoderFiles

__all__ = ["train_encoder"]


def train_encoder(
    dataset: Path,
    directory: Path,
    *,
    model: ModelConfig,
    training: TrainingConfig,
    seed: int,
    checkpoints: Path,
) -> dict[str, Any]:
    """Train on a dataset directory and write the encoder files.

    Process-wide effects: Python's, NumPy's and TensorFlow's global seeds are set, and with ``training.deterministic``
    TensorFlow's op determinism is switched on and stays on.

    Args:
        dataset: a dataset directory.
        directory: an existing empty directory that receives the encoder.
        model: towers, negatives, correction, loss.
        training: schedule and limits.
        seed: of initial weights, order, negatives and dropout.
        checkpoints: directory outside ``directory`` for the state of the training; a killed training that is started
            again with the same arguments goes on from its last whole epoch and reaches the same weights.

    Returns:
        ``dim``, ``best_epoch``, ``validation_recall`` (None without validation queries), ``parameters``, ``events``,
        ``max_history``.

    Raises:
        DataError: the dataset holds no item or no training event, or its content does not fit its features.
        NonFiniteError: a feature, the loss or a weight is NaN or infinite.
        RepresentationCollapseError: the item embeddings lost their geometry.
    """
    data = Dataset.open(dataset)
    catalogue = load_catalogue(data)
    sequences = Sequences.from_tables(data.iter_sequences())
    strategy = build_strategy(training, model)  # a cluster must be joined before TensorFlow computes anything
    if training.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(seed)
    length = max(training.row_length, data.max_history)
    with strategy.scope():
        network = TwoTower(model, training, catalogue, events=max(len(data.events), 1), max_length=length, seed=seed)
        network.build_weights()
    probe = RecallProbe(
        data.queries("validation"),
        max_history=data.max_history,
        k=training.validation_k,
        most=training.validation_queries,
        seed=seed,
    )
    fingerprint = digest_json(
        {"dataset": data.manifest.digest, "model": model.model_dump(), "training": training.model_dump(), "seed": seed}
    )
    with strategy.scope():
        loop = TrainingLoop(network, sequences, probe, catalogue.counts, training=training, seed=seed)
        state = loop.run(checkpoints, fingerprint=fingerprint)
    _export(network, data, catalogue, directory, model=model)
    if state.anchors:
        _write_audit(directory, state, data)
    _write_record(directory, state, model=model, training=training, parameters=network.parameters)
    recall = state.best_recall if probe.size else None
    say(f"encoder of epoch {state.best_epoch}" + ("" if recall is None else f", validation recall {recall:.4f}"))
    return {
        "dim": model.dim,
        "best_epoch": state.best_epoch,
        "validation_recall": recall,
        "parameters": network.parameters,
        "events": list(data.events),
        "max_history": data.max_history,
    }


def _export(network: TwoTower, data: Dataset, catalogue: Catalogue, directory: Path, *, model: ModelConfig) -> None:
    export_query_tower(network.query_tower, directory, dim=model.dim, max_history=data.max_history)
    export_item_tower(network.item_tower, catalogue.features, directory)
    write_item_tables(directory, data.items, data.features.to_json())
    write_contract(
        directory,
        {
            "dim": model.dim,
            "history_dim": model.dim,
            "max_history": data.max_history,
            "events": list(data.events),
            "normalisation": "l2",
            "query_encoder": model.query_encoder,
            "temperature": float(network.task.temperature.value().numpy()),
        },
    )


def _write_audit(directory: Path, state: TrainingState, data: Dataset) -> None:
    """Write mined_negatives.csv: what was mined last for some users, with titles, for a person to read."""
    named = zip(data.items["title"].to_pylist(), data.items["item_id"].to_pylist(), strict=True)
    titles = [title or item_id for title, item_id in named]
    pa.csv.write_csv(audit_table(state.anchors, titles), directory / "mined_negatives.csv")


def _write_record(
    directory: Path, state: TrainingState, *, model: ModelConfig, training: TrainingConfig, parameters: int
) -> None:
    record = {
        "schema": 1,
        "negatives": [source.declaration for source in model.negatives],
        "correction": {"form": model.correction, "strength": model.correction_strength},
        "loss": model.loss,
        "mask_history": model.mask_history,
        "model": model.model_dump(mode="json"),
        "training": training.model_dump(mode="json"),
        "parameters": parameters,
        "best_epoch": state.best_epoch,
        "stopped": state.stopped,
        "epochs": state.epochs,
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (directory / EncoderFiles.TRAINING).write_text(text + "\n", encoding="utf-8")
