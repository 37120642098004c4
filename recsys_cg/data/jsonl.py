"""JSON lines: one object a line, read by Arrow where the lines agree in type and by Python where they do not."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from recsys_cg.data.blocks import Block, is_nested, rejects_of
from recsys_cg.data.files import SourceFile, open_bytes
from recsys_cg.errors import SourceError

__all__ = ["read_jsonl", "read_keys"]

_CHUNK_BYTES: Final = 4 << 20
_LONGEST_SHOWN: Final = 2_000
_SNIFFED_LINES: Final = 100
_KEYED_LINES: Final = 10_000
_WHOLE: Final = re.compile(r"-?\d{1,15}\.0")


def _chunks(file: SourceFile) -> Iterator[bytes]:
    raw = open_bytes(file)
    stream = pa.CompressedInputStream(raw, file.compression) if file.compression else raw
    try:
        while data := stream.read(_CHUNK_BYTES):
            yield data
    except OSError as error:
        message = str(error)
        if "Truncated compressed stream" in message:
            message = "the compressed file ends in the middle; it was cut when it was copied or written"
        raise SourceError(f"{file.path}: {message}") from error


def _line_groups(file: SourceFile, lines: int) -> Iterator[tuple[list[bytes], bool]]:
    """Yield lists of at most ``lines`` lines, and whether the file ended without a line break behind the last one."""
    held: list[bytes] = []
    rest = b""
    for data in _chunks(file):
        pieces = (rest + data).split(b"\n")
        rest = pieces.pop()
        held.extend(pieces)
        while len(held) >= lines:
            yield held[:lines], False
            held = held[lines:]
    if rest:
        held.append(rest)
    if held:
        yield held, bool(rest)


def read_keys(file: SourceFile) -> list[str]:
    """Return the keys of the first 10,000 lines of ``file``, in the order met.

    Raises:
        SourceError: none of these lines is a JSON object.
    """
    keys: dict[str, None] = {}
    for lines, _ in _line_groups(file, _KEYED_LINES):
        for line in lines:
            value = _parse(line)
            keys.update(dict.fromkeys(value) if isinstance(value, dict) else {})
        break
    if not keys:
        raise SourceError(f"{file.path}: no JSON object in the first lines; JSON lines hold one object a line")
    return list(keys)


def _float_text(digits: str) -> str:
    """Give a whole number without its ``.0``, as `recsys_cg.data.identifiers.to_strings` does: 7.0 is the same as 7."""
    return digits[:-2] if _WHOLE.fullmatch(digits) else digits


def _parse(line: bytes) -> Any:
    try:
        value = json.loads(line, parse_int=str, parse_float=_float_text, parse_constant=lambda _: None)
        if b"\\u" in line:  # half a surrogate pair is valid JSON and no text
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def read_jsonl(
    file: SourceFile, columns: Sequence[str], block_rows: int, nested: Collection[str] = ()
) -> Iterator[Block]:
    """Read the keys ``columns`` of every line; a key that a line lacks is null.

    A line that is no JSON object is refused (``malformed_json``), unless it is the last of a file without a final
    line break: then the file was cut; so is a line with a list or an object in a column that is not ``nested``
    (``nested_value``). Blank lines are passed over but keep their number.

    Raises:
        SourceError: the file is cut.
    """
    number = 1
    for lines, is_open in _line_groups(file, block_rows):
        numbers = np.arange(number, number + len(lines), dtype=np.int64)
        number += len(lines)
        yield _read_lines(file, lines, numbers, columns, nested=nested, is_open=is_open)


def _read_lines(
    file: SourceFile,
    lines: list[bytes],
    numbers: Any,
    columns: Sequence[str],
    *,
    nested: Collection[str],
    is_open: bool,
) -> Block:
    full = np.array([bool(line.strip()) for line in lines], dtype=bool)
    table = _by_arrow([line for line in lines if line.strip()], columns)
    if table is not None and table.num_rows == int(full.sum()):
        return Block(table, file.path, numbers[full], rejects_of(file.path, []))
    values: list[Any] = [_parse(line) if line.strip() else None for line in lines]
    good = np.array([isinstance(value, dict) for value in values], dtype=bool)
    if is_open and not good[-1] and full[-1]:
        raise SourceError(
            f"{file.path}: the file ends in the middle of a line; it was cut when it was copied or written"
        )
    refused = [
        (int(numbers[at]), "malformed_json", {"line": lines[at][:_LONGEST_SHOWN].decode(errors="replace")})
        for at in np.flatnonzero(full & ~good)
    ]
    flat = [name for name in columns if name not in nested]
    deep = [at for at in np.flatnonzero(good).tolist() if is_nested(values[at], flat)]
    refused += [(int(numbers[at]), "nested_value", _picked(values[at], columns)) for at in deep]
    good[deep] = False
    rows = [values[at] for at in np.flatnonzero(good)]
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in columns})
    return Block(table, file.path, numbers[good], rejects_of(file.path, sorted(refused, key=lambda one: one[0])))


def _picked(value: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {name: value[name] for name in columns if name in value}


def _by_arrow(lines: list[bytes], columns: Sequence[str]) -> pa.Table | None:
    """Read the lines at once when every column has one plain type, sniffed from the first lines; else None."""
    types: dict[str, pa.DataType] = {}
    try:
        for line in lines[:_SNIFFED_LINES]:
            for name, value in json.loads(line).items():
                kind = _SIMPLE.get(type(value))
                if name in columns and kind is not None and types.setdefault(name, kind) != kind:
                    return None
        if set(types) != set(columns):
            return None
        options = pa_json.ParseOptions(
            explicit_schema=pa.schema([(name, types[name]) for name in columns]), unexpected_field_behavior="ignore"
        )
        data = io.BytesIO(b"\n".join(lines) + b"\n")
        read_options = pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, data.getbuffer().nbytes + 1))
        return pa_json.read_json(data, read_options, options).select(list(columns))
    except (pa.ArrowInvalid, ValueError, AttributeError, RecursionError):
        return None


_SIMPLE: Final[dict[type, pa.DataType]] = {str: pa.string(), int: pa.int64()}


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(value, list) for value in values):
        lists = [value if isinstance(value, list) or value is None else [value] for value in values]
        texts = [None if row is None else [_text(value) for value in row] for row in lists]
        return pa.array(texts, type=pa.list_(pa.string()))
    return pa.array([_text(value) for value in values], type=pa.string())


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)
