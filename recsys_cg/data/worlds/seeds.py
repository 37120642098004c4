"""Random streams and identifiers of a simulated world."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["make_ids", "stream"]


def stream(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """Return the random stream of one purpose and place (epoch, chunk); streams are independent of each other.

    A stream depends on its arguments alone, so what is drawn for a chunk does not depend on what was drawn before
    it, in which order chunks are simulated, or how rows are cut into files.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *place))
    return np.random.Generator(np.random.SFC64(sequence))


def make_ids(prefix: str, count: int) -> pa.StringArray:
    """Return ``count`` identifiers of one length, ``prefix`` and a number with leading zeros."""
    digits = max(4, len(str(count - 1)))
    numbers = pc.utf8_lpad(pa.array(np.arange(count)).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), numbers, "")
