"""The interactions job as plain pandas and as lazy polars write it, for `bench_data`; results must be equal.

Both follow `recsys_cg.schema`: sequences of the training window, one query an event of the later windows with its
history and what was seen strictly before, and item statistics. They hold everything in memory and write nothing.
Per-user lists are cut out of flat NumPy arrays, as one would who knows that a Python function a group is slow.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from recsys_cg.config import Config

EVENTS = ("click", "purchase")
WEIGHTS = {"click": 1.0, "purchase": 3.0}

Tables = dict[str, Any]


def _cut(times: np.ndarray[Any, np.dtype[np.int64]], share: Fraction) -> int:
    rank = max(math.floor(share * len(times)), 1)
    return int(np.partition(times, rank - 1)[rank - 1]) + 1


def _windows(times: np.ndarray[Any, np.dtype[np.int64]], config: Config) -> tuple[int, int]:
    test = Fraction(str(config.dataset.test_fraction))
    validation = Fraction(str(config.dataset.validation_fraction))
    return _cut(times, 1 - test - validation), _cut(times, 1 - test)


def run_pandas(events: Path, config: Config) -> Tables:
    """Do the job with pandas, in memory."""
    import pandas as pd

    frame = pd.read_parquet(events, columns=["user_id", "item_id", "timestamp", "event"]).dropna()
    frame["time_us"] = frame.pop("timestamp") * 1000
    for column in ("user_id", "item_id", "event"):
        frame[column] = frame[column].astype("category")
    frame["weight"] = frame["event"].map(WEIGHTS).astype("float32")
    frame = frame.sort_values(
        ["user_id", "time_us", "item_id", "weight"], ascending=[True, True, True, False], kind="stable"
    )
    newest = frame.groupby("user_id", observed=True).cumcount(ascending=False)
    frame = frame[newest < config.dataset.max_user_events]
    frame = frame.drop_duplicates(["user_id", "item_id", "time_us"]).reset_index(drop=True)
    validation_from, test_from = _windows(frame["time_us"].to_numpy(), config)
    training = frame[frame["time_us"] < validation_from]
    items, row_of_item = _pandas_items(frame, training)
    frame["item_row"] = row_of_item[frame["item_id"].cat.codes.to_numpy()]
    frame["code"] = frame["event"].cat.codes.astype("int8")
    sequences = _pandas_sequences(frame[frame["time_us"] < validation_from])
    queries = _pandas_queries(frame, validation_from, config.dataset.max_history)
    is_test = queries["time_us"] >= test_from
    return {"items": items, "sequences": sequences, "validation": queries[~is_test], "test": queries[is_test]}


def _pandas_items(frame: Any, training: Any) -> tuple[Any, np.ndarray[Any, np.dtype[np.int32]]]:
    import pandas as pd

    grouped = training.groupby("item_id", observed=False)
    items = pd.DataFrame(
        {
            "train_count": grouped.size(),
            "train_weight": grouped["weight"].sum().astype("float64"),
            "first_seen_us": grouped["time_us"].min().astype("Int64"),
            "last_seen_us": grouped["time_us"].max().astype("Int64"),
        }
    )
    code = np.arange(len(items))
    items = items.assign(code=code).sort_values(["train_count", "code"], ascending=[False, True], kind="stable")
    rows = np.empty(len(items), dtype=np.int32)
    rows[items["code"].to_numpy()] = np.arange(len(items), dtype=np.int32)
    before = items["train_count"].cumsum() - items["train_count"]
    total = items["train_count"].sum()
    bucket = np.select([items["train_count"] == 0, before < 0.5 * total, before < 0.8 * total], [3, 0, 1], 2)
    items["bucket"] = np.array(["head", "torso", "tail", "cold"])[bucket]
    items["q"] = items["train_count"] / total
    return items.drop(columns="code").reset_index().astype({"item_id": str}), rows


def _pandas_sequences(training: Any) -> Any:
    import pandas as pd

    sizes = training.groupby("user_id", observed=True).size()
    cuts = sizes.cumsum().to_numpy()[:-1]
    columns = {"item_rows": "item_row", "times_us": "time_us", "events": "code", "weights": "weight"}
    lists = {name: np.split(training[column].to_numpy(), cuts) for name, column in columns.items()}
    return pd.DataFrame({"user_id": sizes.index.astype(str), **lists})


def _pandas_queries(frame: Any, validation_from: int, max_history: int) -> Any:
    import pandas as pd

    position = np.arange(len(frame))
    moment = position - frame.groupby(["user_id", "time_us"], observed=True).cumcount().to_numpy()
    user_start = position - frame.groupby("user_id", observed=True).cumcount().to_numpy()
    is_first = ~frame.duplicated(["user_id", "item_row"]).to_numpy()
    met = np.concatenate([[0], np.cumsum(is_first)])
    asked = np.flatnonzero(frame["time_us"].to_numpy() >= validation_from)
    ends = moment[asked]
    starts = np.maximum(user_start[asked], ends - max_history)
    item, time, code = (frame[name].to_numpy() for name in ("item_row", "time_us", "code"))
    firsts = item[is_first]
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    seen = zip(met[user_start[asked]].tolist(), met[ends].tolist(), strict=True)
    return pd.DataFrame(
        {
            "user_id": frame["user_id"].iloc[asked].astype(str).to_numpy(),
            "time_us": time[asked],
            "targets": list(item[asked].reshape(-1, 1)),
            "history": [item[start:end] for start, end in spans],
            "history_times_us": [time[start:end] for start, end in spans],
            "history_events": [code[start:end] for start, end in spans],
            "history_length": (ends - user_start[asked]).astype(np.int32),
            "seen": [firsts[start:end] for start, end in seen],
        }
    )


def run_polars(events: Path, config: Config) -> Tables:
    """Do the job with lazy polars, in memory."""
    import polars as pl

    key = ["user_id", "time_us"]
    frame = (
        pl.scan_parquet(events / "*.parquet")
        .select("user_id", "item_id", (pl.col("timestamp") * 1000).alias("time_us"), "event")
        .drop_nulls()
        .with_columns(weight=pl.col("event").replace_strict(WEIGHTS, return_dtype=pl.Float32))
        .with_columns(code=pl.col("event").replace_strict({e: n for n, e in enumerate(EVENTS)}, return_dtype=pl.Int8))
        .drop("event")
        .sort("user_id", "time_us", "item_id", "weight", descending=[False, False, False, True])
        .filter(pl.int_range(pl.len()).reverse().over("user_id") < config.dataset.max_user_events)
        .unique(["user_id", "item_id", "time_us"], keep="first", maintain_order=True)
        .collect()
    )
    validation_from, test_from = _windows(frame["time_us"].to_numpy(), config)
    items = _polars_items(frame, validation_from)
    frame = frame.join(items.select("item_id", "item_row"), on="item_id", maintain_order="left").drop("item_id")
    training = frame.lazy().filter(pl.col("time_us") < validation_from)
    lists = {"item_rows": "item_row", "times_us": "time_us", "events": "code", "weights": "weight"}
    sequences = training.group_by("user_id", maintain_order=True).agg(
        **{name: pl.col(column) for name, column in lists.items()}
    )
    is_first = pl.struct("user_id", "item_row").is_first_distinct()
    flat = (
        frame.lazy()
        .with_columns(
            place=pl.int_range(pl.len(), dtype=pl.Int64).over("user_id"),
            met=is_first.cast(pl.Int64).cum_sum().over("user_id") - is_first,
        )
        .with_columns(moment=pl.col("place").min().over(key), before=pl.col("met").min().over(key), new=is_first)
    )
    asked = flat.filter(pl.col("time_us") >= validation_from)
    wanted = asked.select("user_id").unique()
    pasts = flat.join(wanted, on="user_id", how="semi").group_by("user_id").agg(
        all_items=pl.col("item_row"), all_times=pl.col("time_us"), all_events=pl.col("code"),
        all_new=pl.col("item_row").filter(pl.col("new")),
    )  # fmt: skip
    length = pl.min_horizontal("moment", pl.lit(config.dataset.max_history, dtype=pl.Int64))
    queries = asked.join(pasts, on="user_id", how="left", maintain_order="left").select(
        "user_id",
        "time_us",
        targets=pl.concat_list("item_row"),
        history=pl.col("all_items").list.slice(pl.col("moment") - length, length),
        history_times_us=pl.col("all_times").list.slice(pl.col("moment") - length, length),
        history_events=pl.col("all_events").list.slice(pl.col("moment") - length, length),
        history_length=pl.col("moment").cast(pl.Int32),
        seen=pl.col("all_new").list.slice(0, pl.col("before")),
    )
    done, asked_all = pl.collect_all([sequences, queries])
    is_test = asked_all["time_us"] >= test_from
    return {
        "items": items.drop("item_row"), "sequences": done,
        "validation": asked_all.filter(~is_test), "test": asked_all.filter(is_test),
    }  # fmt: skip


def _polars_items(frame: Any, validation_from: int) -> Any:
    import polars as pl

    counted = (
        frame.lazy()
        .filter(pl.col("time_us") < validation_from)
        .group_by("item_id")
        .agg(
            train_count=pl.len().cast(pl.Int64),
            train_weight=pl.col("weight").cast(pl.Float64).sum(),
            first_seen_us=pl.col("time_us").min(),
            last_seen_us=pl.col("time_us").max(),
        )
    )
    total = pl.col("train_count").sum()
    before = pl.col("train_count").cum_sum() - pl.col("train_count")
    bucket = (
        pl.when(pl.col("train_count") == 0).then(pl.lit("cold"))
        .when(before < 0.5 * total).then(pl.lit("head"))
        .when(before < 0.8 * total).then(pl.lit("torso"))
        .otherwise(pl.lit("tail"))
    )  # fmt: skip
    items = (
        frame.lazy()
        .select(pl.col("item_id").unique())
        .join(counted, on="item_id", how="left")
        .with_columns(pl.col("train_count").fill_null(0), pl.col("train_weight").fill_null(0.0))
        .sort("train_count", "item_id", descending=[True, False])
        .with_columns(bucket=bucket)
        .with_columns(item_row=pl.int_range(pl.len(), dtype=pl.Int32))
        .collect()
    )
    counts = items["train_count"].to_numpy()
    # Divided by NumPy: polars multiplies by the reciprocal, which differs in the last bit.
    return items.with_columns(q=pl.Series(counts / counts.sum()))
