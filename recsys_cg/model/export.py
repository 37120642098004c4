"""Write a trained model as an encoder directory: both towers as SavedModels, the query tower as LiteRT too."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recsys_cg.data.arrays import ContentFeature, column_name, is_embedded
from recsys_cg.model.frameworks import tf
from recsys_cg.model.item_tower import ItemTower
from recsys_cg.model.normalisation import l2_normalise
from recsys_cg.model.query_tower import QueryTower
from recsys_cg.schema import EncoderFiles

__all__ = ["export_item_tower", "export_query_tower", "write_contract", "write_item_tables"]

SIGNATURE = "serving_default"


def export_query_tower(tower: QueryTower, directory: Path, *, dim: int, max_history: int) -> None:
    """Write the query tower below ``directory`` as SavedModel and LiteRT, of one signature and any batch size.

    Inputs ``history`` float32 [batch, max_history, dim], ``gap_s`` float32 [batch, max_history], ``event`` int32
    [batch, max_history], ``length`` int32 [batch], and for a tower with context features ``context`` int32 [batch,
    features]; output ``query`` float32 [batch, dim]. No custom operation.
    """
    grid = [None, max_history]
    inputs = [
        tf.TensorSpec([*grid, dim], tf.float32, "history"),
        tf.TensorSpec(grid, tf.float32, "gap_s"),
        tf.TensorSpec(grid, tf.int32, "event"),
        tf.TensorSpec([None], tf.int32, "length"),
    ]
    if tower.context:
        inputs.append(tf.TensorSpec([None, tower.context], tf.int32, "context"))

    @tf.function(input_signature=inputs)  # type: ignore[untyped-decorator, unused-ignore]
    def encode(*tensors: Any) -> dict[str, Any]:
        return {"query": tower.encode_last(*tensors)}

    saved = directory / EncoderFiles.QUERY_SAVED_MODEL
    _save(tower, encode, saved)
    _convert(saved, directory / EncoderFiles.QUERY_LITERT)


def export_item_tower(tower: ItemTower, features: Sequence[ContentFeature], directory: Path) -> None:
    """Write the item tower below ``directory`` as a SavedModel, and what it makes of content alone as LiteRT.

    Inputs ``id_row`` int32 [batch], 0 for an unknown item, and ``f_<name>`` for each feature; outputs ``vector`` (unit
    norm) and ``history_vector``, float32 [batch, dim]. The LiteRT graph is the tower at ``id_row`` 0: it has no such
    input and holds no table of ids, so it stays small however many items there are. Without features there is none.
    """
    inputs = [tf.TensorSpec([None], tf.int32, "id_row")]
    for feature in features:
        width, dtype = (feature.max_values, tf.int32) if is_embedded(feature) else (feature.width, tf.float32)
        inputs.append(tf.TensorSpec([None, width], dtype, column_name(feature)))

    @tf.function(input_signature=inputs)  # type: ignore[untyped-decorator, unused-ignore]
    def encode(id_row: Any, *content: Any) -> dict[str, Any]:
        columns = {column_name(feature): array for feature, array in zip(features, content, strict=True)}
        vector, history = tower.vectors(id_row, columns)
        return {"vector": vector, "history_vector": history}

    _save(tower, encode, directory / EncoderFiles.ITEM_SAVED_MODEL)
    if features:
        _export_content_tower(tower, inputs[1:], directory / EncoderFiles.CONTENT_LITERT)


def _export_content_tower(tower: ItemTower, inputs: Sequence[Any], path: Path) -> None:
    newcomer = tf.constant(tf.convert_to_tensor(tower.id_table)[:1].numpy())  # else the graph holds the whole table

    @tf.function(input_signature=inputs)  # type: ignore[untyped-decorator, unused-ignore]
    def encode(*content: Any) -> dict[str, Any]:
        columns = {spec.name: array for spec, array in zip(inputs, content, strict=True)}
        return {"vector": l2_normalise(tower.add_content(newcomer, columns))}

    with tempfile.TemporaryDirectory(prefix="recsys-cg-content-") as scratch:
        _save(tower, encode, Path(scratch) / "saved_model")
        _convert(Path(scratch) / "saved_model", path)


def _convert(saved: Path, path: Path) -> None:
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved), signature_keys=[SIGNATURE])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    path.write_bytes(converter.convert())


def _save(tower: Any, function: Any, path: Path) -> None:
    module = tf.Module()
    module.variables_used = tower.variables
    module.encode = function
    path.parent.mkdir(parents=True, exist_ok=True)
    tf.saved_model.save(module, str(path), signatures={SIGNATURE: function})


def write_item_tables(directory: Path, items: pa.Table, features_json: str) -> None:
    """Write the id vocabulary, the sampling table and the fitted features below ``directory``.

    Args:
        directory: of the encoder.
        items: the dataset's item table. The ids are those of the items with a training event, in its order: row r
            of ids.parquet has id_row r + 1, and every other item is embedded as an unknown one.
        features_json: the dataset's features.json.
    """
    (directory / EncoderFiles.ITEM_IDS).parent.mkdir(parents=True, exist_ok=True)
    learnt = items.filter(pc.greater(items["train_count"], 0))
    pq.write_table(learnt.select(["item_id"]), directory / EncoderFiles.ITEM_IDS)
    pq.write_table(items.select(["item_id", "train_count", "q"]), directory / EncoderFiles.SAMPLING)
    (directory / EncoderFiles.FEATURES).write_text(features_json, encoding="utf-8")


def write_contract(directory: Path, contract: dict[str, Any]) -> None:
    """Write encoder.json: what a reader of the towers needs to know.

    Its schema is 2 where ``contract`` has context features and 3 where it has a ``repeat_bonus``, which a reader of the
    one before would leave out without a word.
    """
    schema = 3 if contract.get("repeat_bonus") else 2 if "context" in contract else 1
    text = json.dumps({"schema": schema, **contract}, indent=1, ensure_ascii=False)
    (directory / EncoderFiles.CONTRACT).write_text(text + "\n", encoding="utf-8")
