"""Lists of different lengths as two flat arrays, so that no step loops over rows in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Ragged"]


@dataclass(frozen=True)
class Ragged:
    """``rows`` lists: list i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: [total] the lists end to end.
        offsets: [rows + 1] int64, from 0, never falling.
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @classmethod
    def from_column(cls, table: pa.Table, name: str) -> Self:
        """Read a list column; a null list is an empty one."""
        column = table.column(name).combine_chunks()
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        return cls.from_lengths(column.flatten().to_numpy(zero_copy_only=False), lengths)

    @classmethod
    def from_lengths(cls, values: NDArray[Any], lengths: NDArray[Any]) -> Self:
        """Cut ``values`` into consecutive lists of the given lengths, which add up to ``len(values)``."""
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(values, offsets)

    @classmethod
    def from_owners(cls, values: NDArray[Any], owners: NDArray[np.int64], rows: int) -> Self:
        """Build ``rows`` lists where ``values[i]`` belongs to list ``owners[i]``; ``owners`` never falls."""
        return cls.from_lengths(values, np.bincount(owners, minlength=rows))

    @property
    def rows(self) -> int:
        """Number of lists."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """[rows] length of each list."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """[total] the list that each value belongs to."""
        return np.repeat(np.arange(self.rows), self.lengths)

    @cached_property
    def positions_from_end(self) -> NDArray[np.int64]:
        """[total] 0 for the last value of each list, 1 for the one before it, and so on."""
        return np.repeat(self.offsets[1:], self.lengths) - 1 - np.arange(len(self.values))

    def keep(self, mask: NDArray[np.bool_]) -> Ragged:
        """Return the lists with only the values where ``mask`` (over ``values``) holds; lists may become empty."""
        return Ragged.from_owners(self.values[mask], self.owners[mask], self.rows)

    def last(self, count: int) -> Ragged:
        """Return the last ``count`` values of each list."""
        return self.keep(self.positions_from_end < count)

    def slice(self, start: int, stop: int) -> Ragged:
        """Return lists ``start`` to ``stop`` (excluded)."""
        offsets = self.offsets[start : stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the lists named by ``rows``, in that order."""
        lengths = self.lengths[rows]
        result = Ragged.from_lengths(np.empty(int(lengths.sum()), dtype=self.values.dtype), lengths)
        source = np.repeat(self.offsets[:-1][rows] - result.offsets[:-1], lengths) + np.arange(len(result.values))
        return Ragged(self.values[source], result.offsets)

    def split(self) -> Sequence[NDArray[Any]]:
        """Return each list as a view."""
        return [self.values[start:stop] for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def to_arrow(self) -> pa.ListArray:
        """Return the lists as an Arrow array (offsets of 32 bits)."""
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), pa.array(self.values))
