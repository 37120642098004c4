"""Raw and debiased recall against the truth of a simulated world, where the incumbent's choice is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from recsys_cg import artifacts
from recsys_cg.config import EvaluationConfig, load_config
from recsys_cg.data.dataset import Dataset
from recsys_cg.data.worlds import Truth, WorldConfig, simulate_world
from recsys_cg.evaluation import System, evaluate
from recsys_cg.evaluation.baselines import fit_baselines
from recsys_cg.evaluation.queries import EXCLUDE, prepare_queries
from recsys_cg.evaluation.ragged import Ragged

pytestmark = pytest.mark.slow

CONFIG = EvaluationConfig(
    k=[20, 100], primary_k=100, bootstrap_samples=200, baselines=["popularity", "item_knn", "ease", "ials"]
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Truth]:
    from recsys_cg.beam.dataset import build_dataset

    folder = tmp_path_factory.mktemp("simulated")
    parameters = WorldConfig(events=150_000, users=3000, items=1500, epochs=30, random_share=0.1, seed=3)
    simulate_world(folder / "world", parameters)
    (folder / "dataset").mkdir()
    info = build_dataset(load_config(folder / "world" / "project.toml"), folder / "dataset")
    artifacts.seal(folder / "dataset", kind="dataset", key="world", info=info)
    return Dataset.open(folder / "dataset"), Truth.open(folder / "world")


def slates_as_queries(dataset: Dataset, count: int) -> pa.Table:
    """Sample what the incumbent showed in the test window, with the history that the user had at that time.

    Every slate counts alike, whether it was clicked or not. A slate's history is that of its user's next query; the
    few slates after a user's last click are left out.
    """
    queries, shown = dataset.queries("test"), dataset.impressions()
    assert shown is not None
    start = dataset.manifest.info["windows"]["test_from_us"]
    slates = shown.filter(pc.greater_equal(shown["time_us"], start)).group_by(["user_id", "time_us"]).aggregate([])
    sample = slates.to_pandas().sample(count, random_state=0).sort_values("time_us")
    asked = queries.select(["user_id", "time_us"]).to_pandas().rename(columns={"time_us": "asked_us"})
    asked["row"] = np.arange(len(asked))
    asked = asked.sort_values("asked_us")
    joined = pd.merge_asof(sample, asked, left_on="time_us", right_on="asked_us", by="user_id", direction="forward")
    joined = joined[joined["row"].notna()]
    table = queries.take(joined["row"].to_numpy().astype(int))
    times = pa.array(joined["time_us"].to_numpy(), pa.int64())
    return table.set_column(table.schema.get_field_index("time_us"), queries.schema.field("time_us"), times)


def true_recall(systems: list[System], dataset: Dataset, truth: Truth, ks: list[int]) -> dict[tuple[str, int], float]:
    """Share of all true relevance, over slates and the items that were candidates, that lies in the first k."""
    ids = dataset.items["item_id"].to_pylist()
    chosen = prepare_queries(
        slates_as_queries(dataset, 4000), dataset.items, filter_seen=True, max_queries=10**6, seed=0
    )
    found, total = dict.fromkeys(((s.name, k) for s in systems for k in ks), 0.0), 0.0
    for batch in chosen.batches(500):
        relevance = truth.relevance(batch.table["user_id"].to_pylist(), ids)
        excluded = Ragged.from_column(batch.table, EXCLUDE)
        relevance[excluded.owners, excluded.values] = 0.0
        if batch.allow is not None:
            relevance[:, ~batch.allow] = 0.0
        total += relevance.sum()
        for system in systems:
            lists = system.recommend(batch.table, max(ks), batch.allow)
            gained = np.where(lists >= 0, np.take_along_axis(relevance, np.maximum(lists, 0), axis=1), 0.0)
            for k in ks:
                found[system.name, k] += gained[:, :k].sum()
    return {key: value / total for key, value in found.items()}


def test_debiased_recall_comes_closer_to_the_truth_than_raw_recall(world: tuple[Dataset, Truth]) -> None:
    dataset, truth = world
    test = dataset.queries("test")
    systems, skipped = fit_baselines(
        dataset.items, dataset.sequences(), CONFIG, validation=dataset.queries("validation"), test=test, seed=0
    )
    assert not skipped
    expected = true_recall(systems, dataset, truth, CONFIG.k)
    common = (systems, test, dataset.items, dataset.sequences(), CONFIG, 0)
    logged = evaluate(*common, impressions=dataset.impressions())["systems"]
    modelled = evaluate(*common)["systems"]
    print()
    for (name, k), value in expected.items():
        raw = logged[name]["overall"][f"recall@{k}"]["mean"]
        ips = logged[name]["overall"][f"recall_ips@{k}"]["mean"]
        model = modelled[name]["overall"][f"recall_ips@{k}"]["mean"]
        random = logged[name]["random_exposure"][f"recall@{k}"]
        print(f"{name:11s} @{k:<4d} truth {value:.3f} raw {raw:.3f} logged ips {ips:.3f} modelled ips {model:.3f} "
              f"random slice {random['mean']:.3f} {random['ci95']}")  # fmt: skip
        assert abs(ips - value) < 0.15 * abs(raw - value)
        assert abs(model - value) < 0.5 * abs(raw - value)
        low, high = random["ci95"]
        assert low - 0.02 <= value <= high + 0.02
    # Beside the factor model raw recall flatters the bestseller list, debiased recall hardly does.
    pair = ("popularity", "ials")
    raw, debiased, true = (
        first / second
        for first, second in (
            [logged[name]["overall"]["recall@100"]["mean"] for name in pair],
            [logged[name]["overall"]["recall_ips@100"]["mean"] for name in pair],
            [expected[name, 100] for name in pair],
        )
    )
    assert logged["popularity"]["overall"]["recall_ips@20"]["mean"] < logged["ials"]["overall"]["recall_ips@20"]["mean"]
    assert expected["popularity", 20] < expected["ials", 20]
    assert raw > true + 0.05
    assert abs(debiased - true) < 0.5 * (raw - true)
