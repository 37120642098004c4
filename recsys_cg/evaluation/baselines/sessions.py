"""The training interactions that baselines learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.evaluation.ragged import Ragged

__all__ = ["Sessions"]


@dataclass(frozen=True)
class Sessions:
    """Training interactions, user by user in order of time.

    Attributes:
        item_rows: one list a user.
        times_us: [interactions] int64, along ``item_rows.values``.
        items: number of items of the dataset.
    """

    item_rows: Ragged
    times_us: NDArray[np.int64]
    items: int

    @classmethod
    def of(cls, sequences: pa.Table, items: int) -> Sessions:
        """Read a table of the sequences schema."""
        return cls(Ragged.from_column(sequences, "item_rows"), Ragged.from_column(sequences, "times_us").values, items)
