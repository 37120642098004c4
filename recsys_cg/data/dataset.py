"""Read a dataset directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cg.artifacts import Manifest, read_manifest
from recsys_cg.data.content import FeatureSet
from recsys_cg.data.context import ContextSet
from recsys_cg.data.impressions import impressions_schema
from recsys_cg.errors import ArtifactCorruptError, ArtifactMissingError, DataError
from recsys_cg.schema import DatasetFiles

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """A sealed dataset directory.

    Attributes:
        path: the directory.
        manifest: what it says of itself.
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Dataset:
        """Open the dataset at ``path``; the bytes of its files are not verified (`recsys_cg.artifacts.verify` does).

        Raises:
            ArtifactMissingError, ArtifactCorruptError, ArtifactFormatError, ArtifactError: see
                `recsys_cg.artifacts.read_manifest`.
        """
        return cls(path, read_manifest(path, kind="dataset"))

    @cached_property
    def items(self) -> pa.Table:
        """The item table: `recsys_cg.schema.items_schema` and the content columns ``f_<name>``."""
        return _read(self.path / DatasetFiles.ITEMS)

    @cached_property
    def features(self) -> FeatureSet:
        """The fitted content features."""
        path = self.path / DatasetFiles.FEATURES
        try:
            return FeatureSet.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ArtifactMissingError(f"{self.path} lacks {DatasetFiles.FEATURES}") from error

    @cached_property
    def context(self) -> ContextSet:
        """The fitted context features; none where the dataset has none."""
        path = self.path / DatasetFiles.CONTEXT
        if DatasetFiles.CONTEXT not in self.manifest.files:
            return ContextSet()
        try:
            return ContextSet.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ArtifactMissingError(f"{self.path} lacks {DatasetFiles.CONTEXT}") from error

    def iter_sequences(self) -> Iterator[pa.Table]:
        """Yield the training sequences, one table a shard, in the order of the shards."""
        for path in self._parts(DatasetFiles.SEQUENCES):
            yield _read(path)

    def sequences(self) -> pa.Table:
        """Return all training sequences as `recsys_cg.schema.sequences_schema`."""
        return pa.concat_tables(list(self.iter_sequences()))

    def iter_histories(self) -> Iterator[pa.Table]:
        """Yield all that is known of each user, one table a shard, as `recsys_cg.schema.sequences_schema`.

        Unlike the training sequences these reach to the last event of the log. A dataset built with
        ``serving.histories = false`` has none.
        """
        for path in self._parts(DatasetFiles.HISTORIES):
            yield _read(path)

    def queries(self, split: str) -> pa.Table:
        """Return the evaluation queries of ``"validation"`` or ``"test"`` as `recsys_cg.schema.queries_schema`."""
        return pa.concat_tables([_read(path) for path in self._parts(f"{DatasetFiles.QUERIES}/{split}")])

    def impressions(self) -> pa.Table | None:
        """Return the impressions, or None when the project has none."""
        if not (self.path / DatasetFiles.IMPRESSIONS).is_dir():
            return None
        return pa.concat_tables([_read(path) for path in self._parts(DatasetFiles.IMPRESSIONS)])

    def iter_shown(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the training sequences of each shard with the impressions of their users, in the order of the shards.

        Raises:
            DataError: the dataset was built without impressions.
        """
        folder = self.path / DatasetFiles.IMPRESSIONS
        if not folder.is_dir():
            raise DataError(
                f"{self.path} holds no impressions: name their log in the section [impressions] and build the dataset "
                "again"
            )
        for path in self._parts(DatasetFiles.SEQUENCES):
            shown = folder / path.name  # a user's shard is that of the user's impressions
            yield _read(path), _read(shown) if shown.exists() else impressions_schema.empty_table()

    @property
    def events(self) -> tuple[str, ...]:
        """Event types; an event code is a position here."""
        return tuple(self.manifest.info["events"])

    @property
    def max_history(self) -> int:
        """Longest history of a query."""
        return int(self.manifest.info["max_history"])

    def _parts(self, folder: str) -> list[Path]:
        parts = sorted((self.path / folder).glob("part-*.parquet"))
        if not parts:
            raise ArtifactMissingError(f"{self.path} lacks {folder}/part-*.parquet")
        return parts


def _read(path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(path).read()
    except FileNotFoundError as error:
        raise ArtifactMissingError(f"{path} is missing") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactCorruptError(f"{path} is damaged: {error}") from error
