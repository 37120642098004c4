"""The log is what the documented law says: compared with closed forms, with margins of five standard errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from recsys_cg.data.worlds import Truth, WorldConfig, simulate_world

STILL = {"permanent_share": 1.0, "new_user_share": 0.0, "epochs": 3, "tags": 20}


def _impressions(directory: Path, **parameters: object) -> pd.DataFrame:
    simulate_world(directory, WorldConfig(**{"seed": 11, **STILL, **parameters}))  # type: ignore[arg-type]
    return pd.concat(pq.read_table(part).to_pandas() for part in sorted((directory / "impressions").iterdir()))


def _chi_square_is_plausible(counts: np.ndarray, expected: np.ndarray) -> bool:
    """A chi-square of f degrees of freedom has mean f and variance 2 f."""
    freedom = len(counts) - 1
    statistic = ((counts - expected) ** 2 / expected).sum()
    return bool(abs(statistic - freedom) < 5 * np.sqrt(2 * freedom))


def test_without_taste_and_greed_popularity_is_exactly_zipf(tmp_path: Path) -> None:
    shown = _impressions(
        tmp_path / "w",
        events=60_000, users=500, items=400, categories=6,
        incumbent_taste=0.0, incumbent_greed=0.0, random_share=0.0, zipf_exponent=1.0,
    )  # fmt: skip
    truth = Truth.open(tmp_path / "w")
    counts = shown["item_id"].value_counts().reindex(truth.item_ids.to_pylist(), fill_value=0).to_numpy()
    harmonic = sum(1 / rank for rank in range(1, 401))
    np.testing.assert_allclose(np.sort(truth.popularity)[::-1], [1 / rank for rank in range(1, 401)])
    assert _chi_square_is_plausible(counts, len(shown) * truth.popularity / harmonic)
    top = np.sort(counts)[::-1][:50]
    slope = np.polyfit(np.log(np.arange(1, 51)), np.log(top), 1)[0]
    assert abs(slope + 1.0) < 0.05


def test_random_exposure_is_uniform_over_items_slots_and_users(tmp_path: Path) -> None:
    shown = _impressions(tmp_path / "w", events=60_000, users=50, items=300, random_share=0.4, activity_spread=0.0)
    random = shown[shown["random"]]
    assert abs(len(random) / len(shown) - 0.4) < 5 * np.sqrt(0.24 / len(shown))
    first_slots = random[random["position"] == 1]  # slots of one slate share their user
    for rows, column, distinct in (
        (random, "item_id", 300),
        (random, "position", 5),
        (first_slots, "user_id", 50),
    ):
        counts = rows[column].value_counts().to_numpy()
        assert len(counts) == distinct
        assert _chi_square_is_plausible(counts, np.full(distinct, len(rows) / distinct))
    assert set(random["policy"]) == {"uniform"}
    assert set(shown[~shown["random"]]["policy"]) == {"incumbent"}
    np.testing.assert_allclose(random["policy_propensity"], 1 / 300)


def test_each_slot_shows_each_item_as_often_as_its_propensity_says(tmp_path: Path) -> None:
    shown = _impressions(
        tmp_path / "w", events=200_000, users=2, items=12, categories=3, epochs=1, random_share=0.1, incumbent_greed=1.0
    )
    slates = shown[shown["position"] == 1].groupby("user_id").size()
    groups = shown.groupby(["user_id", "position", "item_id"])["propensity"].agg(["size", "min", "max"]).reset_index()
    assert len(groups) == 2 * 5 * 12
    np.testing.assert_allclose(groups["min"], groups["max"], rtol=1e-12)
    np.testing.assert_allclose(groups.groupby(["user_id", "position"])["min"].sum(), 1.0, rtol=1e-9)
    n, p = slates.loc[groups["user_id"]].to_numpy(), groups["min"].to_numpy()
    assert (np.abs(groups["size"] - n * p) < 5 * np.sqrt(n * p * (1 - p))).all()
    differs = groups.groupby(["user_id", "item_id"])["min"].agg(np.ptp)
    assert differs.max() > 0.01


def test_the_incumbent_alone_is_told_by_the_policys_own_propensity(tmp_path: Path) -> None:
    shown = _impressions(tmp_path / "w", events=20_000, users=20, items=50, categories=4, random_share=0.2)
    theirs = shown[~shown["random"]]
    np.testing.assert_allclose(theirs["propensity"], 0.2 / 50 + 0.8 * theirs["policy_propensity"], rtol=1e-12)


def test_inverse_propensities_average_to_the_number_of_items_that_are_there(tmp_path: Path) -> None:
    shown = _impressions(tmp_path / "w", events=60_000, users=500, items=40, categories=4, random_share=0.3)
    inverse = 1.0 / shown["propensity"].to_numpy()
    assert abs(inverse.mean() - 40.0) < 5 * inverse.std() / np.sqrt(len(inverse))


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_clicks_are_relevance_times_examination(tmp_path: Path, exponent: float) -> None:
    shown = _impressions(
        tmp_path / "w", events=60_000, users=300, items=200, random_share=0.5, examination_exponent=exponent
    )
    truth = Truth.open(tmp_path / "w")
    relevance = truth.relevance_of_pairs(shown["user_id"].tolist(), shown["item_id"].tolist())
    chance = relevance * shown["position"].to_numpy().astype(float) ** -exponent
    for mask in [shown["random"], ~shown["random"], *(shown["position"] == p for p in range(1, 6)), relevance > 0.7]:
        clicks, p = shown["clicked"].to_numpy()[mask], chance[mask]
        assert len(p) > 500
        assert abs(clicks.sum() - p.sum()) < 5 * np.sqrt((p * (1 - p)).sum())


def test_the_incumbent_shows_what_users_like_more_than_chance_does(tmp_path: Path) -> None:
    shown = _impressions(tmp_path / "w", events=30_000, users=300, items=200, random_share=0.5)
    truth = Truth.open(tmp_path / "w")
    shown["relevance"] = truth.relevance_of_pairs(shown["user_id"].tolist(), shown["item_id"].tolist())
    by_policy = shown.groupby("policy")["relevance"].mean()
    assert by_policy["incumbent"] > 1.1 * by_policy["uniform"]


def test_content_tells_taste_as_much_as_declared(tmp_path: Path) -> None:
    spread = {}
    for strength in (0.0, 1.0):
        simulate_world(
            tmp_path / str(strength), WorldConfig(users=200, items=600, events=100, content_strength=strength)
        )
        truth = Truth.open(tmp_path / str(strength))
        items = pq.read_table(tmp_path / str(strength) / "items.parquet").to_pandas()
        logits = np.log(1 / (1 / truth.relevance(truth.user_ids.to_pylist(), items["item_id"].tolist()) - 1))
        within = pd.DataFrame(logits.T).groupby(items["category"]).var().mean().mean()
        spread[strength] = within / pd.DataFrame(logits.T).var().mean()
    assert spread[0.0] > 0.95
    assert spread[1.0] < 0.5
