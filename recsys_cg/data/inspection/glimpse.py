"""A glimpse of a source: its format and some of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from recsys_cg.data.sources import SourceFile, column_names, list_files, plan_reads, read_blocks
from recsys_cg.errors import SourceError

__all__ = ["Glimpse", "look"]

_FILES: Final = 3
_NUMBER: Final = re.compile(r"[+-]?\d+([.,]\d+)?$")


@dataclass(frozen=True)
class Glimpse:
    """Some rows of a source.

    Attributes:
        path: as the user gave it.
        format: to be written into the project file; ``auto`` where the extension says it.
        shown_format: the format of the files.
        table: rows from the beginnings of the first, the middle and the last file, all columns.
    """

    path: str
    format: str
    shown_format: str
    table: pa.Table


def look(path: str, rows: int) -> Glimpse:
    """Read up to ``rows`` rows of ``path``, from at most three of its files.

    Raises:
        SourceError: the source is missing, empty, damaged, of no known format, or has no rows or no header.
    """
    files, kind = _identify(path)
    chosen = [files[at] for at in sorted({0, len(files) // 2, len(files) - 1})][:_FILES]
    names = column_names(files[0])
    _check_header(files[0], names)
    tables = [_first_rows(file, names, rows // len(chosen)) for file in chosen]
    table = pa.concat_tables(_agree(tables))
    if table.num_rows == 0:
        raise SourceError(f"{path}: there are columns ({', '.join(names)}) and no rows")
    return Glimpse(path, kind, files[0].format, table)


def _identify(path: str) -> tuple[list[SourceFile], str]:
    """List the files; where the extension says nothing, or not the truth, look at the first bytes."""
    local = Path(path)
    if "://" not in path and local.is_file() and local.stat().st_size > 0:
        kind = _sniff(local)
        try:
            by_name = list_files(path)
        except SourceError:
            if kind is None:
                raise
            return list_files(path, kind), kind
        if kind is not None and kind != by_name[0].format and by_name[0].compression is None:
            return list_files(path, kind), kind
        return by_name, "auto"
    return list_files(path), "auto"


def _sniff(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"Obj\x01"):
        return "avro"
    line = head.split(b"\n", 1)[0].decode("utf-8", errors="replace")
    if line.lstrip("\ufeff").startswith("{"):
        return "jsonl"
    if "\t" in line:
        return "recbole" if re.search(r":(token|float)(_seq)?(\t|\r?$)", line) else "tsv"
    return "csv" if "," in line else None


def _check_header(file: SourceFile, names: Sequence[str]) -> None:
    if file.format not in ("csv", "tsv"):
        return
    if len(names) == 1 and any(sign in names[0] for sign in ";|"):
        sign = next(sign for sign in ";|" if sign in names[0])
        raise SourceError(
            f"{file.path}: the first line has no comma or tab and looks separated by {sign!r}: "
            "convert the file to CSV or TSV first"
        )
    if all(_NUMBER.match(name.strip()) for name in names):
        raise SourceError(
            f"{file.path}: the first line holds numbers ({', '.join(names[:4])}), not column names: "
            "put a header line above it, e.g. user_id,item_id,timestamp"
        )


def _first_rows(file: SourceFile, names: Sequence[str], rows: int) -> pa.Table:
    known = column_names(file)
    shared = [name for name in names if name in known]
    read = plan_reads([replace(file)], shared, nested=shared)
    for block in read_blocks(read[0], max(1, rows)) if read else ():
        return block.table
    return pa.table({name: pa.array([], pa.string()) for name in shared})


def _agree(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Keep the columns that all tables have in one type, and drop tables without rows beside others."""
    filled = [table for table in tables if table.num_rows] or [tables[0]]
    shared = [
        field
        for field in filled[0].schema
        if all(
            field.name in table.column_names and table.schema.field(field.name).type == field.type for table in filled
        )
    ]
    return [table.select([field.name for field in shared]) for table in filled]
