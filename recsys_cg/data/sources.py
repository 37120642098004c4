"""Sources: files of any known format become blocks of Arrow rows, each row knowing its file and number.

A source is read where it lies and never copied. `plan_reads` cuts it into pieces that workers take independently: a
run of row groups of a Parquet file, or a whole file of another format, which is then streamed block by block.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from recsys_cg.data.blocks import Block
from recsys_cg.data.columnar import avro_columns, parquet_columns, parquet_row_groups, read_avro, read_parquet
from recsys_cg.data.delimited import read_delimited, read_header
from recsys_cg.data.files import SourceFile, fingerprint, list_files
from recsys_cg.data.jsonl import read_jsonl, read_keys
from recsys_cg.errors import SourceError

__all__ = [
    "Read",
    "SourceFile",
    "check_columns",
    "column_names",
    "fingerprint",
    "list_files",
    "plan_reads",
    "read_blocks",
]

_READ_ROWS: Final = 1_000_000


@dataclass(frozen=True)
class Read:
    """A piece of a source that one worker reads.

    Attributes:
        number: position of this piece in its source, from 0.
        file: the file.
        columns: what is read of it, in order.
        groups: row groups of a Parquet file; None for a whole file.
        first_row: number of the first row, from 1.
        nested: those of ``columns`` in which a value may be a list or an object.
    """

    number: int
    file: SourceFile
    columns: tuple[str, ...]
    groups: tuple[int, ...] | None = None
    first_row: int = 1
    nested: tuple[str, ...] = ()


def column_names(file: SourceFile) -> list[str]:
    """Return the columns of ``file``, those held by its folders' names last.

    Raises:
        SourceError: the file cannot be read.
    """
    if file.format == "parquet":
        names = parquet_columns(file)
    elif file.format == "avro":
        names = avro_columns(file)
    elif file.format == "jsonl":
        names = read_keys(file)
    else:
        names = read_header(file)
    return names + [name for name, _ in file.partition if name not in names]


def plan_reads(files: Sequence[SourceFile], columns: Sequence[str], nested: Collection[str] = ()) -> list[Read]:
    """Check that every file has ``columns`` and cut the source into pieces for workers.

    Args:
        files: what `list_files` gave.
        columns: wanted columns; repeated names count once.
        nested: those in which a value may be a list or an object; in another column of JSON lines or Avro such a value
            has its row refused (``nested_value``).

    Raises:
        SourceError: a file is damaged or lacks a column; the message names those it has and the nearest.
    """
    wanted = tuple(dict.fromkeys(columns))
    reads: list[Read] = []
    for file in files:
        check_columns(file, wanted)
        if file.format == "parquet":
            reads.extend(_plan_parquet(file, wanted, len(reads)))
        else:
            reads.append(Read(len(reads), file, wanted, nested=tuple(name for name in wanted if name in nested)))
    return reads


def _plan_parquet(file: SourceFile, columns: tuple[str, ...], number: int) -> Iterator[Read]:
    groups: list[int] = []
    rows, first_row = 0, 1
    for group, count in enumerate(parquet_row_groups(file)):
        groups.append(group)
        rows += count
        if rows >= _READ_ROWS:
            yield Read(number, file, columns, tuple(groups), first_row)
            first_row += rows
            number, groups, rows = number + 1, [], 0
    if groups:
        yield Read(number, file, columns, tuple(groups), first_row)


def check_columns(file: SourceFile, columns: Sequence[str]) -> None:
    """Raise `SourceError` when ``file`` lacks one of ``columns``."""
    known = column_names(file)
    twice = [name for name in columns if known.count(name) > 1]
    if twice:
        raise SourceError(f"{file.path}: has column {twice[0]!r} {known.count(twice[0])} times")
    missing = [name for name in columns if name not in known]
    if not missing:
        return
    name = missing[0]
    nearest = difflib.get_close_matches(name.lower(), [other.lower() for other in known], n=1, cutoff=0.4)
    hint = next((f"; did you mean {other!r}?" for other in known if nearest and other.lower() == nearest[0]), "")
    if len(known) == 1 and (signs := [sign for sign in (";", "\t", ",", "|") if sign in known[0]]):
        hint = f"; its header is one field and looks to be separated by {signs[0]!r}: see format, or convert it"
    raise SourceError(f"{file.path}: no column {name!r}; it has {', '.join(map(repr, known))}{hint}")


def read_blocks(read: Read, block_rows: int) -> Iterator[Block]:
    """Read one piece as blocks of at most ``block_rows`` rows, in the order of the file.

    Raises:
        SourceError: the file is damaged, cut, or not what its format says.
    """
    file = read.file
    held = dict(file.partition)
    inside = [name for name in read.columns if name not in held]
    for block in _read_inside(read, inside, block_rows):
        table = block.table
        for name in read.columns:
            if name in held:
                table = table.append_column(name, pa.array([held[name]] * table.num_rows, type=pa.string()))
        yield Block(table.select(list(read.columns)), block.source, block.numbers, block.rejects)


def _read_inside(read: Read, columns: Sequence[str], block_rows: int) -> Iterator[Block]:
    if read.file.format == "parquet":
        return read_parquet(read.file, columns, block_rows, read.groups, read.first_row)
    if read.file.format == "avro":
        return read_avro(read.file, columns, block_rows, read.nested)
    if read.file.format == "jsonl":
        return read_jsonl(read.file, columns, block_rows, read.nested)
    return read_delimited(read.file, columns, block_rows)
