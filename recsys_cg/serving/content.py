"""The item tower on content alone, in LiteRT: a vector for an item that no index holds yet, without TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys_cg.data.arrays import content_arrays
from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import (
    ArtifactCorruptError,
    ArtifactMissingError,
    RecsysError,
    SearchError,
)
from recsys_cg.geometry import l2_normalise
from recsys_cg.schema import EncoderFiles
from recsys_cg.serving.litert import load_graph

__all__ = ["ContentEncoder"]


class ContentEncoder:
    """Embed rows of a catalogue as items that training never met; safe to use from many threads.

    The vector is the one that `recsys-cg refresh` would give the item: the same features, fitted in training time, the
    same tower, and the id of an unknown item.

    Args:
        content: the bytes of ``content.tflite``.
        features: the fitted features of the encoder.
        source: where it came from, for messages.
    """

    def __init__(self, content: bytes, features: FeatureSet, *, source: Path) -> None:
        self.features = features
        self._source = source
        self._lock = threading.Lock()
        _, self._run = load_graph(content, source)
        wanted = set(self._run.get_input_details())
        if wanted != {feature.field_name for feature in features.features}:
            raise ArtifactCorruptError(
                f"{source} reads {', '.join(sorted(wanted))}, which are not the features beside it"
            )

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Load ``item/content.tflite`` and ``item/features.json`` below ``directory``, an encoder's.

        Raises:
            ArtifactMissingError: the encoder was trained without item features, or by a version that kept no such
                graph.
            ArtifactCorruptError: one of the two cannot be read, or they do not belong together.
        """
        path = directory / EncoderFiles.CONTENT_LITERT
        try:
            content = path.read_bytes()
            text = (directory / EncoderFiles.FEATURES).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise ArtifactMissingError(
                f"{directory} has no tower for content alone ({path.name}): its encoder was trained without "
                "[[items.features]], or by an earlier version; train it again with features"
            ) from error
        return cls(content, FeatureSet.from_json(text), source=path)

    def encode(self, rows: Sequence[Mapping[str, object]]) -> NDArray[np.float32]:
        """Return the vectors of catalogue rows.

        Args:
            rows: each maps columns of the catalogue, as its file names them, to a value: text, a number, a list of
                either, or None. A column that is not there counts as missing; columns that no feature reads do nothing.

        Returns:
            float32 [rows, dim] of unit norm, row for row.

        Raises:
            SearchError: a row holds none of the columns that features read, or a value that cannot be what its feature
                says.
        """
        columns = list(dict.fromkeys(feature.column for feature in self.features.features))
        for place, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise SearchError(f"content row {place} is {type(row).__name__}; give an object of catalogue columns")
            if all(row.get(column) is None for column in columns):
                raise SearchError(f"content row {place} holds none of the columns {', '.join(columns)}")
        if not rows:
            return np.zeros((0, self._dim), np.float32)
        arrays = self._arrays([dict(row) for row in rows], columns)
        with self._lock:
            found = self._run(**arrays)["vector"]
        if not np.isfinite(found).all():
            raise ArtifactCorruptError(f"{self._source} gave a vector that is not finite; train the encoder again")
        vectors: NDArray[np.float32] = l2_normalise(found)
        return vectors

    @property
    def _dim(self) -> int:
        return int(self._run.get_output_details()["vector"]["shape"][-1])

    def _arrays(self, rows: list[dict[str, object]], columns: Sequence[str]) -> dict[str, NDArray[np.generic]]:
        try:
            table = pa.table({column: pa.array([row.get(column) for row in rows]) for column in columns})
            return content_arrays(self.features.features, self.features.encode(table))
        except (pa.ArrowException, RecsysError, ValueError, TypeError, OverflowError) as error:
            raise SearchError(f"the content cannot be read: {error}") from error
