"""Embed any items with an exported item tower: known ones by id and content, new ones by content alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys_cg.data.arrays import content_arrays
from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import ArtifactMissingError, NonFiniteError
from recsys_cg.model.export import SIGNATURE
from recsys_cg.model.frameworks import tf
from recsys_cg.schema import EncoderFiles

__all__ = ["ItemEncoder"]

_BLOCK = 8192


class ItemEncoder:
    """An exported item tower; `open` reads it.

    Args:
        tower: the loaded SavedModel.
        ids: the known item ids; row r has id_row r + 1.
        features: the fitted features.
    """

    def __init__(self, tower: Any, ids: pa.StringArray, features: FeatureSet) -> None:
        self._tower = tower  # a signature alone does not keep its variables alive
        self._call = tower.signatures[SIGNATURE]
        self._ids = ids
        self._features = features

    @classmethod
    def open(cls, encoder: Path) -> Self:
        """Read the item tower of an encoder directory, or of a release's ``encoder`` directory.

        Raises:
            ArtifactMissingError: the directory holds no item tower.
        """
        for name in (EncoderFiles.ITEM_SAVED_MODEL, EncoderFiles.ITEM_IDS, EncoderFiles.FEATURES):
            if not (encoder / name).exists():
                raise ArtifactMissingError(f"{encoder} holds no {name}; train the encoder again")
        loaded = tf.saved_model.load(str(encoder / EncoderFiles.ITEM_SAVED_MODEL))
        ids = pq.read_table(encoder / EncoderFiles.ITEM_IDS)["item_id"].combine_chunks()
        features = FeatureSet.from_json((encoder / EncoderFiles.FEATURES).read_text(encoding="utf-8"))
        return cls(loaded, ids, features)

    def encode(
        self, ids: pa.Array | pa.ChunkedArray | Sequence[str], content: pa.Table
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Embed items.

        Args:
            ids: item_id of each item; one that training never met is embedded by its content alone.
            content: columns ``f_<name>``, as `FeatureSet.encode` gives them, row for row with ``ids``.

        Returns:
            (vectors of unit norm, history vectors), float32 [n, dim] each.

        Raises:
            DataError, NonFiniteError: the content is not what the features describe, or a vector is not finite.
        """
        known = pc.index_in(pa.array(ids) if not isinstance(ids, pa.Array | pa.ChunkedArray) else ids, self._ids)
        id_row = np.asarray(pc.fill_null(known, -1)).astype(np.int32) + 1
        arrays = content_arrays(self._features.features, content)
        parts = [self._encode_block(id_row, arrays, slice(at, at + _BLOCK)) for at in range(0, len(id_row), _BLOCK)]
        if not parts:
            width = int(self._call.structured_outputs["vector"].shape[1])
            return np.empty((0, width), np.float32), np.empty((0, width), np.float32)
        vectors, history = (np.concatenate(column) for column in zip(*parts, strict=True))
        if not (np.isfinite(vectors).all() and np.isfinite(history).all()):
            raise NonFiniteError("the item tower gave a vector that is not finite; train the encoder again")
        return vectors, history

    def _encode_block(
        self, id_row: NDArray[np.int32], arrays: Mapping[str, NDArray[np.generic]], part: slice
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        content = {name: tf.constant(array[part]) for name, array in arrays.items()}
        outputs = self._call(id_row=tf.constant(id_row[part]), **content)
        return outputs["vector"].numpy(), outputs["history_vector"].numpy()
