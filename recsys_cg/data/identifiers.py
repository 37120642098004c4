"""Identifiers are strings and are never interpreted: ``007`` stays ``007``."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.errors import SourceError

__all__ = ["hash_strings", "mix_bits", "to_strings"]

_HASHED_BYTES: Final = 64
_LONG_BYTES: Final = 1024
_OFFSET: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)


def to_strings(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Return ``column`` as one string array; what is no identifier (null, empty, NaN) becomes null.

    An integer becomes its decimal digits, a whole float its digits without ``.0`` (a column of integers that went
    through NaN), a boolean ``true`` or ``false``, a time its ISO 8601 form.

    Args:
        column: any flat Arrow type.
        name: the column, for errors.

    Raises:
        SourceError: the column is nested, or holds bytes that are no UTF-8.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_nested(kind):
        raise SourceError(f"column {name!r} holds {kind}; a string or a number is needed")
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.string())
    if pa.types.is_floating(kind):
        array = _floats_to_strings(array)
    elif not pa.types.is_string(kind):
        try:
            array = array.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(f"column {name!r} of type {kind} cannot be read as text: {error}") from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    is_empty = pc.equal(pc.binary_length(array), 0)
    return pc.if_else(is_empty, None, array) if pc.any(is_empty).as_py() else array


def _floats_to_strings(array: pa.Array) -> pa.Array:
    array = pc.if_else(pc.is_finite(array), array, None)
    exact = pc.and_(pc.equal(array, pc.floor(array)), pc.less(pc.abs(array), 2.0**53))
    whole = pc.if_else(exact, array, None).cast(pa.int64()).cast(pa.string())
    return pc.coalesce(whole, array.cast(pa.string()))


def hash_strings(strings: pa.Array, salt: int = 0, *, whole: bool = False) -> npt.NDArray[np.uint64]:
    """Hash each string to 64 bits, the same on every machine and in every process (unlike Python's ``hash``).

    FNV-1a over the first 64 bytes and the length, then the finaliser of splitmix64; vectorised over the array. Strings
    that agree in length and in their first 64 bytes share a hash, which costs a grouping its balance and nothing else;
    with ``whole`` every byte counts: those behind the first 1024 through BLAKE2b, so that one long text stays cheap.

    Args:
        strings: string array ``[n]`` without nulls.
        salt: chooses another hash function.
        whole: hash every byte, however long a string is.

    Returns:
        uint64 ``[n]``.
    """
    count = len(strings)
    lengths = np.asarray(pc.binary_length(strings)).astype(np.int64)
    hashes = np.full(count, _OFFSET ^ np.uint64(salt), dtype=np.uint64)
    if not count:
        return hashes
    plain = pa.concat_arrays([strings]) if strings.offset else strings
    buffers = plain.buffers()
    starts = np.frombuffer(buffers[1], dtype=np.int32)[plain.offset : plain.offset + count].astype(np.int64)
    data = np.frombuffer(buffers[2], dtype=np.uint8) if buffers[2] is not None else np.zeros(0, dtype=np.uint8)
    longest = int(lengths.max())
    rows = np.zeros(0, dtype=np.int64)
    for position in range(min(longest, _LONG_BYTES if whole else _HASHED_BYTES)):
        rows = np.flatnonzero(lengths > position)
        hashes[rows] = (hashes[rows] ^ data[starts[rows] + position]) * _PRIME
    rows = np.flatnonzero(lengths > _LONG_BYTES) if whole else rows[:0]
    rests = [hashlib.blake2b(data[starts[row] + _LONG_BYTES : starts[row] + lengths[row]].tobytes()) for row in rows]
    words = [int.from_bytes(rest.digest()[:8], "little") for rest in rests]
    hashes[rows] = (hashes[rows] ^ np.array(words, dtype=np.uint64)) * _PRIME
    return mix_bits(hashes ^ lengths.astype(np.uint64))


def mix_bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64-bit values one to one (finaliser of splitmix64, Steele et al. 2014)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
