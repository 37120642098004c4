"""Context: what is known of a query when it is asked, as small integers that the query tower looks up.

A categorical feature is a column of the event log; its vocabulary holds the values of training time, from the most
frequent on, and every other value goes to a hash bucket. The hour of the day and the day of the week are read off the
event's time. Code 0 always means that nothing is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import ContextConfig
from recsys_cg.data.identifiers import hash_strings
from recsys_cg.errors import ArtifactCorruptError, SourceError

__all__ = ["ContextFeature", "ContextSet"]

_FORMAT: Final = 1
_HOUR_US: Final = 3_600_000_000
_HOURS, _DAYS = 24, 7
_FIRST_DAY: Final = 3  # 1970-01-01 was a Thursday

Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class ContextFeature:
    """One fitted feature.

    Attributes:
        name: its name; the encoded column is ``c_<name>``.
        kind: ``categorical``, ``hour_of_day`` or ``day_of_week``.
        vocabulary: known values of a categorical, most frequent first; they have the codes from 1 on.
        hash_buckets: buckets for other values of a categorical, behind the vocabulary.
        time_zone: whose clock tells hour and day.
    """

    name: str
    kind: Literal["categorical", "hour_of_day", "day_of_week"]
    vocabulary: tuple[str, ...] = ()
    hash_buckets: int = 0
    time_zone: str = "UTC"

    @property
    def field_name(self) -> str:
        """Name of the encoded column."""
        return f"c_{self.name}"

    @property
    def size(self) -> int:
        """Number of codes, 0 included: 1 + V + H of a categorical, 25 of an hour, 8 of a day."""
        if self.kind == "categorical":
            return 1 + len(self.vocabulary) + self.hash_buckets
        return 1 + (_HOURS if self.kind == "hour_of_day" else _DAYS)

    @property
    def is_derived(self) -> bool:
        """Whether the time of a query tells the feature."""
        return self.kind != "categorical"

    @cached_property
    def codes(self) -> dict[str, int]:
        """Code of each value of the vocabulary."""
        return {value: place for place, value in enumerate(self.vocabulary, start=1)}

    @cached_property
    def _known(self) -> pa.Array:
        return pa.array(self.vocabulary, type=pa.string())

    def code_of(self, value: str) -> int:
        """Return the code of one value of a categorical that is not empty; see `encode`."""
        return self.codes.get(value) or 1 + len(self.vocabulary) + _hash_of(value) % self.hash_buckets

    def encode(self, values: pa.Array) -> Codes:
        """Return the code of each value of a categorical, 0 for null; int32 ``[n]``."""
        found = pc.index_in(values, value_set=self._known)
        codes = np.array(pc.fill_null(found, -1), dtype=np.int32) + 1
        unknown = np.flatnonzero((codes == 0) & np.asarray(values.is_valid(), dtype=bool))
        if len(unknown):
            buckets = hash_strings(values.take(pa.array(unknown))) % np.uint64(self.hash_buckets)
            codes[unknown] = 1 + len(self.vocabulary) + buckets.astype(np.int32)
        return codes

    def encode_times(self, times_us: npt.NDArray[np.int64]) -> Codes:
        """Return the code of each time, microseconds UTC: hour + 1, or 1 (Monday) to 7 (Sunday); int32 ``[n]``."""
        hours = _local(times_us, self.time_zone) // _HOUR_US
        if self.kind == "hour_of_day":
            return (hours % _HOURS + 1).astype(np.int32)
        return ((hours // _HOURS + _FIRST_DAY) % _DAYS + 1).astype(np.int32)


@lru_cache(maxsize=4096)
def _hash_of(value: str) -> int:
    return int(hash_strings(pa.array([value.encode("utf-8", "replace").decode()], type=pa.string()))[0])


def _local(times_us: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """Return what a clock of ``zone`` shows, as microseconds."""
    if zone == "UTC":
        return times_us
    shown = pc.local_timestamp(pa.array(times_us).cast(pa.timestamp("us", zone)))
    return np.asarray(shown.cast(pa.int64()))


@dataclass(frozen=True)
class ContextSet:
    """The context features of a dataset or an encoder, fitted.

    Attributes:
        features: in the order of the config, which is that of the query tower's input.
    """

    features: tuple[ContextFeature, ...] = field(default_factory=tuple)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(feature.name for feature in self.features)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each feature."""
        return tuple(feature.size for feature in self.features)

    @property
    def schema(self) -> list[pa.Field]:
        """Fields of the encoded columns."""
        return [pa.field(feature.field_name, pa.int32(), nullable=False) for feature in self.features]

    @classmethod
    def fit(cls, configs: Sequence[ContextConfig], counts: pa.Table) -> ContextSet:
        """Choose the vocabularies: the most frequent values, equal frequencies by value.

        Args:
            configs: the ``[[interactions.context]]``.
            counts: training events as `recsys_cg.data.context_values.counts_schema`; a value may have several rows.
        """
        merged = counts.group_by(["name", "value"]).aggregate([("count", "sum")])
        ordered = merged.sort_by([("count_sum", "descending"), ("value", "ascending")])
        features = []
        for config in configs:
            own = ordered.filter(pc.equal(ordered.column("name"), config.name)).column("value")
            is_categorical = config.kind == "categorical"
            features.append(
                ContextFeature(
                    config.name,
                    config.kind,
                    vocabulary=tuple(own.slice(0, config.max_vocabulary).to_pylist()) if is_categorical else (),
                    hash_buckets=config.hash_buckets if is_categorical else 0,
                    time_zone=config.time_zone,
                )
            )
        return cls(tuple(features))

    def require_match(self, configs: Sequence[ContextConfig]) -> None:
        """Raise `SourceError` unless ``configs`` name these features: those of an encoder that is kept."""
        wanted = [(feature.name, feature.kind, feature.time_zone) for feature in self.features]
        given = [(config.name, config.kind, config.time_zone) for config in configs]
        if wanted != given:
            raise SourceError(
                f"the encoder that is kept reads the context features {_listed(wanted)}, and [[interactions.context]] "
                f"declares {_listed(given)}: keep them as they were, or train anew"
            )

    def encode(
        self,
        values: Sequence[pa.Array],
        times_us: npt.NDArray[np.int64],
        *,
        places: npt.NDArray[np.integer] | None = None,
    ) -> pa.Table:
        """Encode events to columns ``c_<name>`` int32.

        Args:
            values: of each categorical feature in order, strings ``[n]``, null where missing.
            times_us: int64 ``[n]``, microseconds UTC.
            places: int ``[n]``, where in ``values`` each event's value stands; None: they stand event by event.
        """
        rest = iter(values)
        columns = []
        for feature in self.features:
            codes = feature.encode_times(times_us) if feature.is_derived else feature.encode(next(rest))
            columns.append(pa.array(codes if feature.is_derived or places is None else codes[places]))
        return pa.table(columns, schema=pa.schema(self.schema))

    def translate(self, queries: pa.Table, wanted: ContextSet) -> pa.Table:
        """Return ``queries`` with the codes of ``wanted`` in place of those of this set.

        What the time tells is read off ``time_us``. A categorical value is looked up anew where this set's vocabulary
        names it; one that only has a hash bucket here, and a feature that this set lacks, become 0, nothing known.

        Args:
            queries: `recsys_cg.schema.queries_schema` with the columns of this set.
            wanted: the features to encode for.
        """
        if self == wanted:
            return queries
        present = [feature for feature in self.features if feature.field_name in queries.column_names]
        own = {feature.name: feature for feature in present if not feature.is_derived}
        kept = queries.drop_columns([feature.field_name for feature in present])
        for feature, column in zip(wanted.features, wanted.schema, strict=True):
            if feature.is_derived:
                codes = feature.encode_times(queries.column("time_us").to_numpy())
            elif feature.name in own:
                codes = _recode(queries.column(column.name).to_numpy(), own[feature.name], feature)
            else:
                codes = np.zeros(queries.num_rows, np.int32)
            kept = kept.append_column(column, pa.array(codes))
        return kept

    def to_list(self) -> list[dict[str, Any]]:
        """Return the features as JSON values."""
        return [asdict(feature) for feature in self.features]

    @classmethod
    def from_list(cls, entries: Iterable[Any]) -> ContextSet:
        """Read what `to_list` gave.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        found = tuple(ContextFeature(**{**entry, "vocabulary": tuple(entry["vocabulary"])}) for entry in entries)
        for feature in found:
            if feature.kind not in ("categorical", "hour_of_day", "day_of_week"):
                raise ValueError(f"context {feature.name!r} is of kind {feature.kind!r}")
            if feature.kind == "categorical" and feature.hash_buckets < 1:
                raise ValueError(f"context {feature.name!r} has {feature.hash_buckets} hash buckets")
        return cls(found)

    def to_json(self) -> str:
        """Return the set as JSON text."""
        return json.dumps({"schema": _FORMAT, "context": self.to_list()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> ContextSet:
        """Read what `to_json` wrote.

        Raises:
            ArtifactCorruptError: the text is no such JSON.
        """
        try:
            return cls.from_list(json.loads(text)["context"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactCorruptError(f"context.json is damaged: {error!r}") from error


def _listed(features: Sequence[tuple[str, str, str]]) -> str:
    return (
        ", ".join(f"{name} ({kind}, {zone})" if kind != "categorical" else name for name, kind, zone in features)
        or "none"
    )


def _recode(codes: Codes, own: ContextFeature, wanted: ContextFeature) -> Codes:
    table = np.zeros(own.size, np.int32)
    table[1 : 1 + len(own.vocabulary)] = wanted.encode(pa.array(own.vocabulary, type=pa.string()))
    return table[codes]
