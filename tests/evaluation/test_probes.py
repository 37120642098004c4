from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys_cg.evaluation.probes import answer, freeze_probes, probes_schema, run_probes, thaw_probes
from recsys_cg.geometry import l2_normalise
from recsys_cg.index.exact import ExactRetriever
from recsys_cg.repeats import Repeats
from tests.evaluation.tables import make_items, make_queries

EVENTS = ("click", "purchase")
ITEMS = make_items([3, 2, 1, 1])
QUERIES = make_queries(
    [
        {"time": 50, "targets": [0], "history": [2, 0], "times": [10, 20], "events": [1, 0]},
        {"time": 60, "targets": [0]},
        {"time": 70, "targets": [1], "history": [3], "times": [30], "events": [0]},
    ]
)


def test_probes_are_drawn_from_queries_with_a_history_and_name_items_by_id() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)
    assert probes.schema == probes_schema
    assert probes.column("history_ids").to_pylist() == [["item_2", "item_0"], ["item_3"]]
    assert probes.column("target_ids").to_pylist() == [["item_0"], ["item_1"]]
    assert "user_id" not in probes.schema.names
    assert freeze_probes(QUERIES, ITEMS, EVENTS, count=1, seed=0).num_rows == 1
    assert freeze_probes(QUERIES.slice(1, 1), ITEMS, EVENTS, count=5, seed=0).num_rows == 0


def test_thawed_probes_follow_their_items_to_other_rows_and_forget_departed_ones() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)
    later = ITEMS.take([3, 2, 1])  # item_0 left; item_3 is row 0 now
    queries = thaw_probes(probes, later, EVENTS)
    assert queries.column("history").to_pylist() == [[1], [0]]
    assert queries.column("history_times_us").to_pylist() == [[10], [30]]
    assert queries.column("history_events").to_pylist() == [[1], [0]]
    assert queries.column("history_length").to_pylist() == [1, 1]


def test_thawed_probes_follow_their_events_to_other_codes_and_an_unknown_event_becomes_the_first(tmp_path) -> None:
    pq.write_table(freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0), tmp_path / "probes.parquet")
    probes = pq.read_table(tmp_path / "probes.parquet")
    assert probes.schema.equals(probes_schema)
    codes = {
        events: thaw_probes(probes, ITEMS, events).column("history_events").to_pylist()
        for events in (("cart", "click", "purchase"), ("purchase",))
    }
    assert codes == {("cart", "click", "purchase"): [[2, 1], [1]], ("purchase",): [[0, 0], [0]]}


def line(degrees: list[float]) -> np.ndarray:
    """Unit vectors in the plane."""
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


class HalfBlind:
    """An index that never finds row 1."""

    kind, is_exact, dim = "half blind", False, 2

    def __init__(self, vectors: np.ndarray) -> None:
        self._exact = ExactRetriever(vectors)
        self.size = len(vectors)

    def search(self, queries, k, *, exclude=None, allow=None):
        excluded = [np.append(rows, np.int32(1)) for rows in exclude or [np.empty(0, np.int32)] * len(queries)]
        return self._exact.search(queries, k, exclude=excluded, allow=allow)


def test_a_release_answers_the_probes_without_what_they_met_and_is_measured_against_exact_search() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)  # histories 2, 0 and 3; targets 0 and 1
    vectors = line([0, 10, 60, 80])

    def ask(index):
        return run_probes(
            probes, ITEMS, lambda queries: line([0, 0]), index, ExactRetriever(vectors), events=EVENTS, k=2
        )

    sound, blind = ask(ExactRetriever(vectors)), ask(HalfBlind(vectors))
    assert [ids.to_pylist() for ids in sound.item_ids] == [["item_1", "item_3"], ["item_0", "item_1"]]
    assert [ids.to_pylist() for ids in blind.item_ids] == [["item_3"], ["item_0", "item_2"]]
    np.testing.assert_allclose(sound.nearest_distance, [1 - np.cos(np.radians(10)), 0.0], atol=1e-6)
    np.testing.assert_allclose(sound.query_norms, [1, 1], atol=1e-6)
    assert sound.mean_similarity == pytest.approx(1.0, abs=1e-6)
    assert (sound.index_recall.tolist(), blind.index_recall.tolist()) == ([1.0, 1.0], [0.5, 0.5])
    assert sound.recall.tolist() == [0.0, 1.0]  # the first probe's target stands in its own history: not answered
    assert blind.recall.tolist() == [0.0, 0.0]


def test_where_what_was_met_is_answered_the_probes_are_ranked_with_its_bonus() -> None:
    probes = freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0)  # histories 2, 0 and 3; targets 0 and 1
    vectors = line([0, 10, 60, 80])

    def ask(bonus: float):
        exact, repeats = ExactRetriever(vectors), Repeats(vectors, bonus, 2)
        return run_probes(
            probes, ITEMS, lambda queries: line([0, 0]), exact, exact, events=EVENTS, k=2, repeats=repeats
        )

    plain, lifted = ask(0.0), ask(2.0)
    assert [ids.to_pylist() for ids in plain.item_ids] == [["item_0", "item_1"], ["item_0", "item_1"]]
    assert [ids.to_pylist() for ids in lifted.item_ids] == [["item_0", "item_2"], ["item_3", "item_0"]]
    assert (plain.recall.tolist(), lifted.recall.tolist()) == ([1.0, 1.0], [1.0, 0.0])
    assert lifted.index_recall.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(lifted.nearest_distance, [0.0, 0.0], atol=1e-6)  # of similarities without the bonus


def test_probes_of_an_empty_release_and_no_probes_give_no_made_up_figure() -> None:
    empty = ITEMS.slice(0, 0)
    vectors = np.zeros((0, 2), np.float32)
    queries = thaw_probes(freeze_probes(QUERIES, ITEMS, EVENTS, count=10, seed=0), empty, EVENTS)
    nothing = answer(queries, empty, line([0, 5]), ExactRetriever(vectors), ExactRetriever(vectors), k=3)
    assert [len(ids) for ids in nothing.item_ids] == [0, 0]
    assert np.isnan(nothing.nearest_distance).all()
    assert np.isnan(nothing.index_recall).all()
    assert np.isnan(nothing.recall).all()
    none = answer(
        queries.slice(0, 0),
        ITEMS,
        line([]),
        ExactRetriever(line([0, 1, 2, 3])),
        ExactRetriever(line([0, 1, 2, 3])),
        k=3,
    )
    assert (none.item_ids, none.mean_similarity) == ([], None)


def test_many_probes_are_asked_in_batches_with_the_same_answers() -> None:
    rng = np.random.default_rng(3)
    vectors = l2_normalise(rng.normal(size=(4, 3)))
    rows = [{"time": 50 + n, "targets": [0], "history": [n % 4], "times": [1], "events": [0]} for n in range(600)]
    queries = make_queries(rows)
    asked = l2_normalise(rng.normal(size=(600, 3)))
    exact = ExactRetriever(vectors)
    whole = answer(queries, ITEMS, asked, exact, exact, k=2)
    for place in (0, 255, 256, 599):
        one = answer(queries.slice(place, 1), ITEMS, asked[place : place + 1], exact, exact, k=2)
        assert one.item_ids[0].equals(whole.item_ids[place])
        assert one.nearest_distance[0] == pytest.approx(whole.nearest_distance[place], abs=1e-6)
