"""Train a two-tower encoder on a dataset directory and export it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from recsys_cg.artifacts import digest_json
from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.skips import skipped_items
from recsys_cg.errors import DataError, EnvironmentMismatchError
from recsys_cg.model.audit import Audit, Later, audit_mined
from recsys_cg.model.catalogue import Catalogue, load_catalogue
from recsys_cg.model.checkpoints import TrainingState, has_checkpoint
from recsys_cg.model.content_fit import fit_content
from recsys_cg.model.distribution import build_strategy
from recsys_cg.model.export import export_item_tower, export_query_tower, write_contract, write_item_tables
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.loop import TrainingLoop
from recsys_cg.model.mining import Search
from recsys_cg.model.query_tower import fitting_dropout
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.model.validation import RecallProbe
from recsys_cg.progress import say
from recsys_cg.schema import EncoderFiles

__all__ = ["train_encoder"]

_NOTABLE_REPEATS = 0.02


def train_encoder(
    dataset: Path,
    directory: Path,
    *,
    model: ModelConfig,
    training: TrainingConfig,
    seed: int,
    checkpoints: Path,
    filter_seen: bool = True,
) -> dict[str, Any]:
    """Train on a dataset directory and write the encoder files.

    Epochs are chosen by the validation recall of the model as it is trained; when that has ended, content is fitted to
    the learned items (`recsys_cg.model.content_fit`), and training.json says in ``content_explains`` what share of them
    it explains.

    Where mined negatives are declared, their audit is written too: ``mined_negatives.csv`` for a person to read, and
    the key ``mined_negatives`` of training.json; see `recsys_cg.model.audit.Audit`. Where impressions are declared,
    ``events_with_skips`` of training.json is the share of training events that they say something of.

    Process-wide effects: Python's, NumPy's and TensorFlow's global seeds are set, and with ``training.deterministic``
    TensorFlow's op determinism is switched on and stays on.

    Args:
        dataset: a dataset directory.
        directory: an existing empty directory that receives the encoder.
        model: towers, negatives, correction, loss; training.json holds it with the dropout that was used.
        training: schedule and limits.
        seed: of initial weights, order, negatives and dropout.
        checkpoints: directory outside ``directory`` for the state of the training; a killed training that is started
            again with the same arguments goes on from its last whole epoch and reaches the same weights.
        filter_seen: in the validation recall, items of a query's past are no candidates; as they will be measured.

    Returns:
        ``dim``, ``best_epoch``, ``validation_recall`` (of the encoder as it is exported, None without validation
        queries; without the bonus of repeats), ``repeat_bonus``, ``parameters``, ``events``, ``max_history``.

    Raises:
        DataError: the dataset holds no item or no training event, its content does not fit its features, or impressions
            are declared as negatives and it holds none.
        NonFiniteError: a feature, the loss or a weight is NaN or infinite.
        RepresentationCollapseError: the item embeddings lost their geometry.
    """
    data = Dataset.open(dataset)
    catalogue = load_catalogue(data)
    if model.dropout is None:
        model = model.model_copy(update={"dropout": fitting_dropout(catalogue.counts)})
    sequences = _read_sequences(data, catalogue, model)
    strategy = build_strategy(training, model)  # a cluster must be joined before TensorFlow computes anything
    if training.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(seed)
    length = max(training.row_length, data.max_history)
    fingerprint = _fingerprint(data, model, training, seed, filter_seen)
    is_fresh = not has_checkpoint(checkpoints, fingerprint)
    with strategy.scope():
        network = TwoTower(
            model,
            training,
            catalogue,
            events=max(len(data.events), 1),
            max_length=length,
            seed=seed,
            context=sequences.context_counts(data.context.sizes),
            initial_ids=_place_ids(model, sequences, catalogue) if is_fresh else None,
        )
        network.build_weights()
    probe = _probe(data, training, seed, filter_seen=filter_seen)
    with strategy.scope():
        loop = TrainingLoop(network, sequences, probe, catalogue.counts, training=training, seed=seed)
        state = loop.run(checkpoints, fingerprint=fingerprint)
    facts: dict[str, Any] = {"parameters": network.parameters}
    recall = state.best_recall if probe.size else None
    if model.fit_content and (catalogue.features or not model.id_dropout):  # a trained unknown id without content stays
        explained = fit_content(network.item_tower, catalogue, power=model.content_power, ridge=model.content_ridge)
        if catalogue.features:
            facts["content_explains"] = round(explained, 6)
            say(f"content explains {explained:.1%} of the variance of the learned items")
        recall = probe.recall(network, *network.encode_items()) if probe.size else None
    bonus, by_bonus = _fit_repeats(network, probe, model, filter_seen=filter_seen)
    _export(network, data, catalogue, directory, model=model, repeat_bonus=bonus)
    if by_bonus:
        facts["validation_recall_by_repeat_bonus"] = {str(one): round(recall, 6) for one, recall in by_bonus.items()}
    audit = _audit(network, data, sequences, seed)
    if audit is not None:
        pyarrow.csv.write_csv(audit.table, directory / EncoderFiles.MINED_NEGATIVES)
        facts["mined_negatives"] = audit.record
    if sequences.skips is not None:
        facts["events_with_skips"] = round(float((sequences.skips[:, 0] >= 0).mean()), 6)
    _write_record(directory, state, model=model, training=training, facts=facts)
    say(f"encoder of epoch {state.best_epoch}" + ("" if recall is None else f", validation recall {recall:.4f}"))
    return {
        "dim": model.dim,
        "best_epoch": state.best_epoch,
        "validation_recall": recall,
        "repeat_bonus": bonus,
        "parameters": network.parameters,
        "events": list(data.events),
        "max_history": data.max_history,
    }


def _place_ids(model: ModelConfig, sequences: Sequences, catalogue: Catalogue) -> NDArray[np.float32] | None:
    """Return where ids begin, None for anywhere.

    Raises:
        EnvironmentMismatchError: SciPy or threadpoolctl is not installed.
    """
    if model.initial_ids == "random":
        return None
    try:
        from recsys_cg.model.initial_ids import co_occurrence_vectors  # noqa: PLC0415 - needs SciPy
    except ImportError as error:
        raise EnvironmentMismatchError(
            f'model.initial_ids = "co_occurrence": {error}; pip install \'recsys-cg[train]\', or set "random"'
        ) from error
    placed = co_occurrence_vectors(sequences, catalogue.id_rows, dim=model.dim)
    say(f"{placed.any(axis=1).sum():,} of {len(placed) - 1:,} items begin near those that users meet with them")
    return placed


def _read_sequences(data: Dataset, catalogue: Catalogue, model: ModelConfig) -> Sequences:
    """Read the training events, with what was shown and skipped where a source of negatives asks for it.

    Raises:
        DataError: there is no event; or impressions are declared, and the dataset has none or none that tells anything.
    """
    sequences = Sequences.from_tables(data.iter_sequences(), _context_columns(data))
    source = next((source for source in model.negatives if source.kind == "impressions"), None)
    if source is None:
        return sequences
    span_us = round(1e6 * source.span_s)
    parts = [
        skipped_items(table, shown, catalogue.identity, most=source.per_query, span_us=span_us)
        for table, shown in data.iter_shown()
    ]
    skips = np.concatenate(parts)
    share = float((skips[:, 0] >= 0).mean())
    if share == 0.0:
        raise DataError(
            "model.negatives declares impressions, but no training event has one of its item at or before its time "
            "with another item beside it: raise span_s if a request's impressions carry several times, or drop them"
        )
    say(f"{share:.1%} of the training events know what was shown with their item and skipped")
    return replace(sequences, skips=skips)


def _probe(data: Dataset, training: TrainingConfig, seed: int, *, filter_seen: bool) -> RecallProbe:
    probe = RecallProbe(
        data.queries("validation"),
        max_history=data.max_history,
        k=training.validation_k,
        most=training.validation_queries,
        seed=seed,
        filter_seen=filter_seen,
        context=_context_columns(data),
    )
    share = probe.share_met_before
    if filter_seen and share >= _NOTABLE_REPEATS:
        say(
            f"{share:.1%} of the validation targets are in their query's past and so cannot be found: set "
            "evaluation.filter_seen = false if coming back to an item counts"
        )
    return probe


def _fit_repeats(
    network: TwoTower, probe: RecallProbe, model: ModelConfig, *, filter_seen: bool
) -> tuple[float, dict[float, float]]:
    """Return the bonus of items that a user met, and the validation recall at each bonus that was tried, if any."""
    if model.repeat_bonus is not None:
        return model.repeat_bonus, {}
    if filter_seen or not probe.share_met_before:
        return 0.0, {}
    by_bonus = probe.recall_by_repeat_bonus(network, *network.encode_items())
    best = max(by_bonus, key=lambda bonus: by_bonus[bonus])  # of equal ones the smallest
    say(f"repeat bonus {best:g}: validation recall {by_bonus[0.0]:.4f} without, {by_bonus[best]:.4f} with it")
    return best, by_bonus


def _context_columns(data: Dataset) -> list[str]:
    return [feature.field_name for feature in data.context.features]


def _fingerprint(data: Dataset, model: ModelConfig, training: TrainingConfig, seed: int, filter_seen: bool) -> str:
    """Name what a checkpoint belongs to."""
    sections = {"model": model.model_dump(), "training": training.model_dump(), "filter_seen": filter_seen}
    return digest_json({"dataset": data.manifest.digest, **sections, "seed": seed})


def _export(  # noqa: PLR0913, RUF100 - what is exported
    network: TwoTower,
    data: Dataset,
    catalogue: Catalogue,
    directory: Path,
    *,
    model: ModelConfig,
    repeat_bonus: float,
) -> None:
    export_query_tower(network.served_tower(), directory, dim=model.dim, max_history=data.max_history)
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
            **({"context": data.context.to_list()} if len(data.context) else {}),
            **({"repeat_bonus": repeat_bonus} if repeat_bonus else {}),
        },
    )


def _audit(network: TwoTower, data: Dataset, sequences: Sequences, seed: int) -> Audit | None:
    """Audit what the exported encoder would mine, where mined negatives are declared."""
    source = network.sources.mined
    if source is None:
        return None
    vectors, history_vectors = network.encode_items()
    search = Search(
        network, sequences, vectors, history_vectors, band=source.band, max_history=data.max_history, seed=seed
    )
    later = Later.from_tables(data.iter_sequences(), data.queries("validation"))
    return audit_mined(search, later, (data.items["item_id"].to_pylist(), data.items["title"].to_pylist()))


def _write_record(
    directory: Path, state: TrainingState, *, model: ModelConfig, training: TrainingConfig, facts: Mapping[str, Any]
) -> None:
    record = {
        "schema": 1,
        "negatives": [source.declaration for source in model.negatives],
        "correction": {"form": model.correction, "strength": model.correction_strength},
        "loss": model.loss,
        "mask_history": model.mask_history,
        "model": model.model_dump(mode="json"),
        "training": training.model_dump(mode="json"),
        **facts,
        "best_epoch": state.best_epoch,
        "stopped": state.stopped,
        "epochs": state.epochs,
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (directory / EncoderFiles.TRAINING).write_text(text + "\n", encoding="utf-8")
