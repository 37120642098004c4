"""One worker of several; the cluster comes from TF_CONFIG.

``python -m tests.model.replica one|mirrored|multi_worker DATASET OUTPUT`` writes loss and summed gradients of one fixed
batch; ``python -m tests.model.replica train DATASET HOME CHECKPOINTS`` trains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.model.catalogue import load_catalogue
from recsys_cg.model.distribution import build_strategy
from recsys_cg.model.frameworks import tf
from recsys_cg.model.inputs import Sequences, batch_signature, split_batch, stream_epoch
from recsys_cg.model.optimizer import build_optimizer
from recsys_cg.model.training import train_encoder
from recsys_cg.model.two_tower import TwoTower
from tests.model.conftest import MODEL, TRAINING

SHAPE = (4, 24)


def main(devices: str, dataset: str, output: str) -> None:
    if devices == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # Without dropout, and with every event of the batch drawn, what is computed does not depend on who draws.
    everything = [{**source, "count": SHAPE[0] * SHAPE[1]} for source in MODEL["negatives"]]
    model = ModelConfig(**{**MODEL, "dropout": 0.0, "id_dropout": 0.0, "negatives": everything})
    training = TrainingConfig(devices=devices, batch_sequences=4, row_length=24)
    strategy = build_strategy(training, model)
    data = Dataset.open(Path(dataset))
    sequences = Sequences.from_tables(data.iter_sequences())
    tf.keras.utils.set_random_seed(3)
    with strategy.scope():
        network = TwoTower(model, training, load_catalogue(data), events=2, max_length=24, seed=1)
        network.build_weights()
        network.compile(optimizer=build_optimizer(training, total_steps=10))
        network.optimizer.build(network.trainable_variables)
    count = strategy.num_replicas_in_sync
    whole = next(stream_epoch(sequences, shape=SHAPE, seed=1, epoch=0))

    def build(context: Any) -> Any:
        each = count // context.num_input_pipelines
        parts = range(context.input_pipeline_id * each, (context.input_pipeline_id + 1) * each)
        signature = batch_signature((SHAPE[0] // count, SHAPE[1]))
        return tf.data.Dataset.from_generator(
            lambda: (split_batch(whole, part, count) for part in parts), output_signature=signature
        )

    @tf.function
    def step(batch: Any) -> tuple[Any, ...]:
        def local(batch: Any) -> tuple[Any, ...]:
            loss, gradients, figures = network.loss_and_gradients(batch)
            values = [loss, *(tf.convert_to_tensor(gradient) for gradient in gradients)]
            if count > 1:
                values = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)
            return (*values, figures["targets"], figures["candidates"], figures["masked"])

        return strategy.run(local, args=(batch,))

    values = step(next(iter(strategy.distribute_datasets_from_function(build))))
    arrays = [strategy.experimental_local_results(value)[0].numpy() for value in values]
    np.savez(output, *arrays, count=count)


def train_worker(dataset: str, home: str, shared: str) -> None:
    directory = Path(home)
    directory.mkdir()
    info = train_encoder(
        Path(dataset),
        directory,
        model=ModelConfig(**{**MODEL, "query_encoder": "mean"}),
        training=TrainingConfig(**{**TRAINING, "devices": "multi_worker", "epochs": 2}),
        seed=3,
        checkpoints=Path(shared),
    )
    (directory / "info.json").write_text(json.dumps(info))


if __name__ == "__main__":
    train_worker(*sys.argv[2:]) if sys.argv[1] == "train" else main(*sys.argv[1:])
