"""Content features: what a catalogue says of an item, as columns a model can read.

Vocabularies and scales are fitted on the items known in training time only; every other value goes to a hash bucket.
Row 0 of a vocabulary is padding, 1 to V its entries from the most frequent on, V+1 to V+H the hash buckets. A value of
fewer than ``min_items`` of those items is no entry: one that a single item has is another id, and tells of no other.

Taste is not linear in years or prices. A number is therefore given by its place between the quantiles of training time,
too: a piecewise linear encoding (Gorishniy, Rubachev and Babenko 2022, section 3.2, there by ramps, here by hat
functions, which stay level beyond the last one), in which a linear tower can bend at each of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import FeatureConfig
from recsys_cg.data.digests import content_digests
from recsys_cg.data.identifiers import hash_strings
from recsys_cg.data.values import Ragged, dense_rows, numeric_values, split_values, tokenize
from recsys_cg.errors import ArtifactCorruptError, SourceError
from recsys_cg.extensions import call_extension, is_extension, load_extension

__all__ = ["Feature", "FeatureEncoder", "FeatureSet", "content_digests"]

_CLIP = 10.0
_FORMAT = 1


class FeatureEncoder(Protocol):
    """A kind of feature from outside the package: what a catalogue column becomes, as floats.

    Attributes:
        dim: floats an item.
    """

    dim: int

    @classmethod
    def fit(cls, column: pa.ChunkedArray, **options: Any) -> Self:
        """Learn from the items known in training time: ``column`` is strings or lists of strings, nulls among them."""

    def encode(self, column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
        """Return float32 [n, dim], finite, row for row; what is missing is the encoder's own to say."""

    def to_json(self) -> Mapping[str, Any]:
        """Return all that `from_json` needs, as JSON values; they are kept in features.json."""

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Return what `to_json` was called on."""


@dataclass(frozen=True)
class Feature:
    """One fitted feature.

    Attributes:
        name: its name; the encoded column is ``f_<name>``.
        kind: ``categorical``, ``text``, ``numeric``, ``dense``, or a `FeatureEncoder` from outside by its name.
        column: column of the catalogue.
        max_values: values or tokens kept an item (categorical, text); else 1.
        separator: splits a categorical into several values.
        vocabulary: values of enough known items, most frequent first.
        hash_buckets: buckets for other values.
        centre: median of a numeric in training time; 0 for other kinds.
        scale: its interquartile range (its standard deviation, then 1, where that is zero); 1 for other kinds.
        knots: numbers between which it is interpolated, rising; none where it has two values at most, and for other
            kinds.
        dim: length of a dense vector, or of what a kind from outside gives; else 0.
        state: what a kind from outside learned; None for other kinds.
    """

    name: str
    kind: str
    column: str
    max_values: int = 1
    separator: str | None = None
    vocabulary: tuple[str, ...] = ()
    hash_buckets: int = 0
    centre: float = 0.0
    scale: float = 1.0
    knots: tuple[float, ...] = ()
    dim: int = 0
    state: Mapping[str, Any] | None = None

    @property
    def field_name(self) -> str:
        """Name of the encoded column."""
        return f"f_{self.name}"

    @property
    def size(self) -> int:
        """Rows of an embedding table for the feature, padding included: 1 + V + H; 0 for numeric and dense."""
        return 1 + len(self.vocabulary) + self.hash_buckets if self.kind in ("categorical", "text") else 0

    @property
    def width(self) -> int:
        """Numbers an item: 2 and one a knot for numeric, ``dim`` for dense and kinds from outside, else 0."""
        return 2 + len(self.knots) if self.kind == "numeric" else self.dim

    @cached_property
    def _known(self) -> pa.Array:
        return pa.array(self.vocabulary, type=pa.string())

    def encode(self, column: pa.ChunkedArray) -> pa.Array:
        """Encode one catalogue column, row for row.

        Returns:
            ``list<int32>`` for categorical and text; ``fixed_size_list<float32>[width]`` for numeric: (value - centre)
            / scale within [-10, 10], 0.0, and the shares of the two knots around it, which sum to one (all of the
            first or last knot's beyond it), or 0.0, 1.0 and zeros where it is missing;
            ``fixed_size_list<float32>[dim]`` for dense, zeros where it is missing; for a kind from outside what it
            gives.

        Raises:
            SourceError: a dense vector, or what a kind from outside gave, is of another length or not finite.
            ConfigError: the kind from outside is not installed here.
        """
        if is_extension(self.kind):
            return self._encode_outside(column)
        if self.kind == "numeric":
            return self._encode_numeric(numeric_values(column, self.column))
        if self.kind == "dense":
            rows, wrong = dense_rows(column, self.column, self.dim)
            if wrong.any():
                raise SourceError(
                    f"feature {self.name!r}: row {int(np.flatnonzero(wrong)[0]) + 1} of the catalogue holds no vector "
                    f"of {self.dim} finite numbers"
                )
            return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), self.dim)
        return self._encode_values(_read_values(self.kind, column, self.column, self.separator), len(column))

    def _encode_outside(self, column: pa.ChunkedArray) -> pa.Array:
        encoder = _load_encoder(self.kind, self.name).from_json(self.state or {})
        rows = np.asarray(encoder.encode(column), dtype=np.float32)
        if rows.shape != (len(column), self.dim) or not np.isfinite(rows).all():
            raise SourceError(
                f"feature {self.name!r}: {self.kind} gave an array of shape {rows.shape} for {len(column)} items; "
                f"{self.dim} finite numbers an item are due"
            )
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), self.dim)

    def _encode_numeric(self, values: npt.NDArray[np.float64]) -> pa.Array:
        missing = np.isnan(values)
        with np.errstate(over="ignore"):  # what overflows is clipped
            scaled = np.clip((np.where(missing, self.centre, values) - self.centre) / self.scale, -_CLIP, _CLIP)
        rows = np.zeros((len(values), self.width), np.float32)
        rows[:, 0], rows[:, 1] = scaled, missing
        if self.knots:
            there = np.flatnonzero(~missing)
            before, share = _between(values[there], np.array(self.knots))
            rows[there, 2 + before], rows[there, 3 + before] = 1.0 - share, share
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), self.width)

    def _encode_values(self, pairs: Ragged, count: int) -> pa.Array:
        pairs = pairs.limit(self.max_values)
        found = pc.index_in(pairs.values, value_set=self._known)
        codes = np.array(pc.fill_null(found, -1), dtype=np.int64) + 1
        unknown = np.flatnonzero(codes == 0)
        buckets = hash_strings(pairs.values.take(pa.array(unknown))) % np.uint64(self.hash_buckets)
        codes[unknown] = 1 + len(self.vocabulary) + buckets.astype(np.int64)
        offsets = np.searchsorted(pairs.rows, np.arange(count + 1)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(codes.astype(np.int32)))


def _read_values(kind: str, column: pa.ChunkedArray, name: str, separator: str | None) -> Ragged:
    return tokenize(column, name) if kind == "text" else split_values(column, name, separator)


def _load_encoder(kind: str, name: str) -> type[FeatureEncoder]:
    methods = ("fit", "encode", "to_json", "from_json")
    found: type[FeatureEncoder] = load_extension(kind, key=f"items.features.{name}.kind", methods=methods)
    return found


def _fit_outside(config: FeatureConfig, known: pa.ChunkedArray) -> dict[str, Any]:
    fit = _load_encoder(config.kind, config.name).fit
    encoder = call_extension(fit, config.kind, config.options, known, key=f"items.features.{config.name}")
    return {"dim": int(encoder.dim), "state": dict(encoder.to_json())}


def _fit_one(catalogue: pa.Table, config: FeatureConfig, training: pa.Array) -> Feature:
    column = catalogue.column(config.source_column)
    known = column.filter(training)
    common: dict[str, Any] = {"name": config.name, "kind": config.kind, "column": config.source_column}
    if is_extension(config.kind):
        return Feature(**common, **_fit_outside(config, known))
    if config.kind == "dense":
        return Feature(**common, dim=config.dim or 0)
    if config.kind == "numeric":
        numeric_values(column, config.source_column)
        values = numeric_values(known, config.source_column) if len(known) else np.zeros(0)
        present = values[~np.isnan(values)]
        centre, scale = _fit_scale(present)
        return Feature(**common, centre=centre, scale=scale, knots=_fit_knots(present, config.knots))
    entries = _read_values(config.kind, known, config.source_column, config.separator).values
    return Feature(
        **common,
        max_values=config.max_values,
        separator=config.separator,
        vocabulary=_most_frequent(entries, config.max_vocabulary, least=config.min_items),
        hash_buckets=config.hash_buckets,
    )


def _most_frequent(values: pa.Array, most: int, *, least: int) -> tuple[str, ...]:
    counted = pc.value_counts(values)
    table = pa.table({"value": counted.field("values"), "count": counted.field("counts")})
    frequent = table.filter(pc.greater_equal(table["count"], least))
    ordered = frequent.sort_by([("count", "descending"), ("value", "ascending")])
    return tuple(ordered.column("value").slice(0, most).to_pylist())


def _fit_scale(present: npt.NDArray[np.float64]) -> tuple[float, float]:
    if not len(present):
        return 0.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest float have no finite spread
        low, centre, high = np.quantile(present, [0.25, 0.5, 0.75])
        spread = float(high - low) or float(np.std(present))
    return float(centre), spread if np.isfinite(spread) and spread > 0 else 1.0


def _fit_knots(present: npt.NDArray[np.float64], most: int) -> tuple[float, ...]:
    """Return up to ``most`` distinct numbers with about as many items around each; none where these are fewer than 3.

    A number that more than one of ``most`` items has is one of them. The others are quantiles of the rest, of the
    middles of as many equal parts, so that an outlier is none: it would be known by itself alone.
    """
    if not len(present) or most < 3:
        return ()
    values, counts = np.unique(present / 2, return_counts=True)
    frequent = most * counts > len(present)
    rest = most - int(np.count_nonzero(frequent))
    others = np.repeat(values[~frequent], counts[~frequent])
    if len(others):
        others = np.quantile(others, (np.arange(rest) + 0.5) / rest, method="nearest")
    halves = np.unique(np.concatenate([values[frequent], others]))
    return tuple((2 * halves).tolist()) if len(halves) >= 3 else ()


def _between(
    values: npt.NDArray[np.float64], knots: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return of each value the knot before it and its way to the next one, in [0, 1]; halves do not overflow."""
    halves = knots / 2
    inside = np.clip(values / 2, halves[0], halves[-1])
    before = np.minimum(np.searchsorted(halves, inside, side="right") - 1, len(halves) - 2)
    return before, (inside - halves[before]) / (halves[before + 1] - halves[before])


@dataclass(frozen=True)
class FeatureSet:
    """The content features of a dataset, fitted.

    Attributes:
        features: in the order of the config.
    """

    features: tuple[Feature, ...] = field(default_factory=tuple)

    @classmethod
    def fit(
        cls, catalogue: pa.Table, configs: Sequence[FeatureConfig], training_mask: npt.NDArray[np.bool_]
    ) -> FeatureSet:
        """Fit vocabularies and scales on the rows that ``training_mask`` marks.

        A value's frequency is the number of marked items that have it; equal frequencies are ordered by value, and
        those below ``min_items`` are left out.

        Args:
            catalogue: one row an item, with the source columns of ``configs``.
            configs: the ``[[items.features]]``.
            training_mask: bool ``[n]``, items known in training time.

        Raises:
            SourceError: a column cannot be what its feature says.
        """
        training = pa.array(training_mask)
        return cls(tuple(_fit_one(catalogue, config, training) for config in configs))

    def encode(self, catalogue: pa.Table) -> pa.Table:
        """Encode ``catalogue`` row for row to columns ``f_<name>``; see `Feature.encode`.

        Raises:
            SourceError: a column is missing, or a dense vector is wrong.
        """
        missing = [feature.column for feature in self.features if feature.column not in catalogue.column_names]
        if missing:
            there = ", ".join(name for name in catalogue.column_names if not name.startswith("@")) or "none"
            raise SourceError(
                f"the features were fitted on column {missing[0]!r} of the catalogue, which is not read now: keep the "
                f"encoder's [[items.features]]; columns read: {there}"
            )
        encoded = [feature.encode(catalogue.column(feature.column)) for feature in self.features]
        if not encoded:
            return catalogue.select([])
        return pa.table(encoded, names=[feature.field_name for feature in self.features])

    def to_json(self) -> str:
        """Return the set as JSON text."""
        return json.dumps(
            {"schema": _FORMAT, "features": [asdict(feature) for feature in self.features]}, ensure_ascii=False
        )

    @classmethod
    def from_json(cls, text: str) -> FeatureSet:
        """Read what `to_json` wrote.

        Raises:
            ArtifactCorruptError: the text is no such JSON.
        """
        try:
            entries = json.loads(text)["features"]
            lists = ("vocabulary", "knots")
            read = [entry | {name: tuple(entry[name]) for name in lists if name in entry} for entry in entries]
            return cls(tuple(Feature(**entry) for entry in read))
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactCorruptError(f"features.json is damaged: {error!r}") from error
