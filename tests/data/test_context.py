from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from recsys_cg.config import ContextConfig
from recsys_cg.data.context import ContextFeature, ContextSet
from recsys_cg.data.context_values import count_values, counts_schema, join_values, split_values
from recsys_cg.errors import ArtifactCorruptError, SourceError

DEVICE = ContextConfig(name="device", kind="categorical", max_vocabulary=2, hash_buckets=3)
PLACE = ContextConfig(name="place", kind="categorical", column="geo", hash_buckets=1)
HOUR = ContextConfig(name="hour", kind="hour_of_day", time_zone="America/Sao_Paulo")
DAY = ContextConfig(name="day", kind="day_of_week")


def _us(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type]


def _counts(rows: list[tuple[str, str, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], []]
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, counts_schema, strict=True)], counts_schema)


def _fit(*configs: ContextConfig, rows: list[tuple[str, str, int]] | None = None) -> ContextSet:
    return ContextSet.fit(configs, _counts(rows or []))


def test_the_vocabulary_holds_the_most_frequent_values_ties_by_value_counted_over_all_shards() -> None:
    rows = [("device", "tv", 2), ("device", "phone", 1), ("device", "pc", 3), ("device", "tv", 1), ("place", "x", 99)]
    fitted = _fit(DEVICE, PLACE, rows=rows)
    assert [feature.vocabulary for feature in fitted.features] == [("pc", "tv"), ("x",)]
    assert fitted.sizes == (1 + 2 + 3, 1 + 1 + 1)


def test_values_are_coded_from_one_others_go_to_a_bucket_behind_and_missing_is_zero() -> None:
    device = ContextFeature("device", "categorical", ("pc", "tv"), hash_buckets=3)
    codes = device.encode(pa.array(["tv", None, "pc", "fridge", "fridge"]))
    assert codes[:3].tolist() == [2, 0, 1]
    assert codes[3] == codes[4]
    assert 3 <= codes[3] <= 5
    assert device.encode(pa.array([], pa.string())).tolist() == []
    assert ContextFeature("a", "categorical", (), 1).encode(pa.array(["x", None])).tolist() == [1, 0]


def test_hour_and_day_are_those_of_the_zone() -> None:
    times = np.array([_us(1970, 1, 1), _us(2017, 10, 1, 2, 59), _us(2017, 10, 2, 3, 0), _us(2024, 2, 29, 23, 59)])
    utc_hour = ContextFeature("h", "hour_of_day")
    assert utc_hour.encode_times(times).tolist() == [1, 3, 4, 24]
    assert ContextFeature("d", "day_of_week").encode_times(times).tolist() == [4, 7, 1, 4]  # Thu, Sun, Mon, Thu
    local = ContextFeature("h", "hour_of_day", time_zone="America/Sao_Paulo")
    assert local.encode_times(times).tolist() == [22, 24, 1, 21]  # three hours behind
    assert ContextFeature("d", "day_of_week", time_zone="America/Sao_Paulo").encode_times(times).tolist() == [
        3,
        6,
        1,
        4,
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo", "Asia/Kathmandu", "Europe/London", "Pacific/Apia"])
def test_the_clock_agrees_with_python_also_across_changes_of_the_clock(zone: str) -> None:
    moments = [
        datetime(2017, 1, 1, tzinfo=UTC) + timedelta(hours=step, minutes=step % 60) for step in range(0, 20_000, 7)
    ]
    times = np.array([int(moment.timestamp()) * 1_000_000 for moment in moments])
    shown = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    hours = ContextFeature("h", "hour_of_day", time_zone=zone).encode_times(times)
    days = ContextFeature("d", "day_of_week", time_zone=zone).encode_times(times)
    assert hours.tolist() == [moment.hour + 1 for moment in shown]
    assert days.tolist() == [moment.isoweekday() for moment in shown]


def test_values_survive_joining_whatever_they_hold() -> None:
    table = pa.table({"device": ["a", None, " b\x1fc ", "ü", "", "  "], "geo": pa.array([1, 2, None, 3, None, None])})
    joined = join_values(table, [DEVICE, HOUR, PLACE])
    device, place = split_values(joined, 2)
    assert device.to_pylist() == ["a", None, "b c", "ü", None, None]
    assert place.to_pylist() == ["1", "2", None, "3", None, None]
    assert join_values(table, [HOUR, DAY]) is None
    assert [part.to_pylist() for part in split_values(pa.array([], pa.string()), 2)] == [[], []]


def test_a_nested_column_is_refused_by_name() -> None:
    with pytest.raises(SourceError, match="geo"):
        join_values(pa.table({"geo": [[1]]}), [PLACE])


def test_counts_are_of_the_events_chosen_and_know_nothing_of_the_missing() -> None:
    joined = pa.array(["\x1f", "\x1fx", "a\x1f", "a\x1fx", "never\x1fnever"])
    counted = count_values(joined, np.array([0, 1, 2, 2, 3], np.int32), [DEVICE, DAY, PLACE]).to_pylist()
    assert {(row["name"], row["value"]): row["count"] for row in counted} == {
        ("device", "a"): 3,
        ("place", "x"): 2,
    }


def test_encoding_follows_the_order_of_the_features() -> None:
    fitted = _fit(DAY, DEVICE, rows=[("device", "pc", 1)])
    table = fitted.encode([pa.array(["pc", None])], np.array([_us(2017, 10, 1)] * 3), places=np.array([1, 0, 0]))
    assert table.column_names == ["c_day", "c_device"]
    assert table.to_pydict() == {"c_day": [7, 7, 7], "c_device": [0, 1, 1]}


def test_a_set_survives_json_and_damage_is_told() -> None:
    fitted = _fit(DEVICE, HOUR, rows=[("device", "Ü|\n", 3)])
    assert ContextSet.from_json(fitted.to_json()) == fitted
    for text in ("", "[]", '{"context": [{}]}', '{"context": [{"name": "a", "kind": "b", "vocabulary": []}]}'):
        with pytest.raises(ArtifactCorruptError, match=r"context\.json"):
            ContextSet.from_json(text)


def _queries(**columns: list[int]) -> pa.Table:
    return pa.table(
        {name: pa.array(values, pa.int64() if name == "time_us" else pa.int32()) for name, values in columns.items()}
    )


def test_codes_are_translated_to_another_encoders_vocabulary() -> None:
    own = ContextSet(
        (ContextFeature("device", "categorical", ("pc", "tv"), 2), ContextFeature("gone", "categorical", ("x",), 1))
    )
    wanted = ContextSet(
        (
            ContextFeature("hour", "hour_of_day"),
            ContextFeature("device", "categorical", ("tv", "pc"), 1),
            ContextFeature("new", "categorical", (), 1),
        )
    )
    queries = _queries(time_us=[0] * 4, c_device=[0, 1, 2, 3], c_gone=[1, 1, 1, 1])
    assert own.translate(queries, wanted).to_pydict() == {
        "time_us": [0, 0, 0, 0],
        "c_hour": [1, 1, 1, 1],
        "c_device": [0, 2, 1, 0],  # of what only a bucket is known, nothing is known
        "c_new": [0, 0, 0, 0],
    }
    assert own.translate(queries, own) is queries
    assert own.translate(queries, ContextSet()).column_names == ["time_us"]


def test_an_encoder_that_is_kept_asks_for_its_features_again() -> None:
    kept = _fit(DEVICE, HOUR)
    kept.require_match([DEVICE, HOUR])
    for other in ([], [DEVICE], [HOUR, DEVICE], [DEVICE, HOUR.model_copy(update={"time_zone": "UTC"})]):
        with pytest.raises(SourceError, match=r"device, hour .*keep them as they were"):
            kept.require_match(other)


def test_options_and_columns_that_do_not_fit_are_refused() -> None:
    from recsys_cg.config import InteractionsConfig

    def interactions(*context: dict[str, Any]) -> InteractionsConfig:
        return InteractionsConfig.model_validate({"path": "x", "context": list(context)})

    device = {"name": "device", "kind": "categorical"}
    assert interactions(device, {"name": "h", "kind": "hour_of_day"}).context[0].source_column == "device"
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        ([device, device], "used twice: device"),
        ([{**device, "column": "item_id"}], "cannot know its answer"),
        ([{**device, "column": "timestamp"}], "hour_of_day"),
        ([{**device, "time_zone": "Europe/London"}], "time_zone is no option of categorical"),
        ([{"name": "h", "kind": "hour_of_day", "column": "x"}], "column is no option of hour_of_day"),
        ([{"name": "h", "kind": "hour_of_day", "time_zone": "Mars/Base"}], "no such time zone"),
        ([{"name": "H", "kind": "hour_of_day"}], "pattern"),
    ]
    for context, message in wrong:
        with pytest.raises(ValueError, match=message):
            interactions(*context)
