"""Ratings rewritten for the protocols that the dataset job does not know: leave-one-out, and items kept from training.

Both write a log of interactions that the job then reads as it reads any other.

Leave-one-out (L): a user's last rating is the test, the one before it validation. Ratings of one user often share a
second, so which one is last depends on a tie rule: ``"file"`` keeps the order of the source, as published figures do,
``"shuffled"`` draws it. Either way ties are told apart by a microsecond each. The job knows only global windows, so the
two held-out ratings are moved out of everybody's training time by one and two spans of the log; `unshift` moves them
back in the queries, so that the model sees true gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.errors import SourceError

DAY_US = 86_400_000_000
_TIES_SEED = 0


@dataclass(frozen=True)
class Shift:
    """Where a rewritten log begins, and by how much its held-out ratings were moved (microseconds)."""

    start_us: int
    span_us: int

    @property
    def validation_from_us(self) -> int:
        """Start of the moved validation ratings."""
        return self.start_us + self.span_us

    @property
    def test_from_us(self) -> int:
        """Start of the moved test ratings."""
        return self.start_us + 2 * self.span_us

    def undo(self, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the true times."""
        return times_us - self.span_us * ((times_us - self.start_us) // self.span_us)


def read_ratings(path: Path) -> pa.Table:
    """Read a RecBole ``.inter`` file of whole seconds: user_id, item_id, timestamp in microseconds, in file order."""
    text = {"user_id:token": pa.string(), "item_id:token": pa.string(), "timestamp:float": pa.float64()}
    table = pc_csv.read_csv(
        path,
        parse_options=pc_csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pc_csv.ConvertOptions(column_types=text, include_columns=list(text)),
    )
    times = np.rint(table["timestamp:float"].to_numpy()).astype(np.int64) * 1_000_000
    return pa.table({"user_id": table["user_id:token"], "item_id": table["item_id:token"], "timestamp": times})


def read_orders(path: Path) -> tuple[pa.Table, int]:
    """Read a file of a user and its items in order, a line each, without times, as the logs of S3-Rec are published.

    Users' items are dated a day apart so that everybody's last one falls on one and the same day: leave-one-out is then
    a strict split in time, which needs no shift.

    Returns:
        user_id, item_id, timestamp in microseconds; and the time of the last items. The ones before are a day earlier.
    """
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    if not any(line[1:] for line in lines):
        raise SourceError(f"{path} holds no user with an item")
    longest = max(len(line) for line in lines)
    users = [line[0] for line in lines for _ in line[1:]]
    items = [item for line in lines for item in line[1:]]
    times = [(longest - left) * DAY_US for line in lines for left in range(len(line) - 2, -1, -1)]
    return pa.table({"user_id": users, "item_id": items, "timestamp": pa.array(times, pa.int64())}), longest * DAY_US


def leave_one_out(ratings: pa.Table, ties: str) -> tuple[pa.Table, Shift]:
    """Return the ratings with each user's last two moved into windows of their own, and the shift.

    Args:
        ratings: of `read_ratings`.
        ties: ``"file"`` or ``"shuffled"``.
    """
    if ties not in {"file", "shuffled"}:
        raise ValueError(f"ties = {ties!r}: 'file' or 'shuffled'")
    count = ratings.num_rows
    users = ratings["user_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    times = ratings["timestamp"].to_numpy()
    rank = np.arange(count) if ties == "file" else np.random.default_rng(_TIES_SEED).permutation(count)
    order = np.lexsort((rank, times, users))
    users, times = users[order], times[order]
    shift = Shift(int(times.min()), int(times.max() - times.min()) + DAY_US)
    last = np.flatnonzero(np.append(users[1:] != users[:-1], True))
    held = np.zeros(count, dtype=np.int64)
    held[last] = 2
    held[last[np.diff(np.append(-1, last)) > 1] - 1] = 1
    moved = times + _places_in_ties(users, times) + shift.span_us * held
    return ratings.take(pa.array(order)).set_column(2, "timestamp", pa.array(moved)), shift


def _places_in_ties(users: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 0, 1, 2, ... along each run of one user and one time."""
    places = np.arange(len(users))
    starts = np.append(True, (users[1:] != users[:-1]) | (times[1:] != times[:-1]))
    return places - np.maximum.accumulate(np.where(starts, places, 0))


def unshift(queries: pa.Table, shift: Shift) -> pa.Table:
    """Return a table of the queries schema with the true times of the held-out ratings."""
    histories = queries["history_times_us"].combine_chunks()
    times = pa.array(shift.undo(histories.flatten().to_numpy()))
    offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(histories).to_numpy()))).astype(np.int32)
    columns = {
        "time_us": pa.array(shift.undo(queries["time_us"].to_numpy())),
        "history_times_us": pa.ListArray.from_arrays(pa.array(offsets), times),
    }
    for name, values in columns.items():
        place = queries.schema.get_field_index(name)
        queries = queries.set_column(place, queries.schema.field(name), values)
    return queries


def without_items(ratings: pa.Table, hidden: list[str], until_us: int) -> pa.Table:
    """Return the ratings without those of ``hidden`` items before ``until_us``, as if they were new from then on."""
    barred = pc.and_(pc.is_in(ratings["item_id"], value_set=pa.array(hidden)), pc.less(ratings["timestamp"], until_us))
    return ratings.filter(pc.invert(barred))


def without_targets(queries: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return the queries none of whose targets is among the item_rows ``rows``."""
    lists = queries["targets"].combine_chunks()
    barred = np.isin(lists.flatten().to_numpy(), rows)
    owners = np.repeat(np.arange(len(queries)), pc.list_value_length(lists).to_numpy())
    return queries.filter(pa.array(np.bincount(owners, weights=barred, minlength=len(queries)) == 0))


def rewrite_queries(directory: Path, split: str, change: object) -> int:
    """Apply ``change`` (queries table -> queries table) to every part of a split; return how many queries are left."""
    assert callable(change)
    count = 0
    for path in sorted((directory / "queries" / split).glob("part-*.parquet")):
        table = change(pq.ParquetFile(path).read())
        pq.write_table(table, path)
        count += table.num_rows
    return count
