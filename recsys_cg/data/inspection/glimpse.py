"""A glimpse of a source: its format and some of its rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from recsys_cg.data.delimited import first_fields
from recsys_cg.data.inspection.notation import is_written_time
from recsys_cg.data.sources import SourceFile, column_names, list_files, plan_reads, read_blocks
from recsys_cg.errors import SourceError

__all__ = ["Glimpse", "look"]

_FILES: Final = 3
_NUMBER: Final = re.compile(r"[+-]?\d+([.,]\d+)?$")
_VALUE: Final = re.compile(r"https?://|[\[{]")
_SIGNS: Final = (",", "\t", ";", "|")
_LONGEST_NAME: Final = 80
_PACKED: Final = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}


@dataclass(frozen=True)
class Glimpse:
    """Some rows of a source.

    Attributes:
        path: as the user gave it.
        format: to be written into the project file; ``auto`` where the extension says it.
        shown_format: the format of the files.
        delimiter: to be written into the project file; None where it is the format's own.
        columns: names made up for the columns of a file without a header line; else empty.
        table: rows from the beginnings of the first, the middle and the last file, all columns.
    """

    path: str
    format: str
    shown_format: str
    delimiter: str | None
    columns: tuple[str, ...]
    table: pa.Table


def look(path: str, rows: int, made_up: str = "column") -> Glimpse:
    """Read up to ``rows`` rows of ``path``, from at most three of its files.

    Args:
        path: file, folder, glob or fsspec URL.
        rows: at most.
        made_up: what names of columns begin with where the file gives none.

    Raises:
        SourceError: the source is missing, empty, damaged, of no known format, or has no rows or no header.
    """
    files, kind = _identify(path)
    files = _settle_lines(files, made_up)
    chosen = [files[at] for at in sorted({0, len(files) // 2, len(files) - 1})][:_FILES]
    names = column_names(files[0])
    tables = [_first_rows(file, names, rows // len(chosen)) for file in chosen]
    table = pa.concat_tables(_agree(tables))
    if table.num_rows == 0:
        raise SourceError(f"{path}: there are columns ({', '.join(names)}) and no rows")
    return Glimpse(path, kind, files[0].format, files[0].delimiter, files[0].columns, table)


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
    packed = _PACKED.get(path.suffix.lower())
    with pa.OSFile(str(path), "rb") as file:
        try:
            head = bytes((pa.CompressedInputStream(file, packed) if packed else file).read(1 << 16))
        except OSError:
            return None
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"Obj\x01"):
        return "avro"
    line = head.split(b"\n", 1)[0].decode("utf-8", errors="replace")
    if line.lstrip("\ufeff").startswith("{"):
        return "jsonl"
    if "\t" in line:
        return "recbole" if re.search(r":(token|float)(_seq)?(\t|\r?$)", line) else "tsv"
    return "csv" if any(sign in line for sign in _SIGNS) else None


def _settle_lines(files: list[SourceFile], made_up: str) -> list[SourceFile]:
    """Find out by the first line what separates the fields of CSV or TSV, and whether it names the columns."""
    if files[0].format not in ("csv", "tsv"):
        return files
    fields = first_fields(files[0])
    if len(fields) == 1:
        if "::" in fields[0]:
            raise SourceError(
                f"{files[0].path}: the fields are separated by two signs, '::', and one can be read: convert the file "
                "first, e.g. with sed 's/::/\\t/g'"
            )
        sign = max(_SIGNS, key=fields[0].count)
        if sign in fields[0]:
            files = [replace(file, delimiter=sign) for file in files]
            fields = first_fields(files[0])
    if _are_values(fields):
        columns = tuple(f"{made_up}_{at + 1}" for at in range(len(fields)))
        files = [replace(file, columns=columns) for file in files]
    return files


def _are_values(fields: Sequence[str]) -> bool:
    """Tell whether a first line holds values and not names: a number, a time, a link, a long text.

    Numbers that count the columns (``id,0,1,2``) are names.
    """
    numbers = [field.strip() for field in fields if _NUMBER.match(field.strip())]
    if numbers and numbers not in ([str(at + start) for at in range(len(numbers))] for start in (0, 1)):
        return True
    return len(numbers) == len(fields) or any(
        len(field) > _LONGEST_NAME or _VALUE.match(field.strip()) or is_written_time(field) for field in fields
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
