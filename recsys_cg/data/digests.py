"""A digest of each item's content, so that a stored vector can be told to be stale."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.data.identifiers import hash_strings, mix_bits

__all__ = ["content_digests"]

_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint8).reshape(256, 2)


def content_digests(encoded: pa.Table, titles: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Digest each row's encoded features and title to 32 hexadecimal digits.

    Vectorised 128-bit mixing, not a cryptographic hash: it tells changed content from unchanged, and the same content
    has the same digest on every machine and in every order of rows.

    Args:
        encoded: columns ``f_<name>`` as `recsys_cg.data.content.FeatureSet.encode` gives; a column's name counts.
        titles: strings ``[n]``, null where an item has none.

    Returns:
        string array ``[n]``.
    """
    array = titles.combine_chunks() if isinstance(titles, pa.ChunkedArray) else titles
    strings = pc.fill_null(array.cast(pa.string()), "\x00")
    halves = [_half(encoded, strings, seed) for seed in (1, 2)]
    raw = np.stack(halves, axis=1).astype(">u8").view(np.uint8)
    digits = np.ascontiguousarray(_HEX[raw].reshape(len(strings), -1))
    offsets = np.arange(len(strings) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(len(strings), pa.py_buffer(offsets), pa.py_buffer(digits))


def _half(encoded: pa.Table, titles: pa.Array, seed: int) -> npt.NDArray[np.uint64]:
    total = hash_strings(titles, seed, whole=True)
    for name in encoded.column_names:
        salt = hash_strings(pa.array([name]), seed)[0]
        total = mix_bits(total ^ _column_hash(encoded.column(name).combine_chunks(), salt))
    return total


def _column_hash(lists: pa.Array, salt: np.uint64) -> npt.NDArray[np.uint64]:
    values = np.asarray(pc.list_flatten(lists))
    bits = values.view(np.uint32) if values.dtype == np.float32 else values.astype(np.uint32)
    lengths = np.asarray(pc.list_value_length(lists)).astype(np.int64)
    ends = np.cumsum(lengths)
    places = np.arange(len(bits), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    mixed = mix_bits((bits.astype(np.uint64) << np.uint64(32)) ^ places.astype(np.uint64) ^ salt)
    running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    sums: npt.NDArray[np.uint64] = running[ends] - running[ends - lengths] + lengths.astype(np.uint64)
    return sums
