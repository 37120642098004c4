from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from ai_edge_litert.interpreter import Interpreter

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import ArtifactMissingError, DataError
from recsys_cg.model.catalogue import load_catalogue
from recsys_cg.model.export import export_query_tower
from recsys_cg.model.frameworks import tf
from recsys_cg.model.histories import gather_histories, query_arrays
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.model.query_tower import QueryTower
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.schema import EncoderFiles, queries_schema
from recsys_cg.serving.content import ContentEncoder
from tests.model.conftest import Trained, make_catalogue


def litert(directory: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    interpreter = Interpreter(model_path=str(directory / EncoderFiles.QUERY_LITERT))
    return interpreter.get_signature_runner("serving_default")(**inputs)["query"]


def saved_model(directory: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    loaded = tf.saved_model.load(str(directory / EncoderFiles.QUERY_SAVED_MODEL))
    signature = loaded.signatures["serving_default"]
    return signature(**{name: tf.constant(value) for name, value in inputs.items()})["query"].numpy()


def random_inputs(rows: int, length: int, dim: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, length + 1, rows).astype(np.int32)
    valid = np.arange(length) < lengths[:, None]
    return {
        "history": (rng.normal(size=(rows, length, dim)) * valid[..., None]).astype(np.float32),
        "gap_s": (rng.exponential(1e5, size=(rows, length)) * valid).astype(np.float32),
        "event": (rng.integers(0, 2, size=(rows, length)) * valid).astype(np.int32),
        "length": lengths,
    }


def test_the_contract_says_what_a_reader_needs(trained: Trained) -> None:
    contract = json.loads((trained.directory / EncoderFiles.CONTRACT).read_text())
    assert contract["schema"] == 1
    assert (contract["dim"], contract["history_dim"], contract["max_history"]) == (16, 16, 12)
    assert contract["events"] == ["click", "purchase"]
    assert contract["normalisation"] == "l2"
    assert contract["query_encoder"] == "transformer"
    assert 0.01 <= contract["temperature"] <= 1.0


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_litert_equals_the_saved_model_for_any_batch(trained: Trained, rows: int) -> None:
    inputs = random_inputs(rows, 12, 16)
    np.testing.assert_allclose(litert(trained.directory, inputs), saved_model(trained.directory, inputs), atol=1e-5)


def test_extreme_histories_give_finite_unit_vectors(trained: Trained) -> None:
    inputs = random_inputs(4, 12, 16)
    inputs["length"][:] = [0, 12, 1, 12]
    inputs["gap_s"][1] = 3e38
    inputs["gap_s"][3] = 0.0
    inputs["history"][2] *= 1e6
    inputs["history"][3] = 0.0
    for run in (litert, saved_model):
        encoded = run(trained.directory, inputs)
        assert np.isfinite(encoded).all()
        np.testing.assert_allclose(np.linalg.norm(encoded, axis=1), 1.0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["recency", "mean"])
def test_the_other_encoders_export_equal_to_its_training_graph(tmp_path: Path, encoder: str) -> None:
    tower = QueryTower(ModelConfig(dim=8, query_encoder=encoder), events=2, max_length=40)
    tower(tf.zeros([1, 6, 8]), tf.zeros([1, 6]), tf.zeros([1, 6], tf.int32))
    export_query_tower(tower, tmp_path, dim=8, max_history=6)
    inputs = random_inputs(32, 6, 8)
    valid = inputs["length"] > 0
    packed = tower(inputs["history"], inputs["gap_s"], inputs["event"]).numpy()
    last = packed[np.arange(32)[valid], inputs["length"][valid] - 1]
    np.testing.assert_allclose(litert(tmp_path, inputs)[valid], last, atol=1e-5)
    np.testing.assert_allclose(saved_model(tmp_path, inputs)[valid], last, atol=1e-5)


def test_a_query_on_real_histories_is_what_training_computes(trained: Trained) -> None:
    """An event in the middle of a packed row and the same event asked as a query: one vector."""
    data = Dataset.open(trained.dataset)
    catalogue = load_catalogue(data)
    network = TwoTower(ModelConfig(dim=16, blocks=1), TrainingConfig(), catalogue, events=2, max_length=100, seed=1)
    sequence = data.sequences().slice(3, 1).to_pylist()[0]
    rows, times, codes = (sequence[name][:9] for name in ("item_rows", "times_us", "events"))
    network.build_weights()
    _, history = network.encode_items()
    gaps = np.append(np.diff(times), 0).astype(np.float32) / 1e6
    packed = network.query_tower(history[rows][None], gaps[None], np.array([codes], np.int32)).numpy()[0]
    asked = int(np.flatnonzero(np.diff(times) > 0)[-1])
    query = {
        "user_id": "u",
        "time_us": times[asked + 1],
        "targets": [rows[asked + 1]],
        "history": rows[: asked + 1],
        "history_times_us": times[: asked + 1],
        "history_events": codes[: asked + 1],
        "history_length": asked + 1,
        "seen": sorted(set(rows[: asked + 1])),
    }
    arrays = query_arrays(pa.Table.from_pylist([query], schema=queries_schema), 12)
    inputs = gather_histories(arrays, history, slice(0, 1))
    np.testing.assert_allclose(network.encode_histories(inputs).numpy()[0], packed[asked], atol=1e-5)


def test_query_arrays_keep_the_newest_events_left_aligned() -> None:
    query = {
        "user_id": "u",
        "time_us": 10_000_000,
        "targets": [0],
        "history": [1, 2, 3],
        "history_times_us": [1_000_000, 4_000_000, 4_000_000],
        "history_events": [0, 1, 0],
        "history_length": 3,
        "seen": [1, 2, 3],
    }
    empty = {**query, "history": [], "history_times_us": [], "history_events": [], "history_length": 0, "seen": []}
    table = pa.Table.from_pylist([empty, query, empty], schema=queries_schema)
    short, whole = query_arrays(table, 2), query_arrays(table, 4)
    np.testing.assert_array_equal(short.rows, [[0, 0], [2, 3], [0, 0]])
    np.testing.assert_array_equal(short.gap_s[1], [0.0, 6.0])
    np.testing.assert_array_equal(whole.rows[1], [1, 2, 3, 0])
    np.testing.assert_array_equal(whole.gap_s[1], [3.0, 0.0, 6.0, 0.0])
    np.testing.assert_array_equal(whole.event[1], [0, 1, 0, 0])
    np.testing.assert_array_equal(whole.length, [0, 3, 0])


def test_known_items_are_embedded_by_id_and_content_and_new_ones_by_content(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items
    encoder = ItemEncoder.open(trained.directory)
    vectors, history = encoder.encode(items["item_id"], items)
    assert vectors.shape == history.shape == (80, 16)
    assert vectors.dtype == history.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(vectors, history / np.linalg.norm(history, axis=1, keepdims=True), atol=1e-5)
    some = pa.table({name: items[name].take(pa.array([5, 0])) for name in items.column_names})
    swapped, _ = encoder.encode(["item-nobody-knows", items["item_id"][0].as_py()], some)
    np.testing.assert_allclose(swapped[1], vectors[0], atol=1e-6)
    assert np.abs(swapped[0] - vectors[5]).max() > 1e-3


def test_content_alone_places_a_new_item_near_its_taste(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items
    encoder = ItemEncoder.open(trained.directory)
    names = items["item_id"].to_pylist()
    vectors, _ = encoder.encode(["new"] * len(names), items)
    even = np.array([int(name.split("-")[1]) % 2 == 0 for name in names])
    within = (vectors[even] @ vectors[even].T).mean() + (vectors[~even] @ vectors[~even].T).mean()
    assert within / 2 > (vectors[even] @ vectors[~even].T).mean() + 0.2


def test_serving_embeds_a_catalogue_row_as_a_refresh_embeds_a_new_item(trained: Trained) -> None:
    """The LiteRT graph on raw rows against the SavedModel on what the dataset job made of the same rows."""
    items = Dataset.open(trained.dataset).items
    by_id = {row["item_id"]: row for row in pa.Table.from_pandas(make_catalogue()).to_pylist()}
    rows = [by_id[name] for name in items["item_id"].to_pylist()]
    expected, _ = ItemEncoder.open(trained.directory).encode(["new"] * len(rows), items)
    content = ContentEncoder.open(trained.directory)
    np.testing.assert_allclose(content.encode(rows), expected, atol=1e-5)
    np.testing.assert_allclose(content.encode(rows[3:4]), expected[3:4], atol=1e-5)
    assert (trained.directory / EncoderFiles.CONTENT_LITERT).stat().st_size < 20_000


def test_no_item_is_embedded_as_no_row(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items
    vectors, history = ItemEncoder.open(trained.directory).encode(pa.array([], pa.string()), items.slice(0, 0))
    assert vectors.shape == history.shape == (0, 16)


def test_content_outside_the_vocabulary_is_refused(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items
    wrong = items.set_column(
        items.column_names.index("f_genre"), "f_genre", pa.array([[99]] * 80, pa.list_(pa.int32()))
    )
    with pytest.raises(DataError, match="feature 'genre' has entry 99"):
        ItemEncoder.open(trained.directory).encode(items["item_id"], wrong)


def test_a_directory_without_item_tower_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="item/saved_model"):
        ItemEncoder.open(tmp_path)


def test_items_that_training_met_have_ids_of_their_own_in_the_order_of_the_items(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items.select(["item_id", "train_count"]).to_pylist()
    ids = pq.read_table(trained.directory / EncoderFiles.ITEM_IDS)["item_id"].to_pylist()
    assert ids == [item["item_id"] for item in items if item["train_count"] > 0]
    assert "item-79" not in ids


def test_an_item_that_training_never_met_is_embedded_as_a_newcomer_of_its_content(trained: Trained) -> None:
    items = Dataset.open(trained.dataset).items
    never = items.filter(pc.equal(items["train_count"], 0))
    assert "item-79" in never["item_id"].to_pylist()
    encoder = ItemEncoder.open(trained.directory)
    listed, unheard = (encoder.encode(ids, never) for ids in (never["item_id"], ["new"] * len(never)))
    np.testing.assert_array_equal(listed[0], unheard[0])
    np.testing.assert_array_equal(listed[1], unheard[1])


def test_training_too_knows_an_item_without_events_by_its_content(trained: Trained) -> None:
    catalogue = load_catalogue(Dataset.open(trained.dataset))
    never = np.flatnonzero(catalogue.counts == 0)
    network = TwoTower(ModelConfig(dim=8), TrainingConfig(), catalogue, events=2, max_length=12, seed=1)
    content = {name: tf.constant(array[never]) for name, array in catalogue.content.items()}
    by_content = network.item_tower(tf.zeros(len(never), tf.int32), content).numpy()
    np.testing.assert_allclose(network.encode_items()[1][never], by_content, atol=1e-6)
    assert network.item_tower.id_table.shape[0] == 1 + (catalogue.counts > 0).sum()
