from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recsys_cg.config import ModelConfig, NegativesConfig, TrainingConfig
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import ConfigError
from recsys_cg.model.distribution import build_strategy
from recsys_cg.model.inputs import Sequences, pack_batch, split_batch
from recsys_cg.model.item_encoder import ItemEncoder
from recsys_cg.schema import EncoderFiles
from tests.model.test_inputs import table

ROOT = Path(__file__).parents[2]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def two_workers() -> list[dict[str, object]]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    return [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in range(2)]


def launch(what: str, *paths: Path, cluster: dict[str, object] | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, **({"TF_CONFIG": json.dumps(cluster)} if cluster else {})}
    command = [sys.executable, "-m", "tests.model.replica", what, *map(str, paths)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]]) -> None:
    try:
        for process in processes:
            _, complaint = process.communicate(timeout=240)
            assert process.returncode == 0, complaint[-2000:]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_two_workers_and_two_devices_compute_the_loss_and_gradient_of_one(dataset: Path, tmp_path: Path) -> None:
    names = ["one", "mirrored", "worker-0", "worker-1"]
    outputs = {name: tmp_path / f"{name}.npz" for name in names}
    for devices in ("one", "mirrored"):
        finish([launch(devices, dataset, outputs[devices])])
    workers = zip(names[2:], two_workers(), strict=True)
    finish([launch("multi_worker", dataset, outputs[name], cluster=cluster) for name, cluster in workers])
    results = {name: np.load(path) for name, path in outputs.items()}
    assert [int(results[name]["count"]) for name in names] == [1, 2, 2, 2]
    arrays = [key for key in results["one"].files if key != "count"]
    assert len(arrays) > 10
    for name in names[1:]:
        for key in arrays:
            np.testing.assert_allclose(results[name][key], results["one"][key], rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.slow
def test_two_workers_train_one_encoder(dataset: Path, tmp_path: Path) -> None:
    homes = [tmp_path / "first", tmp_path / "second"]
    workers = zip(homes, two_workers(), strict=True)
    finish([launch("train", dataset, home, tmp_path / "shared", cluster=cluster) for home, cluster in workers])
    infos = [json.loads((home / "info.json").read_text()) for home in homes]
    assert infos[0] == infos[1]
    litert = [(home / EncoderFiles.QUERY_LITERT).read_bytes() for home in homes]
    assert litert[0] == litert[1]
    items = Dataset.open(dataset).items
    first, second = (ItemEncoder.open(home).encode(items["item_id"], items)[0] for home in homes)
    np.testing.assert_array_equal(first, second)


def test_replicas_take_rows_apart_and_keep_their_queries() -> None:
    sequences = Sequences.from_tables([table([([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]), ([7, 8], [1, 2])])])
    batch = pack_batch(sequences, np.arange(8), shape=(2, 4))
    np.testing.assert_array_equal(batch["query"], [8, 0, 1, 2, 0, 4, 8, 6])
    first, second = (split_batch(batch, part, 2) for part in range(2))
    np.testing.assert_array_equal(first["query"], [4, 0, 1, 2])
    np.testing.assert_array_equal(second["query"], [0, 0, 4, 2])
    np.testing.assert_array_equal(second["weight"], [[0, 1, 1, 1]])
    np.testing.assert_array_equal(second["items"], [[5, 6, 7, 8]])
    np.testing.assert_array_equal(second["own_item"], batch["own_item"])


def test_what_is_not_defined_across_devices_is_refused() -> None:
    several = TrainingConfig(devices="mirrored")
    memory = [NegativesConfig(kind="in_batch"), NegativesConfig(kind="cross_batch")]
    for model in (ModelConfig(negatives=memory), ModelConfig(frequencies="streaming"), ModelConfig(loss="symmetric")):
        with pytest.raises(ConfigError, match="does not go with"):
            build_strategy(several, model)
    with pytest.raises(ConfigError, match="max_minutes"):
        build_strategy(TrainingConfig(devices="mirrored", max_minutes=1.0), ModelConfig())
