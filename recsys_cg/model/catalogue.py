"""What the model knows of the items, besides what it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.data.arrays import ContentFeature, content_arrays
from recsys_cg.data.dataset import Dataset
from recsys_cg.errors import DataError

__all__ = ["Catalogue", "load_catalogue"]


@dataclass(frozen=True)
class Catalogue:
    """The items of one dataset.

    Attributes:
        counts: int64 [items], training events.
        features: the fitted content features.
        content: ``f_<name>`` -> int32 [items, max_values] or float32 [items, width].
        identity: int32 [items], equal for known duplicates; a negative that shares the positive's is masked.
    """

    counts: NDArray[np.int64]
    features: Sequence[ContentFeature]
    content: Mapping[str, NDArray[np.generic]]
    identity: NDArray[np.int32]

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.counts)

    @property
    def id_rows(self) -> NDArray[np.int32]:
        """Row of each item in the id table, int32 [items]: from 1 in the order of the items, 0 for an item without a
        training event, whose own id nothing could teach; it is known by its content, as a later newcomer is.
        """
        is_known = self.counts > 0
        return np.where(is_known, np.cumsum(is_known), 0).astype(np.int32)


def load_catalogue(data: Dataset) -> Catalogue:
    """Read the item table: counts, content and identities.

    Raises:
        DataError: there is no item, or a content column does not fit its feature.
        NonFiniteError: a content value is NaN or infinite.
    """
    items = data.items
    if items.num_rows == 0:
        raise DataError("the dataset holds no item; look at its rejects and filters")
    return Catalogue(
        counts=np.asarray(items["train_count"].combine_chunks(), dtype=np.int64),
        features=data.features.features,
        content=content_arrays(data.features.features, items),
        identity=_identities(items),
    )


def _identities(items: pa.Table) -> NDArray[np.int32]:
    """Give items of equal title and content the identity of the first of them; items without a title stay alone."""
    frame = pd.DataFrame({"title": items["title"].to_pandas(), "content": items["content_digest"].to_pandas()})
    rows = pd.Series(np.arange(len(frame), dtype=np.int32))
    first = rows.groupby([frame["title"], frame["content"]], dropna=True).transform("min")
    titled = frame["title"].notna() & (frame["title"] != "")
    return np.where(titled, first.fillna(-1), rows).astype(np.int32)
