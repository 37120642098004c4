"""Parquet and Avro files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.data.blocks import Block, empty_rejects, is_nested, rejects_of
from recsys_cg.data.files import SourceFile, open_bytes
from recsys_cg.errors import EnvironmentMismatchError, SourceError

__all__ = ["avro_columns", "parquet_columns", "parquet_row_groups", "read_avro", "read_parquet"]

_AVRO_ERRORS: Final = (
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    OSError,
    OverflowError,
    SystemError,
    MemoryError,
)
"""What fastavro was seen to raise, or may, on bytes that are no Avro."""


def _open_parquet(file: SourceFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(open_bytes(file), memory_map=False, pre_buffer=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{file.path}: no whole Parquet file: {error}") from error


def parquet_columns(file: SourceFile) -> list[str]:
    """Return the top-level column names of ``file``.

    Raises:
        SourceError: it is cut or no Parquet file.
    """
    with _open_parquet(file) as parquet:
        return list(parquet.schema_arrow.names)


def parquet_row_groups(file: SourceFile) -> list[int]:
    """Return the rows of each row group of ``file``; raises `SourceError` as `parquet_columns`."""
    with _open_parquet(file) as parquet:
        return [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]


def read_parquet(
    file: SourceFile, columns: Sequence[str], block_rows: int, groups: Sequence[int] | None = None, first_row: int = 1
) -> Iterator[Block]:
    """Read ``columns`` of the row groups ``groups`` (None: all), typed as the file types them.

    Args:
        file: a Parquet file.
        columns: top-level columns that it has.
        block_rows: upper bound of a block's rows.
        groups: row groups, ascending.
        first_row: number of the first row of the first of these groups, from 1.

    Raises:
        SourceError: the file is cut or damaged.
    """
    number = first_row
    with _open_parquet(file) as parquet:
        chosen = list(groups) if groups is not None else list(range(parquet.num_row_groups))
        batches = parquet.iter_batches(
            batch_size=block_rows, row_groups=chosen, columns=list(columns), use_threads=False
        )
        while True:
            try:
                batch = next(batches, None)
                table = None if batch is None else _validate(pa.Table.from_batches([batch]).select(list(columns)))
            except (pa.ArrowInvalid, OSError, pa.ArrowNotImplementedError) as error:
                raise SourceError(f"{file.path}: the Parquet file is damaged: {error}") from error
            if table is None:
                return
            numbers = np.arange(number, number + len(table), dtype=np.int64)
            number += len(table)
            yield Block(table, file.path, numbers, empty_rejects())


def _validate(table: pa.Table) -> pa.Table:
    """Check that strings are UTF-8, which Arrow's Parquet reader leaves to its user."""
    for at, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.binary()).cast(pa.string()))
    return table


def _avro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - only Avro sources need it
    except ImportError as error:
        raise EnvironmentMismatchError("reading Avro needs fastavro: pip install 'recsys-cg[beam]'") from error
    return fastavro


def avro_columns(file: SourceFile) -> list[str]:
    """Return the field names of the record that ``file`` holds.

    Raises:
        SourceError: it is cut, no Avro file, or holds no records.
    """
    with open_bytes(file) as stream:
        try:
            schema = _avro().reader(stream).writer_schema
        except _AVRO_ERRORS as error:
            raise SourceError(f"{file.path}: no whole Avro file: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceError(f"{file.path}: the Avro file holds no records")
    return [field["name"] for field in schema["fields"]]


def read_avro(
    file: SourceFile, columns: Sequence[str], block_rows: int, nested: Collection[str] = ()
) -> Iterator[Block]:
    """Read the fields ``columns`` of every record; one with a list or a record in a column not ``nested`` is refused.

    Raises:
        SourceError: the file is cut or damaged, or a field mixes types that do not go together.
    """
    number = 1
    held: list[dict[str, Any]] = []
    with open_bytes(file) as stream:
        try:
            for record in _avro().reader(stream):
                held.append(record)
                if len(held) == block_rows:
                    yield _avro_block(file, held, columns, nested, number)
                    number += len(held)
                    held = []
        except _AVRO_ERRORS as error:
            raise SourceError(f"{file.path}: the Avro file is cut or damaged: {error!r}") from error
    if held:
        yield _avro_block(file, held, columns, nested, number)


def _avro_block(
    file: SourceFile, records: list[dict[str, Any]], columns: Sequence[str], nested: Collection[str], number: int
) -> Block:
    flat = [name for name in columns if name not in nested]
    numbers = np.arange(number, number + len(records), dtype=np.int64)
    deep = np.array([is_nested(record, flat) for record in records], dtype=bool)
    refused = [
        (int(numbers[at]), "nested_value", {name: records[at].get(name) for name in columns})
        for at in np.flatnonzero(deep)
    ]
    kept = [records[at] for at in np.flatnonzero(~deep)]
    table = pa.table({name: _avro_column(file, name, kept) for name in columns})
    return Block(table, file.path, numbers[~deep], rejects_of(file.path, refused))


def _avro_column(file: SourceFile, name: str, records: list[dict[str, Any]]) -> pa.Array:
    values = [record.get(name) for record in records]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass
    try:
        return pa.array([None if value is None else str(value) for value in values], type=pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceError(f"{file.path}: field {name!r} cannot be read: {error}") from error
