"""A kind of content feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Letters:
    """A content feature: the shares of vowels and of capitals in a text."""

    dim = 2

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @classmethod
    def fit(cls, column: pa.ChunkedArray, *, scale: float = 1.0) -> Self:
        del column
        return cls(scale)

    def encode(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        texts = [text or "" for text in column.to_pylist()]
        shares = [[sum(c in "aeiou" for c in t), sum(c.isupper() for c in t)] for t in texts]
        lengths = np.array([max(len(t), 1) for t in texts], dtype=np.float32)
        return self.scale * np.array(shares, dtype=np.float32).reshape(-1, 2) / lengths[:, None]

    def to_json(self) -> dict[str, Any]:
        return {"scale": self.scale}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["scale"])


class Undefined(Letters):
    """The same, forgetting that a division by nothing is no number."""

    def encode(self, column: pa.ChunkedArray) -> NDArray[np.float32]:
        return np.full((len(column), 2), np.nan, dtype=np.float32)
