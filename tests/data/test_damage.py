"""Whatever bytes a file holds, reading gives rows that add up or one error of ours: never another exception."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from recsys_cg.config import InteractionsConfig
from recsys_cg.data.interactions import clean_block, interaction_columns
from recsys_cg.data.sources import list_files, plan_reads, read_blocks
from recsys_cg.errors import RecsysError

ROWS = [{"user_id": f"u{n % 7}", "item_id": f"ü{n}", "timestamp": str(n * 1000)} for n in range(200)]


def _csv() -> bytes:
    lines = (f'{row["user_id"]},"{row["item_id"]}",{row["timestamp"]}\n' for row in ROWS)
    return ("user_id,item_id,timestamp\n" + "".join(lines)).encode()


def _recbole() -> bytes:
    lines = ("\t".join(row.values()) + "\n" for row in ROWS)
    return ("user_id:token\titem_id:token\ttimestamp:float\n" + "".join(lines)).encode()


def _jsonl() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=60)
    return sink.getvalue()


def _avro() -> bytes:
    sink = io.BytesIO()
    fields = [{"name": name, "type": "string"} for name in ROWS[0]]
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, ROWS)
    return sink.getvalue()


FILES = {
    "x.csv": _csv(),
    "x.csv.gz": gzip.compress(_csv()),
    "x.csv.zst": zstandard.compress(_csv()),
    "x.inter": _recbole(),
    "x.jsonl": _jsonl(),
    "x.parquet": _parquet(),
    "x.avro": _avro(),
}


def _damage(data: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    place = chance.randrange(1, len(data))
    if kind == 0:
        return data[:place]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(chance.choice([1, 3, 20])):
            changed[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(changed)
    if kind == 2:
        return data[:place] + data[place + chance.randrange(1, 200) :]
    if kind == 3:
        return data[:place] + chance.randbytes(chance.randrange(1, 50)) + data[place:]
    return chance.randbytes(chance.randrange(1, 3000))


def _read(config: InteractionsConfig) -> int:
    total = 0
    for read in plan_reads(list_files(config.path), interaction_columns(config)):
        for block in read_blocks(read, 50):
            cleaned = clean_block(block, config)
            assert cleaned.rows == cleaned.events.num_rows + cleaned.rejects.num_rows
            total += cleaned.rows
    return total


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_give_rows_or_one_clear_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    config = InteractionsConfig(path=str(path))
    path.write_bytes(FILES[name])
    assert _read(config) == len(ROWS)
    chance = random.Random(name)
    refused: list[str] = []
    for _ in range(60):
        path.write_bytes(_damage(FILES[name], chance))
        try:
            _read(config)
        except RecsysError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert all(name in message for message in refused)
