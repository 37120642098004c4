"""How blocks travel between Beam steps: as Arrow IPC bytes."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from recsys_cg.data.blocks import Block

__all__ = ["BlockCoder", "TableCoder", "table_from_bytes", "table_to_bytes"]


def table_to_bytes(table: pa.Table) -> bytes:
    """Write ``table`` as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def table_from_bytes(data: bytes) -> pa.Table:
    """Read what `table_to_bytes` wrote; the table shares the memory of ``data``."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


class TableCoder(beam.coders.Coder):
    """Codes ``pa.Table`` as an Arrow IPC stream."""

    def encode(self, value: pa.Table) -> bytes:
        """Return the bytes of ``value``."""
        return table_to_bytes(value)

    def decode(self, encoded: bytes) -> pa.Table:
        """Return the table that `encode` was given."""
        return table_from_bytes(encoded)

    def is_deterministic(self) -> bool:
        """Tables are values, never keys."""
        return False

    def to_type_hint(self) -> Any:
        """Return the type that this coder is registered for."""
        return pa.Table


class BlockCoder(beam.coders.Coder):
    """Codes `recsys_cg.data.blocks.Block` as two Arrow IPC streams: the rows with their numbers, and the rejects."""

    _NUMBERS = "@number"

    def encode(self, value: Block) -> bytes:
        """Return the bytes of ``value``."""
        table = value.table.append_column(self._NUMBERS, pa.array(value.numbers))
        rows = table_to_bytes(table.replace_schema_metadata({"source": json.dumps(value.source)}))
        return len(rows).to_bytes(8, "big") + rows + table_to_bytes(value.rejects)

    def decode(self, encoded: bytes) -> Block:
        """Return the block that `encode` was given."""
        end = 8 + int.from_bytes(encoded[:8], "big")
        table = table_from_bytes(encoded[8:end])
        source = json.loads(table.schema.metadata[b"source"])
        numbers = np.asarray(table.column(self._NUMBERS), dtype=np.int64)
        plain = table.drop_columns([self._NUMBERS]).replace_schema_metadata(None)
        return Block(plain, source, numbers, table_from_bytes(encoded[end:]))

    def is_deterministic(self) -> bool:
        """Blocks are values, never keys."""
        return False

    def to_type_hint(self) -> Any:
        """Return the type that this coder is registered for."""
        return Block


beam.coders.registry.register_coder(pa.Table, TableCoder)
beam.coders.registry.register_coder(Block, BlockCoder)
