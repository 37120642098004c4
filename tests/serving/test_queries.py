from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.errors import SearchError
from recsys_cg.schema import queries_schema
from recsys_cg.serving.answer import Request
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.planning import make_plan
from recsys_cg.serving.queries import encode_queries as encode
from recsys_cg.serving.release import Release

HISTORIES: list[list[tuple[int, int, int]]] = [
    [(0, 1_000_000, 0), (1, 2_000_000, 1)],
    [],
    [(2, 5_000_000, 1)],
    [(row, row * 1_000_000, 0) for row in (0, 1, 2, 3, 4, 5)],
]
AT_US = 9_000_000


def encode_queries(release: Release, queries: pa.Table, **what: object) -> np.ndarray:
    return encode(release.encoder, release.history_vectors, queries, **what)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def release(release_path: Path) -> Release:
    return Release.open(release_path)


def table(histories: list[list[tuple[int, int, int]]]) -> pa.Table:
    columns = {
        "user_id": ["u"] * len(histories),
        "time_us": [AT_US] * len(histories),
        "targets": [[0]] * len(histories),
        "history": [[row for row, _, _ in one] for one in histories],
        "history_times_us": [[time for _, time, _ in one] for one in histories],
        "history_events": [[event for _, _, event in one] for one in histories],
        "history_length": [len(one) for one in histories],
        "seen": [[row for row, _, _ in one] for one in histories],
    }
    return pa.table(columns, schema=queries_schema)


def test_queries_are_the_vectors_that_a_lookup_searches_with(release: Release):
    lookup = CandidateLookup(release)
    events = ["buy", "view"]
    names = release.ids.names(np.arange(len(release)))
    found = encode_queries(release, table(HISTORIES))
    for history, vector in zip(HISTORIES, found, strict=True):
        given = [{"item": names[row], "time": time / 1e6, "event": events[event]} for row, time, event in history]
        plan = make_plan(release, Request(history=given, at=AT_US / 1e6))
        assert vector == pytest.approx(lookup._encode([plan])[0], abs=1e-6)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-6)


def test_a_slice_and_chunks_give_the_same(release: Release):
    whole = encode_queries(release, table(HISTORIES))
    chunked = pa.concat_tables([table(HISTORIES[:1]), table(HISTORIES[1:])])
    assert encode_queries(release, chunked) == pytest.approx(whole, abs=1e-6)
    assert encode_queries(release, table(HISTORIES).slice(2)) == pytest.approx(whole[2:], abs=1e-6)


def test_rows_are_mapped_and_items_that_are_gone_are_left_out(release: Release):
    row_map = np.array([3, -1, 0], np.int32)
    mapped = encode_queries(
        release, table([[(0, 0, 0), (1, 1_000_000, 0), (2, 2_000_000, 0)], [(1, 0, 0)]]), row_map=row_map
    )
    direct = encode_queries(release, table([[(3, 0, 0), (0, 2_000_000, 0)], []]))
    assert mapped == pytest.approx(direct, abs=1e-6)


def test_more_queries_than_a_batch_and_none(release: Release):
    many = encode_queries(release, table([HISTORIES[place % 4] for place in range(2500)]))
    assert many[2496:] == pytest.approx(many[:4], abs=1e-6)
    assert encode_queries(release, table([])).shape == (0, 4)


def test_a_row_outside_the_catalogue_is_refused(release: Release):
    for row in (-1, 9):
        with pytest.raises(SearchError, match="expected 0 to 8"):
            encode_queries(release, table([[(row, 0, 0)]]))
