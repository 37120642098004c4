"""The project file is checked whole, and every fault names file, key and remedy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from recsys_cg import config as sections
from recsys_cg.config import Config, load_config
from recsys_cg.errors import ConfigError, UnknownKeyError

MINIMAL = '[interactions]\npath = "events.csv"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_minimal_file_is_enough_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL))
    assert config.interactions.path == str(tmp_path / "events.csv")
    assert config.model.dim == 64


def test_urls_stay_as_they_are(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, '[interactions]\npath = "s3://bucket/events"\n'))
    assert config.interactions.path == "s3://bucket/events"


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("[model]\ndims = 3\n", r"shop\.toml: model\.dims: unknown key; did you mean 'dim'\?"),
        ("[modle]\ndim = 3\n", r"shop\.toml: modle: unknown key; did you mean 'model'\?"),
        ("[model]\nepochs = 3\n", r"model\.epochs: unknown key; it belongs in \[training\]"),
        ("[[model.negatives]]\nkind = 'uniform'\ncont = 4\n", r"negatives\.0\.cont: unknown key; did you mean 'count'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path, extra: str, expected: str) -> None:
    with pytest.raises(UnknownKeyError, match=expected):
        load_config(write(tmp_path, MINIMAL + extra))


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("[model]\ndim = 'many'\n", r"model\.dim: .*valid integer.*'many'"),
        ("[model]\ndim = 1\n", r"model\.dim: .*greater than or equal to 2.*got 1"),
        ("[model]\ndim = '16'\n", r"model\.dim: .*valid integer.*'16'"),
        ("[training]\nepochs = true\n", r"training\.epochs: .*valid integer.*True"),
        ("[training]\nmax_minutes = inf\n", r"training\.max_minutes: .*finite.*inf"),
        ("time_zone = 'Mars/X'\n", r"interactions\.time_zone: no such time zone"),
        ("user = 'item_id'\n", r"interactions: user and item name one column, 'item_id'"),
        ("event = 'kind'\nevent_weights = {a = inf}\n", r"event_weights\.a: .*finite"),
        ("event = 'kind'\nevent_weights = {a = 0, b = 0.0}\n", "event_weights are all 0"),
        ("[impressions]\npath = 'i.csv'\ntime = 'user_id'\n", "impressions: user and time name one column"),
        ("[dataset]\nvalidation_from = 5\ntest_from = 6\n", r"validation_from: a time is written as"),
        (
            "[evaluation]\nby = ['genre']\n",
            "evaluation.by: 'genre' is no categorical feature of .items.; there is: none",
        ),
        ("[model]\ndim = 10\nheads = 3\n", r"dim = 10 is not divisible by heads = 3"),
        ("[model]\ntemperature = 0.5\ntemperature_max = 0.2\n", r"temperature = 0\.5 is outside"),
        ("[model]\ntemperature = nan\n", r"model\.temperature"),
        (
            "[[model.negatives]]\nkind = 'in_batch'\n[[model.negatives]]\nkind = 'impressions'\n",
            r"declares impressions, and there is no \[impressions\] section",
        ),
        ("[evaluation]\nk = [10]\n", r"primary_k = 100 is not one of k = \[10\]"),
        ("[dataset]\nvalidation_from = 2020-01-02T00:00:00Z\n", "go together"),
        ("[dataset]\nvalidation_from = 2020-01-02T00:00:00\ntest_from = 2020-01-03T00:00:00Z\n", "needs a zone"),
        ("[dataset]\nvalidation_from = 2020-01-04T00:00:00Z\ntest_from = 2020-01-03T00:00:00Z\n", "after test_from"),
        ("[dataset]\nvalidation_fraction = 0.6\ntest_fraction = 0.5\n", "between 0 and 1"),
        ("[evaluation]\nbaselines = []\n", r"gates\.beat_baseline = 'popularity' is not one of"),
        ("[items]\npath = 'i.csv'\n[[items.features]]\nname = 'a'\nkind = 'dense'\n", "dim is needed by dense"),
        ("[items]\npath = 'i.csv'\n[[items.features]]\nname = 'A b'\nkind = 'text'\n", r"features\.0\.name"),
    ],
)
def test_a_wrong_value_is_refused_naming_the_key(tmp_path: Path, extra: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_config(write(tmp_path, MINIMAL + extra))


def test_a_byte_order_mark_before_the_file_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_config(path).interactions.path == str(tmp_path / "events.csv")


def test_every_fault_is_listed_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, MINIMAL + "[model]\ndim = 0\ndropout = 7.0\n"))
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
        (lambda path: path.write_text("[a\n", encoding="utf-8"), "not valid TOML"),
        (lambda path: path.write_text("", encoding="utf-8"), "interactions: field required"),
    ],
)
def test_an_unreadable_file_is_one_clear_error(tmp_path: Path, make: object, expected: str) -> None:
    path = tmp_path / "p.toml"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=expected):
        load_config(path)


def test_overrides_win_and_are_read_as_toml_or_as_text(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "[model]\ndim = 8\n")
    config = load_config(path, ["model.dim=32", "index.kind=exact", "evaluation.k=[5, 100]", "items.path=cat.csv"])
    assert (config.model.dim, config.index.kind, config.evaluation.k) == (32, "exact", [5, 100])
    assert config.items is not None
    assert config.items.path == str(tmp_path / "cat.csv")


@pytest.mark.parametrize("override", ["model.dim", "dim=3", ".=3", "model.=3", "interactions.path.x=3"])
def test_a_malformed_override_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        load_config(write(tmp_path, MINIMAL), [override])


def test_an_override_with_an_unknown_key_is_refused_like_the_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownKeyError, match="did you mean 'dim'"):
        load_config(write(tmp_path, MINIMAL), ["model.dmi=3"])


def test_instants_become_utc(tmp_path: Path) -> None:
    text = "[dataset]\nvalidation_from = 2020-01-02T03:00:00+03:00\ntest_from = 2020-01-03T00:00:00Z\n"
    config = load_config(write(tmp_path, MINIMAL + text))
    assert config.dataset.validation_from == datetime(2020, 1, 2, tzinfo=UTC)


def test_a_section_round_trips_through_plain_values(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL + "[[model.negatives]]\nkind = 'uniform'\ncount = 4\n"))
    assert Config.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("name", [name for name in sections.__all__ if name.endswith("Config")])
def test_every_section_is_frozen_and_refuses_unknown_keys(name: str) -> None:
    section: type[BaseModel] = getattr(sections, name)
    assert section.model_config["frozen"] is True
    assert section.model_config["extra"] == "forbid"


def test_a_gate_can_be_switched_off_and_stays_off_in_a_round_trip(tmp_path: Path) -> None:
    text = "[gates]\nbeat_baseline = 'off'\nmax_recall_drop = 'off'\n[evaluation]\nbaselines = []\n"
    config = load_config(write(tmp_path, MINIMAL + text))
    assert (config.gates.beat_baseline, config.gates.max_recall_drop) == (None, None)
    assert Config.model_validate(config.model_dump(mode="json")) == config
