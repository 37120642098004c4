from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import DataError, EnvironmentMismatchError, NonFiniteError, RepresentationCollapseError
from recsys_cg.model.catalogue import load_catalogue
from recsys_cg.model.frameworks import tf
from recsys_cg.model.inputs import Sequences
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.model.loop import TrainingLoop
from recsys_cg.model.query_tower import fitting_dropout
from recsys_cg.model.training import train_encoder
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.model.validation import RecallProbe
from recsys_cg.schema import DatasetFiles, EncoderFiles
from tests.model.conftest import FEATURES, MODEL, SEED, TRAINING, Trained, make_catalogue, make_events, train
from tests.model.datasets import write_dataset


def epochs_of(directory: Path) -> list[dict[str, object]]:
    return json.loads((directory / EncoderFiles.TRAINING).read_text())["epochs"]


def item_vectors(encoder: Trained) -> tuple[np.ndarray, np.ndarray]:
    items = Dataset.open(encoder.dataset).items
    return ItemEncoder.open(encoder.directory).encode(items["item_id"], items)


def test_info_says_what_was_trained(trained: Trained) -> None:
    info = trained.info
    assert info["dim"] == 16
    assert info["max_history"] == 12
    assert info["events"] == ["click", "purchase"]
    assert 1 <= info["best_epoch"] <= 4
    assert 0.0 < info["validation_recall"] <= 1.0
    assert info["parameters"] > 16 * 80


def test_two_tastes_are_learned_beyond_popularity(trained: Trained) -> None:
    # The ten most popular of 78 items hold five of each taste: a user's next item is among them less often.
    queries = Dataset.open(trained.dataset).queries("validation").to_pylist()
    hits = [row < 10 and row not in query["seen"] for query in queries for row in query["targets"]]
    assert trained.info["validation_recall"] > np.mean(hits) + 0.1


def test_begun_by_co_occurrence_even_an_untaught_model_finds_more(dataset: Path, tmp_path: Path) -> None:
    untaught = {"epochs": 1, "learning_rate": 1e-9}
    by_chance, by_meetings = (
        train(dataset, tmp_path / start, model={"initial_ids": start, "fit_content": False}, training=untaught)
        for start in ("random", "co_occurrence")
    )
    assert by_meetings.info["validation_recall"] > 1.3 * by_chance.info["validation_recall"]


def test_without_scipy_the_mend_is_named(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "recsys_cg.model.initial_ids", None)
    with pytest.raises(EnvironmentMismatchError, match=r"pip install 'recsys-cg\[train\]', or set \"random\""):
        train(dataset, tmp_path)


def test_the_record_names_negatives_and_figures_of_each_epoch(dataset: Path, trained: Trained) -> None:
    record = json.loads((trained.directory / EncoderFiles.TRAINING).read_text())
    assert record["negatives"] == [
        {"kind": "in_batch", "count": 64},
        {"kind": "popularity", "count": 32, "alpha": 0.5},
    ]
    assert record["correction"] == {"form": "refined", "strength": 1.0}
    assert record["model"]["dropout"] == fitting_dropout(Dataset.open(dataset).items["train_count"].to_numpy()) > 0.05
    assert [epoch["epoch"] for epoch in record["epochs"]] == [1, 2, 3, 4]
    first, last = record["epochs"][0], record["epochs"][-1]
    assert last["loss"] < first["loss"]
    assert 90.0 < last["candidates"] <= 96.0  # 64 + 32, fewer in the last batch of an epoch
    assert 0.0 < last["masked"] < 96.0
    assert last["temperature"] != pytest.approx(0.07, abs=1e-5)
    assert set(last["geometry"]) == {
        "alignment",
        "uniformity",
        "mean_pairwise_similarity",
        "max_pairwise_similarity",
        "effective_rank",
        "norm_popularity_correlation",
    }


def test_fitted_content_moves_what_training_never_met_and_nothing_else(
    dataset: Path, trained: Trained, tmp_path: Path
) -> None:
    plain = train(dataset, tmp_path, model={"fit_content": False})
    records = [json.loads((one.directory / EncoderFiles.TRAINING).read_text()) for one in (trained, plain)]
    assert 0.0 < records[0]["content_explains"] < 1.0
    assert "content_explains" not in records[1]
    (fitted, _), (as_trained, _) = item_vectors(trained), item_vectors(plain)
    met = Dataset.open(dataset).items["train_count"].to_numpy() > 0
    assert not met.all()
    np.testing.assert_allclose(fitted[met], as_trained[met], atol=1e-4)
    assert np.abs(fitted[~met] - as_trained[~met]).max() > 0.01


def test_tensorboard_logs_stand_beside_the_checkpoints(trained: Trained) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs = EventAccumulator(str(trained.directory.parent / "checkpoints-tensorboard"))
    logs.Reload()
    assert {"loss", "validation_recall", "geometry/effective_rank", "temperature"} <= set(logs.Tags()["tensors"])


def test_the_sampling_table_holds_every_item_and_sums_to_one(trained: Trained) -> None:
    table = pq.read_table(trained.directory / EncoderFiles.SAMPLING)
    assert table.column_names == ["item_id", "train_count", "q"]
    assert table.num_rows == 80
    assert np.sum(table["q"].to_numpy()) == pytest.approx(1.0)


_RUN = """
import sys
from pathlib import Path
from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.model.training import train_encoder
import json
dataset, home, model, training, seed = sys.argv[1:]
(Path(home) / "killed").mkdir()
train_encoder(Path(dataset), Path(home) / "killed", model=ModelConfig(**json.loads(model)),
    training=TrainingConfig(**json.loads(training)), seed=int(seed), checkpoints=Path(home) / "checkpoints")
"""


def test_a_killed_training_goes_on_to_bit_equal_weights(
    dataset: Path, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "checkpoints" / "state.json"
    complaints = tmp_path / "stderr"
    command = [sys.executable, "-c", _RUN, str(dataset), str(tmp_path), json.dumps(MODEL), json.dumps(TRAINING)]
    with complaints.open("w") as stderr:
        process = subprocess.Popen([*command, str(SEED)], stderr=stderr)
    try:
        deadline = time.monotonic() + 200
        while not state.exists() or json.loads(state.read_text())["epoch"] < 2:
            assert process.poll() is None, complaints.read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / EncoderFiles.CONTRACT).exists()
    monkeypatch.setattr("recsys_cg.model.training._place_ids", lambda *_: pytest.fail("ids are in the checkpoint"))
    resumed = train(dataset, tmp_path)
    for one, other in zip(item_vectors(trained), item_vectors(resumed), strict=True):
        np.testing.assert_array_equal(one, other)
    litert = [(run.directory / EncoderFiles.QUERY_LITERT).read_bytes() for run in (trained, resumed)]
    assert litert[0] == litert[1]
    timeless = [
        [{name: epoch[name] for name in epoch if name not in ("seconds", "examples_per_s")} for epoch in record]
        for record in (epochs_of(trained.directory), epochs_of(resumed.directory))
    ]
    assert timeless[0] == timeless[1]


@pytest.fixture
def no_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the conversion, which takes most of a small training's time."""
    monkeypatch.setattr("recsys_cg.model.training.export_query_tower", lambda *args, **options: None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_litert")
def test_a_training_that_broke_goes_on_with_the_state_of_its_negatives(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateful = [
        {"kind": "in_batch", "count": 64},
        {"kind": "cross_batch", "count": 48, "max_age": 3},
        {"kind": "mined", "count": 32, "warmup_epochs": 1, "first_rank": 3, "last_rank": 12},
    ]
    options = {
        "model": {"negatives": stateful, "frequencies": "streaming", "query_encoder": "mean"},
        "training": {"epochs": 3},
    }
    whole = train(dataset, tmp_path / "whole", **options)
    with monkeypatch.context() as patched:
        patched.setattr("recsys_cg.model.loop._log", lambda board, record: 1 // (record["epoch"] - 2))
        with pytest.raises(ZeroDivisionError):
            train(dataset, tmp_path / "broken", **options)
    assert json.loads((tmp_path / "broken" / "checkpoints" / "state.json").read_text())["epoch"] == 2
    (tmp_path / "broken" / "encoder").rmdir()
    resumed = train(dataset, tmp_path / "broken", **options)
    for one, other in zip(item_vectors(whole), item_vectors(resumed), strict=True):
        np.testing.assert_array_equal(one, other)
    audits = [(run.directory / EncoderFiles.MINED_NEGATIVES).read_text() for run in (whole, resumed)]
    assert audits[0] == audits[1]


def build_loop(dataset: Path) -> TrainingLoop:
    data = Dataset.open(dataset)
    catalogue, sequences = load_catalogue(data), Sequences.from_tables(data.iter_sequences())
    config = TrainingConfig(**TRAINING)
    network = TwoTower(ModelConfig(**MODEL, dropout=0.1), config, catalogue, events=2, max_length=24, seed=SEED)
    network.build_weights()
    probe = RecallProbe(data.queries("validation"), max_history=12, k=10, most=50, seed=SEED, filter_seen=True)
    return TrainingLoop(network, sequences, probe, catalogue.counts, training=config, seed=SEED)


def test_a_step_is_traced_once_whatever_the_lengths_of_its_batches(dataset: Path) -> None:
    loop = build_loop(dataset)
    lengths = set()
    for batch in loop._batches(0):
        lengths.add(batch["own_item"].shape[0])
        loop._step(batch)
    assert len(lengths) > 2
    assert loop._step.experimental_get_tracing_count() == 1


def test_a_batch_whose_shape_was_forgotten_trains_as_any_other(dataset: Path) -> None:
    """As the batches of several workers are described; see `test_two_workers_train_one_encoder`."""
    losses = []
    for forgets in (False, True):
        tf.keras.utils.set_random_seed(SEED)
        loop = build_loop(dataset)
        batch = next(iter(loop._batches(0)))
        forgotten = {name: tf.TensorSpec([None] * part.shape.rank, part.dtype) for name, part in batch.items()}
        step = tf.function(loop._train_replicas, input_signature=[forgotten]) if forgets else loop._step
        losses.append(float(step(batch)["loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_collapsing_model_is_stopped(dataset: Path, tmp_path: Path) -> None:
    # One and the same popular negative, at a temperature of 1: everything is pulled together, nothing pushed apart.
    # Begun by co-occurrence, ids hold out longer than these epochs.
    with pytest.raises(RepresentationCollapseError, match=r"effective rank .* mean pairwise similarity") as caught:
        train(
            dataset,
            tmp_path,
            model={
                "initial_ids": "random",
                "loss": "sigmoid",
                "query_encoder": "mean",
                "dropout": 0.0,
                "negatives": [{"kind": "popularity", "count": 1, "alpha": 2.0}],
                "correction": "none",
                "temperature": 1.0,
                "learn_temperature": False,
                "mask_history": False,
            },
            training={"epochs": 8, "learning_rate": 0.3, "patience": 8, "batch_sequences": 2},
        )
    assert "epoch" in str(caught.value)
    assert not (tmp_path / "encoder" / EncoderFiles.CONTRACT).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_litert")
def test_without_validation_queries_the_last_epoch_is_kept(tmp_path: Path) -> None:
    events = make_events(30)
    write_dataset(tmp_path / "data", events, make_catalogue(), FEATURES, max_history=12, fractions=(0.9, 0.9))
    trained = train(tmp_path / "data", tmp_path, model={"query_encoder": "mean"}, training={"epochs": 2, "patience": 1})
    assert trained.info["validation_recall"] is None
    assert trained.info["best_epoch"] == 2


def test_a_dataset_without_training_events_is_refused(tmp_path: Path) -> None:
    events = make_events(30)
    write_dataset(tmp_path / "data", events, make_catalogue(), FEATURES, fractions=(0.5, 0.9))
    for part in (tmp_path / "data" / DatasetFiles.SEQUENCES).glob("*"):
        pq.write_table(pq.read_table(part).slice(0, 0), part)
    with pytest.raises(DataError, match="no training sequence"):
        train(tmp_path / "data", tmp_path)


def test_a_feature_that_is_not_finite_is_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", make_events(30), make_catalogue(), FEATURES)
    path = tmp_path / "data" / DatasetFiles.ITEMS
    table = pq.read_table(path)
    looks = table["f_look"].to_pylist()
    looks[3][1] = float("nan")
    place = table.column_names.index("f_look")
    field = table.schema.field("f_look")
    pq.write_table(table.set_column(place, field, pa.array(looks, field.type)), path)
    with pytest.raises(NonFiniteError, match="feature 'look' is NaN or infinite, first at item row 3"):
        train(tmp_path / "data", tmp_path)


def test_equal_titles_and_content_share_an_identity(tmp_path: Path) -> None:
    catalogue = make_catalogue(8)
    twin = catalogue.iloc[[2]].assign(item_id="twin")
    untitled = catalogue.iloc[[3, 3]].assign(item_id=["blank-1", "blank-2"], title=None)
    everything = pd.concat([catalogue, twin, untitled], ignore_index=True)
    events = make_events(20, 8)
    write_dataset(tmp_path / "data", events, everything, FEATURES)
    data = Dataset.open(tmp_path / "data")
    ids = data.items["item_id"].to_pylist()
    identity = load_catalogue(data).identity
    assert identity[ids.index("twin")] == identity[ids.index("item-2")]
    alone = [place for place, name in enumerate(ids) if name not in ("twin", "item-2")]
    np.testing.assert_array_equal(identity[alone], alone)


def test_a_directory_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    from recsys_cg.config import ModelConfig, TrainingConfig
    from recsys_cg.errors import ArtifactMissingError

    with pytest.raises(ArtifactMissingError):
        train_encoder(
            tmp_path,
            tmp_path,
            model=ModelConfig(),
            training=TrainingConfig(),
            seed=1,
            checkpoints=tmp_path / "checkpoints",
        )


def test_where_people_come_back_to_items_a_bonus_for_them_is_fitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    favourites = rng.choice(80, (60, 4))
    rows = [
        (f"user-{user}", f"item-{rng.choice(favourites[user])}", (user + 3600 * step) * 1_000_000)
        for user in range(60)
        for step in range(25)
    ]
    events = pd.DataFrame(rows, columns=["user", "item", "time_us"]).assign(code=np.int8(0), weight=np.float32(1.0))
    data = write_dataset(tmp_path / "dataset", events, make_catalogue(), max_history=12)
    short = {"epochs": 1, "validation_k": 5}
    kept = train(data, tmp_path / "kept", training=short, filter_seen=False)
    record = json.loads((kept.directory / EncoderFiles.TRAINING).read_text())
    recalls = {float(bonus): recall for bonus, recall in record["validation_recall_by_repeat_bonus"].items()}
    contract = json.loads((kept.directory / EncoderFiles.CONTRACT).read_text())
    best = kept.info["repeat_bonus"]
    assert (contract["schema"], contract["repeat_bonus"]) == (3, best)
    assert best > 0.0
    assert recalls[best] == max(recalls.values())
    assert recalls[2.0] > 0.95  # four favourites fit in a list of five
    assert recalls[0.0] == pytest.approx(kept.info["validation_recall"], abs=1e-6)
    hidden = train(data, tmp_path / "hidden", training=short)
    assert hidden.info["repeat_bonus"] == 0.0
    assert json.loads((hidden.directory / EncoderFiles.CONTRACT).read_text())["schema"] == 1
