"""Context of a request, from its values to the vector.

The tower of `tests.serving.tower` adds ten times the unit vector of place c - 1 for each code c from 1 to 4.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.data.context import ContextFeature, ContextSet
from recsys_cg.errors import ArtifactCorruptError, SearchError
from recsys_cg.schema import queries_schema
from recsys_cg.serving.answer import Request
from recsys_cg.serving.context import FROM_TIME, context_inputs, read_context
from recsys_cg.serving.encoder import EncoderContract, QueryEncoder
from recsys_cg.serving.lookup import CandidateLookup
from recsys_cg.serving.queries import encode_queries
from recsys_cg.serving.release import Release
from tests.serving.server import Server
from tests.serving.world import DIM, MAX_HISTORY, World, publish_release, write_release

DEVICE = ContextFeature("device", "categorical", ("pc", "tv", "7"), hash_buckets=2)
HOUR = ContextFeature("hour", "hour_of_day")
CONTEXT = ContextSet((DEVICE, HOUR))
DAY = ContextFeature("day", "day_of_week", time_zone="America/Sao_Paulo")
NOON = "2026-01-01T12:00:00Z"
EXTRA = {"schema": 2, "context": CONTEXT.to_list()}


@pytest.fixture(scope="session")
def context_tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("context_tower")
    program = [sys.executable, Path(__file__).with_name("tower.py"), directory, str(MAX_HISTORY), str(DIM), "2"]
    subprocess.run(program, check=True, capture_output=True, timeout=240)
    return directory / "query.tflite"


@pytest.fixture(scope="session")
def context_release(context_tower: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("context_release") / "whole"
    write_release(path, World(context_tower, contract=EXTRA))
    return path


@pytest.fixture(scope="session")
def lookup(context_release: Path) -> CandidateLookup:
    return CandidateLookup.open(context_release)


def first(lookup: CandidateLookup, **request: Any) -> str:
    return (
        lookup.candidates(**{"history": ["c"], "k": 1, "at": NOON, "deny_seen": False, **request}).candidates[0].item_id
    )


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        (None, (0, FROM_TIME)),
        ({}, (0, FROM_TIME)),
        ({"device": "tv"}, (2, FROM_TIME)),
        ({"device": " tv ", "hour": 23}, (2, 24)),
        ({"device": "7", "hour": "0"}, (3, 1)),
        ({"device": 7}, (3, FROM_TIME)),
        ({"device": 7.0}, (3, FROM_TIME)),
        ({"device": None, "hour": None}, (0, FROM_TIME)),
        ({"device": "", "hour": ""}, (0, FROM_TIME)),
        ({"device": "  "}, (0, FROM_TIME)),
    ],
)
def test_values_become_codes_and_what_is_not_said_is_not_known(given: dict[str, Any] | None, codes: tuple[int, ...]):
    assert read_context(CONTEXT, given) == codes


@pytest.mark.parametrize("value", ["fridge", "é" * 300, "\ud800", True, 1.5, -1, 10**30, 1e-7])
def test_an_unknown_value_has_the_bucket_that_training_would_have_given_it(value: Any):
    (code, _) = read_context(CONTEXT, {"device": value})
    assert code in (4, 5)
    if isinstance(value, bool | float) or (isinstance(value, int) and value < 2**62):
        from recsys_cg.data.identifiers import to_strings

        assert code == DEVICE.encode(to_strings(pa.array([value]), "device"))[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devise": "tv"}, "did you mean 'device'"),
        ({"zzz": 1}, "the release has: device, hour"),
        ({1: "tv"}, "no context feature '1'"),
        ({"hour": 24}, "0 to 23, not '24'"),
        ({"hour": -1}, "0 to 23"),
        ({"hour": "noon"}, "0 to 23"),
        ({"hour": True}, "0 to 23"),
        ({"hour": 3.0}, "0 to 23"),
        ({"hour": "9" * 5000}, "0 to 23"),
        ({"device": ["tv"]}, "not list"),
        ({"device": float("nan")}, "no value"),
        ({"device": "x" * 5000}, "5,000 characters"),
        ([("device", "tv")], "not list"),
        ("device", "not str"),
        ([], "not list"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: Any, message: str):
    with pytest.raises(SearchError, match=message):
        read_context(CONTEXT, given)


def test_hour_and_day_are_those_of_the_request_unless_given():
    sunday_night = 1_506_826_740_000_000  # 2017-10-01T02:59:00Z, Saturday in Sao Paulo
    at = np.array([sunday_night, sunday_night, 0])
    found = context_inputs(ContextSet((HOUR, DAY)), [(FROM_TIME, FROM_TIME), (5, FROM_TIME), (FROM_TIME, 1)], at)
    np.testing.assert_array_equal(found, [[3, 6], [5, 6], [1, 1]])
    assert found.dtype == np.int32
    assert context_inputs(ContextSet((HOUR,)), [], np.zeros(0, np.int64)).shape == (0, 1)


def test_the_context_decides_beside_the_history(lookup: CandidateLookup):
    assert first(lookup) == "c"  # noon has a code that this tower does not read
    assert first(lookup, context={"device": "pc"}) == "a"
    assert first(lookup, context={"device": "tv"}) == "b"
    assert first(lookup, context={"hour": 0}) == "a"
    assert first(lookup, context={"hour": 1}) == "b"
    assert first(lookup, at="2026-01-01T01:30:00Z") == "b"  # read off the time
    assert first(lookup, at="2026-01-01T01:30:00Z", context={"hour": 12}) == "c"


def test_in_a_batch_each_request_has_its_own_context(lookup: CandidateLookup):
    contexts: list[dict[str, Any] | None] = [None, {"device": "pc"}, {"device": "tv"}] * 20
    requests = [Request(history=["c"], k=1, at=NOON, deny_seen=False, context=context) for context in contexts]
    found = [answer.candidates[0].item_id for answer in lookup.candidates_batch(requests)]
    assert found == ["c", "a", "b"] * 20


def test_a_stored_history_and_a_fallback_take_a_context_too(lookup: CandidateLookup):
    assert first(lookup, history=None, user_id="ann", context={"device": "tv"}) == "b"
    assert lookup.candidates(context={"device": "tv"}).fallback == "empty_history"
    with pytest.raises(SearchError, match="did you mean"):
        lookup.candidates(context={"devic": "tv"})
    assert lookup.similar("a", 1).candidates


def test_a_release_without_context_says_so(release_path: Path):
    plain = CandidateLookup.open(release_path)
    with pytest.raises(SearchError, match="'device' was given, and this release was trained without context"):
        plain.candidates(history=["a"], context={"device": "tv"})
    assert plain.candidates(history=["a"], context={}).candidates
    assert len(plain.release.encoder.contract.context) == 0


def test_queries_of_a_dataset_are_encoded_in_their_context(context_release: Path):
    release = Release.open(context_release)
    row = {
        "user_id": "u", "time_us": 3_600_000_000 * 12, "targets": [0], "history": [2], "history_times_us": [0],
        "history_events": [0], "history_length": 1, "seen": [2],
    }  # fmt: skip
    plain = pa.Table.from_pylist([row] * 3, schema=queries_schema)
    coded = plain.append_column("c_device", pa.array([0, 1, 2], pa.int32()))
    vectors = encode_queries(release.encoder, release.history_vectors, coded)
    lookup = CandidateLookup(release)
    for vector, device in zip(vectors, (None, "pc", "tv"), strict=True):
        request = Request(history=[{"item": "c", "time": 0}], at=3600 * 12, context={"device": device})
        from recsys_cg.serving.planning import make_plan

        np.testing.assert_allclose(lookup._encode([make_plan(release, request)])[0], vector, atol=1e-6)
    assert np.abs(vectors[1] - vectors[0]).max() > 0.1
    untold = encode_queries(release.encoder, release.history_vectors, plain)
    np.testing.assert_allclose(untold, np.repeat(vectors[:1], 3, axis=0), atol=1e-6)


def test_the_encoder_checks_what_it_is_given(context_release: Path, release_path: Path):
    encoder = QueryEncoder.open(context_release / "encoder")
    one = {
        "history": np.zeros((1, MAX_HISTORY, DIM), np.float32),
        "gap_s": np.zeros((1, MAX_HISTORY), np.float32),
        "event": np.zeros((1, MAX_HISTORY), np.int32),
        "length": np.zeros(1, np.int32),
    }
    assert encoder.encode(**one).shape == (1, DIM)
    for wrong in (np.zeros((1, 1), np.int32), np.zeros((2, 2), np.int32), np.zeros((1, 2), np.int64)):
        with pytest.raises(SearchError, match="context is"):
            encoder.encode(**one, context=wrong)
    for codes in ([[-1, 0]], [[6, 0]], [[0, 25]]):
        with pytest.raises(SearchError, match="context code"):
            encoder.encode(**one, context=np.array(codes, np.int32))
    with pytest.raises(SearchError, match="reads none"):
        QueryEncoder.open(release_path / "encoder").encode(**one, context=np.zeros((1, 0), np.int32))


@pytest.mark.parametrize(
    "contract",
    [
        {"schema": 1, "context": CONTEXT.to_list()},
        {"schema": 2},
        {"schema": 2, "context": [{"name": "device"}]},
        {"schema": 2, "context": 3},
        {"schema": 2, "context": ContextSet((DEVICE,)).to_list()},
    ],
)
def test_a_contract_that_does_not_fit_the_tower_is_refused(
    context_tower: Path, tmp_path: Path, contract: dict[str, Any]
):
    write_release(tmp_path / "r", World(context_tower, contract=contract))
    with pytest.raises(ArtifactCorruptError):
        Release.open(tmp_path / "r")


def test_a_contract_says_its_features(context_release: Path):
    assert EncoderContract.read(context_release / "encoder").context == CONTEXT


def test_the_service_takes_a_context(context_tower: Path, tmp_path: Path):
    publish_release(tmp_path / "store", World(context_tower, contract=EXTRA))
    asked = {"history": ["c"], "k": 1, "at": NOON, "deny_seen": False}
    with Server(tmp_path / "store") as server:
        for context, item in ((None, "c"), ({"device": "pc"}, "a"), ({"hour": 1}, "b"), ({"device": None}, "c")):
            _, answer, _ = server.ask("POST", "/v1/candidates", {**asked, "context": context})
            assert answer["candidates"][0]["item_id"] == item
        body = {"requests": [{**asked, "context": {"device": "tv"}}, asked]}
        _, many, _ = server.ask("POST", "/v1/candidates:batch", body)
        assert [one["candidates"][0]["item_id"] for one in many["answers"]] == ["b", "c"]
        for context, message in (
            ({"devise": "pc"}, "did you mean 'device'"),
            ({"hour": 99}, "0 to 23"),
            ({"device": []}, "context.device"),
            ({str(number): 1 for number in range(65)}, "context"),
        ):
            status, answer, _ = server.ask("POST", "/v1/candidates", {**asked, "context": context})
            assert (status, answer["error"]["code"]) == (422, "invalid")
            assert message in answer["error"]["message"]


def test_the_command_line_takes_a_context(context_release: Path, capsys: pytest.CaptureFixture[str]):
    import json

    from typer.testing import CliRunner

    from recsys_cg.cli.main import app

    start = ["lookup", "--release", str(context_release), "--history", "c", "-k", "1", "--json", "--context", "hour=12"]
    found = CliRunner().invoke(app, [*start, "--context", "device=tv"])
    assert json.loads(found.stdout.splitlines()[-1])["candidates"][0]["item_id"] == "b"
    for wrong in (["device"], ["=tv"], ["device=tv", "device=pc"]):
        flags = [part for one in wrong for part in ("--context", one)]
        assert CliRunner().invoke(app, [*start, *flags]).exit_code != 0
