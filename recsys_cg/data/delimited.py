"""CSV, TSV and RecBole atomic files: every cell is text until a column's meaning says otherwise."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from recsys_cg.data.blocks import Block, rejects_of
from recsys_cg.data.files import SourceFile, open_bytes
from recsys_cg.errors import SourceError

__all__ = ["first_fields", "read_delimited", "read_header"]

_BLOCK_BYTES: Final = 4 << 20
_MOST_FIELDS: Final = 1_000
_TYPED: Final = re.compile(r"^(.*):(token|token_seq|float|float_seq)$")
_LONGEST_SHOWN: Final = 2_000
_MAGIC: Final = {
    b"\x1f\x8b": "its bytes are those of a gzip file: name it .gz",
    b"\x28\xb5\x2f\xfd": "its bytes are those of a zstd file: name it .zst",
    b"PAR1": 'its bytes are those of a Parquet file: format = "parquet"',
    b"PK\x03\x04": "its bytes are those of a zip archive: unpack it",
}


class _Watched:
    """A byte stream that must be UTF-8, and remembers how it ended: so a cut file can be told from a bad row."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.quotes = 0
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size if size >= 0 else None)
        self._decoder.decode(data, final=not data)
        self.quotes += data.count(b'"')
        self.last = data[-1:] or self.last
        return data

    closed = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()


def _delimiter(file: SourceFile) -> str:
    return file.delimiter or ("," if file.format == "csv" else "\t")


def _options(file: SourceFile) -> dict[str, Any]:
    quote = False if file.format == "recbole" else '"'
    return {"delimiter": _delimiter(file), "quote_char": quote, "newlines_in_values": quote is not False}


@contextmanager
def _translate(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        message = str(error)
        if "Truncated compressed stream" in message:
            message = "the compressed file ends in the middle; it was cut when it was copied or written"
        elif "decompress failed" in message or "inflate failed" in message:
            message = f"the compressed file is damaged, or not compressed at all ({message})"
        elif isinstance(error, UnicodeDecodeError) or "invalid UTF8" in message:
            message = error.reason if isinstance(error, UnicodeDecodeError) else message
            message = f"the text is not UTF-8 ({message}); convert it first, e.g. with iconv{_known_bytes(file)}"
        elif "Empty CSV" in message:
            message = "the file is empty"
        raise SourceError(f"{file.path}: {message}") from error


def _known_bytes(file: SourceFile) -> str:
    """Say what the bytes look like when they are no text at all."""
    with open_bytes(file) as stream:
        start = bytes(stream.read(4))
    for magic, advice in _MAGIC.items():
        if start.startswith(magic):
            return f"; {advice}"
    return ""


def _stream(file: SourceFile) -> _Watched:
    raw = open_bytes(file)
    return _Watched(pa.CompressedInputStream(raw, file.compression) if file.compression else raw)


def read_header(file: SourceFile) -> list[str]:
    """Return the column names of ``file``: as given, or of its header; of a RecBole header without their types.

    Raises:
        SourceError: the file has no header, is cut, is no UTF-8, or names a column twice; or its first line has another
            number of fields than names are given.
    """
    return [_plain(file, name) for name in _raw_header(file)]


def first_fields(file: SourceFile) -> list[str]:
    """Return the fields of the first line of ``file``, be they names or values; an empty field is an empty text.

    Raises:
        SourceError: the file is cut or no UTF-8.
    """
    options = pa_csv.ReadOptions(use_threads=False, block_size=1 << 16, autogenerate_column_names=True)
    with _translate(file):
        fields = _open_start(file, options, check_utf8=True)
        return [field or "" for field in fields.read_next_batch().slice(0, 1).to_pylist()[0].values()]


def _open_start(file: SourceFile, options: pa_csv.ReadOptions, *, check_utf8: bool) -> pa_csv.CSVStreamingReader:
    as_text = {f"f{at}": pa.string() for at in range(_MOST_FIELDS)} if options.autogenerate_column_names else {}
    return pa_csv.open_csv(
        pa.PythonFile(_stream(file), mode="r"),
        read_options=options,
        parse_options=pa_csv.ParseOptions(**_options(file), invalid_row_handler=lambda _: "skip"),
        convert_options=pa_csv.ConvertOptions(check_utf8=check_utf8, column_types=as_text),
    )


def _raw_header(file: SourceFile) -> list[str]:
    if file.columns:
        count = len(first_fields(file))
        if count != len(file.columns):
            raise SourceError(
                f"{file.path}: columns gives {len(file.columns)} names, and the first line has {count} fields"
            )
        return list(file.columns)
    options = pa_csv.ReadOptions(use_threads=False, block_size=1 << 16)
    with _translate(file):
        names = list(_open_start(file, options, check_utf8=False).schema.names)
    plain = [_plain(file, name) for name in names]
    twice = sorted({name for name in plain if plain.count(name) > 1})
    if twice:
        raise SourceError(f"{file.path}: the header names a column twice: {', '.join(twice)}")
    if file.format == "recbole" and plain == names:
        raise SourceError(f"{file.path}: no RecBole header; it reads e.g. user_id:token<TAB>item_id:token")
    return names


def _plain(file: SourceFile, name: str) -> str:
    match = _TYPED.match(name) if file.format == "recbole" else None
    return match[1] if match else name


def read_delimited(file: SourceFile, columns: Sequence[str], block_rows: int) -> Iterator[Block]:
    """Read ``columns`` of ``file`` as text; an empty cell is null.

    A row with another number of fields is refused (``wrong_number_of_fields``) with its line as the record, unless it
    is the last of a file without a final line break: then the file was cut. Blank lines are passed over and are not
    counted as rows.

    Args:
        file: a CSV, TSV or RecBole file.
        columns: names without RecBole types; each is in the header.
        block_rows: upper bound of a block's rows.

    Raises:
        SourceError: the file is cut, is no UTF-8, or has a row of more than 4 MiB.
    """
    by_plain = {_plain(file, name): name for name in _raw_header(file)}
    wanted = [by_plain[name] for name in columns]
    malformed: list[Any] = []
    header = 0 if file.columns else 1

    def skip(row: Any) -> str:
        malformed.append(row)
        return "skip"

    stream = _stream(file)
    with _translate(file):
        reader = pa_csv.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=pa_csv.ReadOptions(
                use_threads=False, block_size=_BLOCK_BYTES, column_names=list(file.columns) or None
            ),
            parse_options=pa_csv.ParseOptions(**_options(file), invalid_row_handler=skip),
            convert_options=_as_text(wanted),
        )
    numbering = _Numbering()
    last = _no_rows(columns)
    for table in _tables(file, reader, columns):
        refused = [_entry(row, header) for row in malformed]
        malformed.clear()
        numbers = numbering.give(table.num_rows, [entry[0] for entry in refused])
        last = table.slice(table.num_rows - 1) if table.num_rows else last
        for start in range(0, max(table.num_rows, 1), block_rows):
            rejects = rejects_of(file.path, refused if start == 0 else [])
            end = start + block_rows
            yield Block(table.slice(start, block_rows), file.path, numbers[start:end], rejects)
    refused = [_entry(row, header) for row in malformed]
    _check_end(file, stream, numbering.ends_refused([entry[0] for entry in refused]), last)
    if refused:
        yield Block(_no_rows(columns), file.path, np.zeros(0, dtype=np.int64), rejects_of(file.path, refused))


def _as_text(names: Sequence[str]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        include_columns=names,
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        null_values=[""],
    )


def _no_rows(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([], type=pa.string()) for name in columns})


def _tables(file: SourceFile, reader: pa_csv.CSVStreamingReader, columns: Sequence[str]) -> Iterator[pa.Table]:
    while True:
        with _translate(file):
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
        yield pa.Table.from_batches([batch]).rename_columns(list(columns))


def _entry(row: Any, header: int) -> tuple[int, str, Any]:
    record = {"line": row.text[:_LONGEST_SHOWN], "fields": row.actual_columns, "expected": row.expected_columns}
    return row.number - header, "wrong_number_of_fields", record


class _Numbering:
    """Hands out row numbers of a file, leaving out those of refused rows."""

    def __init__(self) -> None:
        self._next = 1
        self._refused: list[int] = []
        self._highest_refused = 0

    def give(self, count: int, refused: Sequence[int]) -> npt.NDArray[np.int64]:
        self._refused.extend(refused)
        self._highest_refused = max([self._highest_refused, *refused])
        candidates = np.arange(self._next, self._next + count + len(self._refused), dtype=np.int64)
        given = candidates[~np.isin(candidates, self._refused)][:count]
        if count:
            self._next = int(given[-1]) + 1
            self._refused = [number for number in self._refused if number >= self._next]
        return given

    def ends_refused(self, refused: Sequence[int]) -> bool:
        """Tell whether the file's last row is a refused one."""
        return max([self._highest_refused, *refused]) >= self._next


def _check_end(file: SourceFile, stream: _Watched, is_last_refused: bool, last: pa.Table) -> None:
    has_final_break = stream.last in (b"\n", b"\r")
    if is_last_refused and not has_final_break:
        raise SourceError(
            f"{file.path}: the file ends in the middle of a row; it was cut when it was copied or written"
        )
    values = last.to_pylist()[0].values() if last.num_rows else []
    if file.format == "recbole" or stream.quotes % 2 == 0:
        return
    if not has_final_break or any("\n" in value for value in values if value):
        raise SourceError(f"{file.path}: the file ends inside a quoted field; it was cut, or a quote is missing")
