"""Write a small dataset directory, as the Beam stage would, straight from a table of events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.artifacts import seal
from recsys_cg.config import FeatureConfig
from recsys_cg.data.content import FeatureSet, content_digests
from recsys_cg.data.context import ContextSet
from recsys_cg.data.popularity import assign_buckets
from recsys_cg.schema import DatasetFiles, items_schema, queries_schema, rejects_schema, sequences_schema


def write_dataset(
    directory: Path,
    events: pd.DataFrame,
    catalogue: pd.DataFrame,
    features: Sequence[FeatureConfig] = (),
    *,
    max_history: int = 50,
    fractions: tuple[float, float] = (0.8, 0.9),
    shards: int = 2,
    max_queries: int | None = None,
    context: ContextSet | None = None,
) -> Path:
    """Write ``events`` (user, item, time_us, event code, weight) split in time at ``fractions`` of the events.

    With ``context``, the events have its codes in columns ``c_<name>``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    events = events.sort_values(["time_us", "user", "item"], kind="stable").reset_index(drop=True)
    cuts = [events["time_us"].iloc[min(int(len(events) * share), len(events) - 1)] for share in fractions]
    training = events[events["time_us"] < cuts[0]]
    items = _write_items(directory, training, catalogue, features)
    row_of = dict(zip(items["item_id"].to_pylist(), range(items.num_rows), strict=True))
    events = events.assign(row=events["item"].map(row_of).astype("int32"))
    fields = context.schema if context is not None else []
    if context is not None:
        (directory / DatasetFiles.CONTEXT).write_text(context.to_json(), encoding="utf-8")
    _write_sequences(directory, events[events["time_us"] < cuts[0]], shards, fields)
    windows = {"validation": (cuts[0], cuts[1]), "test": (cuts[1], events["time_us"].iloc[-1] + 1)}
    counts = {
        name: _write_queries(directory / DatasetFiles.QUERIES / name, events, window, max_history, max_queries, fields)
        for name, window in windows.items()
    }
    (directory / DatasetFiles.REJECTS).mkdir()
    pq.write_table(rejects_schema.empty_table(), directory / DatasetFiles.REJECTS / "part-00000.parquet")
    buckets = items["bucket"].to_pandas().value_counts().to_dict()
    info: dict[str, Any] = {
        "rows": {"in": len(events), "kept": len(events), "rejected": {}, "filtered": {}},
        "events": sorted(events.attrs.get("names", [""])),
        "windows": {
            "train_from_us": int(events["time_us"].iloc[0]),
            "validation_from_us": int(cuts[0]),
            "test_from_us": int(cuts[1]),
            "until_us": int(events["time_us"].iloc[-1]) + 1,
        },
        "items": items.num_rows,
        "users": int(events["user"].nunique()),
        "buckets": {name: int(buckets.get(name, 0)) for name in ("head", "torso", "tail", "cold")},
        "train_events": len(training),
        "queries": counts,
        "max_history": max_history,
    }
    seal(directory, kind="dataset", key="test", info=info)
    return directory


def _write_items(
    directory: Path, training: pd.DataFrame, catalogue: pd.DataFrame, features: Sequence[FeatureConfig]
) -> pa.Table:
    counts = training.groupby("item").size()
    frame = catalogue.assign(train_count=catalogue["item_id"].map(counts).fillna(0).astype("int64"))
    frame = frame.sort_values(["train_count", "item_id"], ascending=[False, True]).reset_index(drop=True)
    source = pa.Table.from_pandas(frame, preserve_index=False)
    fitted = FeatureSet.fit(source, features, (frame["train_count"] > 0).to_numpy())
    encoded = fitted.encode(source)
    (directory / DatasetFiles.FEATURES).write_text(fitted.to_json(), encoding="utf-8")
    titles = pa.array(frame["title"] if "title" in frame else [None] * len(frame), pa.string())
    seen = training.groupby("item")["time_us"].agg(["min", "max"]).reindex(frame["item_id"])
    count = frame["train_count"].to_numpy()
    columns = {
        "item_row": np.arange(len(frame), dtype=np.int32),
        "item_id": frame["item_id"],
        "title": titles,
        "in_catalogue": np.ones(len(frame), bool),
        "available_from_us": pa.nulls(len(frame), pa.int64()),
        "available_until_us": pa.nulls(len(frame), pa.int64()),
        "train_count": count,
        "train_weight": count.astype(float),
        "first_seen_us": pa.array(seen["min"].to_numpy(), pa.int64(), from_pandas=True),
        "last_seen_us": pa.array(seen["max"].to_numpy(), pa.int64(), from_pandas=True),
        "bucket": [str(bucket) for bucket in assign_buckets(count)],
        "q": count / count.sum(),
        "content_digest": content_digests(encoded, titles),
    }
    table = pa.table(
        [
            pa.array(columns[field.name], field.type)
            if not isinstance(columns[field.name], pa.Array)
            else columns[field.name]
            for field in items_schema
        ],
        schema=items_schema,
    )
    for name in encoded.column_names:
        table = table.append_column(name, encoded[name])
    pq.write_table(table, directory / DatasetFiles.ITEMS)
    return table


def _write_sequences(directory: Path, training: pd.DataFrame, shards: int, context: Sequence[pa.Field]) -> None:
    schema = sequences_schema
    for field in context:
        schema = schema.append(pa.field(field.name, pa.list_(field.type)))
    (directory / DatasetFiles.SEQUENCES).mkdir()
    ordered = training.sort_values(["user", "time_us", "item"], kind="stable")
    for shard in range(shards):
        part = ordered[ordered["user"].map(lambda user, shard=shard: sum(user.encode()) % shards == shard)]
        grouped = part.groupby("user", sort=True)
        lists = {
            "item_rows": grouped["row"].agg(list),
            "times_us": grouped["time_us"].agg(list),
            "events": grouped["code"].agg(list),
            "weights": grouped["weight"].agg(list),
            **{field.name: grouped[field.name].agg(list) for field in context},
        }
        users = list(grouped.groups)
        columns = [pa.array(users, pa.string())]
        columns += [pa.array(lists[field.name].to_list(), field.type) for field in list(schema)[1:]]
        table = pa.table(columns, schema=schema)
        pq.write_table(table, directory / DatasetFiles.SEQUENCES / f"part-{shard:05d}.parquet")


def _write_queries(
    directory: Path,
    events: pd.DataFrame,
    window: tuple[int, int],
    max_history: int,
    most: int | None,
    context: Sequence[pa.Field],
) -> int:
    directory.mkdir(parents=True)
    schema = queries_schema
    for field in context:
        schema = schema.append(field)
    records = []
    for user, frame in events.sort_values(["time_us", "item"], kind="stable").groupby("user", sort=True):
        times, rows, codes = (frame[name].to_numpy() for name in ("time_us", "row", "code"))
        asked = frame[[field.name for field in context]].to_dict("records")
        for place, (time, row) in enumerate(zip(times, rows, strict=True)):
            if window[0] <= time < window[1]:
                past = int(np.searchsorted(times, time))
                kept = slice(max(0, past - max_history), past)
                records.append(
                    {
                        "user_id": user,
                        "time_us": int(time),
                        "targets": [int(row)],
                        "history": rows[kept],
                        "history_times_us": times[kept],
                        "history_events": codes[kept],
                        "history_length": past,
                        "seen": np.unique(rows[:past]),
                        **asked[place],
                    }
                )
    if most is not None and len(records) > most:
        chosen = np.random.default_rng(0).choice(len(records), most, replace=False)
        records = [records[index] for index in np.sort(chosen)]
    columns = [pa.array([record[field.name] for record in records], field.type) for field in schema]
    pq.write_table(pa.table(columns, schema=schema), directory / "part-00000.parquet")
    return len(records)
