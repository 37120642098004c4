"""What the evaluation ranks for a release is what a lookup in it answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_cg.evaluation.queries import prepare_queries
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.trending import Trending
from recsys_cg.trends import FadingCounts
from recsys_cg.workflow.reporting import choose_examples
from recsys_cg.workflow.under_test import ReleaseUnderTest
from tests.evaluation.tables import make_items, make_queries
from tests.serving.world import EVENTS, MAX_HISTORY, US, Item, World, write_release

ITEMS, NEW = 60, 8  # items of the dataset, and how many of them the release lacks; it has four others
NAMES = [f"item_{place}" for place in range(ITEMS)]
HALF_LIFE_S = 20


def opens_s(place: int) -> int | None:
    return 100 if place % 10 == 3 else None


def closes_s(place: int) -> int | None:
    return 200 if place % 10 == 5 else None


class Log:
    """Interactions of the dataset's items at every second, of which few are asked for often."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        times = np.sort(rng.integers(0, 300, 2_000)) * US
        rows = np.minimum(rng.geometric(0.05, 2_000) - 1, ITEMS - 1).astype(np.int32)
        self.counts = FadingCounts(times, rows, half_life_hours=HALF_LIFE_S / 3600)

    def at(self, at_us: int) -> Trending:
        (trend,) = self.counts.at(np.array([at_us]))
        return Trending([NAMES[row] for row in trend.rows], trend.counts)


def open_release(
    tower: Path, directory: Path, *, bonus: float, filter_seen: bool, trend_bonus: float | None = None
) -> CandidateLookup:
    rng = np.random.default_rng(0)
    known = [(name, opens_s(place), closes_s(place)) for place, name in enumerate(NAMES[: ITEMS - NEW])]
    others = [(f"old_{place}", None, 0) for place in range(4)]  # unknown to the dataset, so not to be answered either
    items = [
        Item(name, rng.normal(size=4), train_count=int(rng.integers(1, 50)), last_seen_s=1, bucket="head",
             from_s=from_s, until_s=until_s)
        for name, from_s, until_s in (*known, *others)
    ]  # fmt: skip
    shuffled = [items[place] for place in rng.permutation(len(items))]
    contract = {"schema": 3, "repeat_bonus": bonus} if bonus else {}
    info: dict[str, object] = {"filter_seen": filter_seen}
    if trend_bonus is not None:
        info["trends"] = {"half_life_hours": HALF_LIFE_S / 3600, "bonus": trend_bonus}
    world = World(tower, items=shuffled, sequences=None, contract=contract, info=info)
    write_release(directory, world)
    return CandidateLookup.open(directory, trends=Log())


def draw_queries(longest: int) -> list[dict[str, object]]:
    rng = np.random.default_rng(1)
    rows: list[dict[str, object]] = []
    for user in range(120):
        time_s, events = int(rng.choice([50, 99, 100, 150, 199, 200, 300])), int(rng.integers(0, longest + 1))
        rows.append(
            {
                "user": f"u{user}", "time": time_s * US, "targets": rng.integers(0, ITEMS, 3).tolist(),
                "history": rng.integers(0, ITEMS, events).tolist(), "events": rng.integers(0, 2, events).tolist(),
                "times": sorted(rng.integers(0, time_s * US, events).tolist()),
            }
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("longest", [MAX_HISTORY, 4 * MAX_HISTORY], ids=["short", "long"])
@pytest.mark.parametrize("trend_bonus", [None, 0.0, 0.2])
@pytest.mark.parametrize(("bonus", "filter_seen"), [(0.0, True), (0.0, False), (0.3, False), (2.0, False), (0.3, True)])
def test_lists_are_those_of_a_lookup(
    tower: Path, tmp_path: Path, bonus: float, longest: int, trend_bonus: float | None, *, filter_seen: bool
):
    lookup = open_release(tower, tmp_path / "release", bonus=bonus, filter_seen=filter_seen, trend_bonus=trend_bonus)
    lifetimes = [(opens_s(place), closes_s(place)) for place in range(ITEMS)]
    opens, closes = ([None if one is None else one * US for one in ends] for ends in zip(*lifetimes, strict=True))
    items = make_items([1] * ITEMS, available_from=opens, available_until=closes)
    under_test = ReleaseUnderTest(lookup.release, items, EVENTS, count=lambda hours: Log().counts)
    system = under_test.system("two_tower", 0)
    queries = prepare_queries(
        make_queries(draw_queries(longest)), items, filter_seen=filter_seen, max_queries=10_000, seed=0
    )
    compared = 0
    for k in (1, 10, 100):
        for batch in queries.batches(50):
            lists = system.recommend(batch.table, k, batch.allow)
            for row, found in zip(batch.table.to_pylist(), lists, strict=True):
                happened = zip(row["history"], row["history_times_us"], row["history_events"], strict=True)
                history = [{"item": NAMES[i], "time": at / US, "event": EVENTS[e]} for i, at, e in happened]
                answer = lookup.candidates(history=history, k=k, at=row["time_us"] / US)
                assert [one.item_id for one in answer.candidates] == [NAMES[i] for i in found if i >= 0]
                compared += 1
    assert compared > 300


@pytest.mark.parametrize("trend_bonus", [None, 0.2])
@pytest.mark.parametrize(("bonus", "filter_seen"), [(0.0, True), (0.3, False)])
def test_examples_of_the_report_are_answers_of_a_lookup(
    tower: Path, tmp_path: Path, bonus: float, trend_bonus: float | None, *, filter_seen: bool
):
    lookup = open_release(tower, tmp_path / "release", bonus=bonus, filter_seen=filter_seen, trend_bonus=trend_bonus)
    items = make_items([1] * ITEMS)
    under_test = ReleaseUnderTest(lookup.release, items, EVENTS, count=lambda hours: Log().counts)
    asked = {str(row["user"]): row for row in draw_queries(MAX_HISTORY) if row["history"]}
    examples = choose_examples(under_test, make_queries(list(asked.values())), count=50, seed=0)
    assert len(examples) == 50
    for example in examples:
        row = asked[example["user"]]
        happened = zip(row["history"], row["times"], row["events"], strict=True)  # type: ignore[call-overload]
        history = [{"item": NAMES[i], "time": at / US, "event": EVENTS[e]} for i, at, e in happened]
        answer = lookup.candidates(history=history, k=len(example["retrieved"]), at=row["time"] / US)  # type: ignore[operator]
        assert [one.item_id for one in answer.candidates] == [one["item_id"] for one in example["retrieved"]]
