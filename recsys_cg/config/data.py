"""Sections that describe the user's data: sources, catalogue, dataset."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Annotated, Any, Final, Literal, Self, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from recsys_cg.config.section import Fraction, Positive, Section, one_of
from recsys_cg.extensions import is_extension

__all__ = [
    "ContextConfig",
    "DatasetConfig",
    "FeatureConfig",
    "ImpressionsConfig",
    "InteractionsConfig",
    "ItemsConfig",
    "ProjectConfig",
    "SourceFormat",
    "SourceSection",
    "TimeUnit",
]

_Section = TypeVar("_Section", bound=Section)

_UNITS: Final = ("s", "ms", "us", "ns", "iso8601")
_DIRECTIVES: Final = tuple("YymdbBaAHIMSpjz%")
_DIRECTIVE: Final = re.compile("%(.?)")
SourceFormat = Literal["auto", "csv", "tsv", "jsonl", "parquet", "avro", "recbole"]


def _check_instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a zone, e.g. 2026-01-31T00:00:00Z")
    return value.astimezone(UTC)


def _refuse_numbers(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("a time is written as e.g. 2026-01-31T00:00:00Z")
    return value


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("no such time zone; write e.g. 'UTC' or 'Europe/London'") from error
    return name


def _check_unit(unit: str) -> str:
    if unit in _UNITS:
        return unit
    if "%" not in unit:
        nearest = difflib.get_close_matches(unit, _UNITS, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ValueError(f"a time is in {', '.join(_UNITS)}, or a pattern like '%m/%d/%Y %H:%M'{hint}")
    found = _DIRECTIVE.findall(unit)
    foreign = [name for name in found if name not in _DIRECTIVES]
    if foreign:
        raise ValueError(f"a pattern may hold {' '.join(f'%{name}' for name in _DIRECTIVES)}, and not %{foreign[0]}")
    if not {"Y", "y"} & set(found) or not {"d", "j"} & set(found):
        raise ValueError("a pattern needs a year and a day")
    return unit


TimeUnit = Annotated[str, AfterValidator(_check_unit)]
Instant = Annotated[datetime, Field(strict=False), BeforeValidator(_refuse_numbers), AfterValidator(_check_instant)]
Zone = Annotated[str, AfterValidator(_check_zone)]


def _check_columns_differ(section: _Section, keys: Sequence[str]) -> _Section:
    """Refuse one column under two of ``keys``: one of them is a slip."""
    for first, second in combinations(keys, 2):
        column = getattr(section, first)
        if column is not None and column == getattr(section, second):
            raise ValueError(f"{first} and {second} name one column, {column!r}")
    return section


def _check_named_once(names: Sequence[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what} names are used twice: {', '.join(twice)}")


class ProjectConfig(Section):
    """``[project]``"""

    name: str = Field("project", min_length=1, max_length=100, description="shown in reports and releases")
    seed: int = Field(42, ge=0, le=2**31 - 1, description="seed of everything that is drawn")


class ContextConfig(Section):
    """``[[interactions.context]]``: one thing that is known of a query when it is asked, such as the user's device.

    Training takes it from the row of the event that is to be predicted, so it must be known before the item is.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)
    kind: Literal["categorical", "hour_of_day", "day_of_week"] = Field(
        description="hour_of_day and day_of_week are read off the event's time"
    )
    column: str | None = Field(None, description="categorical: column of the log; default: the feature's name")
    max_vocabulary: int = Field(1_000, ge=1, description="categorical: most frequent values kept as entries")
    hash_buckets: int = Field(16, ge=1, description="categorical: buckets for values outside the vocabulary")
    time_zone: Zone = Field("UTC", description="hour_of_day, day_of_week: zone whose clock is read")

    @property
    def source_column(self) -> str | None:
        """Column of the log that holds the feature; None for what the time tells."""
        return (self.column or self.name) if self.kind == "categorical" else None

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> Self:
        foreign = ("time_zone",) if self.kind == "categorical" else ("column", "max_vocabulary", "hash_buckets")
        for name in foreign:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is no option of {self.kind} context, and {self.name} is {self.kind}")
        return self


class SourceSection(Section):
    """A section that describes a source."""

    path: str = Field(min_length=1, description="file, folder, glob or fsspec URL")
    format: SourceFormat = "auto"
    delimiter: str | None = Field(None, min_length=1, max_length=1, description="of CSV or TSV: comma or tab")
    columns: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="names of the columns of CSV or TSV without a header line, all of them"
    )

    @model_validator(mode="after")
    def _lines_can_be_cut(self) -> Self:
        if self.delimiter in ('"', "\n", "\r"):
            raise ValueError(f"delimiter = {self.delimiter!r} cannot separate fields")
        _check_named_once(self.columns, "columns:")
        return self


class InteractionsConfig(SourceSection):
    """``[interactions]``: who did what, when."""

    user: str = Field("user_id", description="column of the user's identifier")
    item: str = Field("item_id", description="column of the item's identifier")
    time: str = Field("timestamp", description="column of the time")
    time_unit: TimeUnit = Field("s", description="s, ms, us, ns, iso8601, or a pattern like %m/%d/%Y %I:%M %p")
    time_zone: Zone = Field("UTC", description="zone of written times that carry none")
    event: str | None = Field(None, description="column of the event type")
    event_weights: dict[str, Annotated[float, Field(ge=0.0)]] = Field(
        default_factory=dict, description="event type -> weight; other types are filtered out; empty: all weigh 1"
    )
    filters: list[str] = Field(default_factory=list, description='rows to keep, e.g. ["quantity > 0"]')
    context: list[ContextConfig] = Field(default_factory=list, description="what is known of a query when it is asked")

    @model_validator(mode="after")
    def _events_need_a_column(self) -> Self:
        if self.event_weights and self.event is None:
            raise ValueError("event_weights needs event, the column that holds the event type")
        if self.event_weights and not any(self.event_weights.values()):
            raise ValueError("event_weights are all 0: nothing would be learned from any event")
        return self

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        return _check_columns_differ(self, ("user", "item", "time", "event"))

    @model_validator(mode="after")
    def _context_tells_no_target(self) -> Self:
        _check_named_once([feature.name for feature in self.context], "context")
        for feature in self.context:
            if feature.source_column == self.item:
                raise ValueError(f"context {feature.name!r} is the item's column: a query cannot know its answer")
            if feature.source_column == self.time:
                raise ValueError(
                    f'context {feature.name!r} is the column of the time: use kind = "hour_of_day" or "day_of_week"'
                )
        return self


class FeatureConfig(Section):
    """``[[items.features]]``: one content feature of an item."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)
    kind: Annotated[str, one_of("categorical", "text", "numeric", "dense")]
    column: str | None = Field(None, description="column of the catalogue; default: the feature's name")
    separator: str | None = Field(None, min_length=1, description="splits a categorical into several values")
    max_vocabulary: int = Field(20_000, ge=1, description="most frequent values kept as entries of their own")
    min_items: int = Field(
        2, ge=1, description="fewest items known in training time that an entry needs: a value of one is another id"
    )
    hash_buckets: int = Field(64, ge=1, description="buckets for values outside the vocabulary")
    max_values: int = Field(24, ge=1, description="values or tokens kept an item")
    knots: int = Field(
        16,
        ge=0,
        le=256,
        description="numeric: quantiles at which what a value says may bend, 4 bytes an item each; 0: it is linear",
    )
    dim: int | None = Field(None, ge=1, description="length of a dense vector")
    options: dict[str, Any] = Field(default_factory=dict, description="what a kind of your own is fitted with")

    @property
    def source_column(self) -> str:
        """Column of the catalogue that holds the feature."""
        return self.column or self.name

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> Self:
        if self.separator is not None and self.kind != "categorical":
            raise ValueError(f"separator is for categorical features, and {self.name} is {self.kind}")
        if (self.dim is not None) != (self.kind == "dense"):
            raise ValueError(f"dim is needed by dense features and by no other; {self.name} is {self.kind}")
        if self.knots != type(self).model_fields["knots"].default and self.kind != "numeric":
            raise ValueError(f"knots are for numeric features, and {self.name} is {self.kind}")
        if self.knots in (1, 2):
            raise ValueError(f"knots = {self.knots}: nothing bends at fewer than 3; 0 says that {self.name} is linear")
        if self.options and not is_extension(self.kind):
            raise ValueError(f"options are those of a kind of your own, and {self.name} is {self.kind}")
        return self


class ItemsConfig(SourceSection):
    """``[items]``: the catalogue. Without this section the items are those of the interactions."""

    item: str = "item_id"
    title: str | None = Field(None, description="column shown to people")
    available_from: str | None = Field(None, description="column of the time from which an item may be retrieved")
    available_until: str | None = Field(None, description="column of the time from which it may not")
    time_unit: TimeUnit = "s"
    time_zone: Zone = "UTC"
    features: list[FeatureConfig] = Field(default_factory=list)

    @model_validator(mode="after")
    def _features_are_named_once(self) -> Self:
        _check_named_once([feature.name for feature in self.features], "feature")
        return self


class ImpressionsConfig(SourceSection):
    """``[impressions]``: what was shown, where, by which policy (optional)."""

    user: str = "user_id"
    item: str = "item_id"
    time: str = "timestamp"
    time_unit: TimeUnit = "s"
    time_zone: Zone = "UTC"
    position: str | None = None
    policy: str | None = None
    propensity: str | None = Field(None, description="column of the probability of being shown")
    random: str | None = Field(None, description="column that marks uniformly random exposure")

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        return _check_columns_differ(self, ("user", "item", "time"))


class DatasetConfig(Section):
    """``[dataset]``: cleaning, splits and evaluation queries."""

    validation_fraction: Fraction = Field(0.1, description="share of the events, by time, before the test window")
    test_fraction: Fraction = Field(0.1, description="share of the events, by time, at the end")
    validation_from: Instant | None = Field(None, description="start of the validation window, instead of fractions")
    test_from: Instant | None = Field(None, description="start of the test window, instead of fractions")
    test_until: Instant | None = Field(None, description="end of the test window (exclusive)")
    dedupe: bool = Field(True, description="keep one of equal (user, item, time)")
    min_user_events: Positive = 1
    min_item_events: Positive = 1
    max_user_events: Positive = Field(20_000, description="newest kept of a user in each window; the rest is counted")
    max_history: int = Field(50, ge=1, le=1000, description="items of a query's history")
    targets: Literal["next", "window"] = Field(
        "next", description="a query an event, or a query a user with all that the window holds"
    )
    unknown_items: Literal["keep", "reject"] = Field("keep", description="interactions with an item not catalogued")
    max_rejects: Fraction = Field(0.01, description="share of refused rows that stops the run")
    block_rows: Positive = Field(100_000, description="rows of an Arrow block")
    shards: Positive = Field(8, description="groups of users that are worked on together")
    runner: list[str] = Field(default_factory=list, description='Beam flags, e.g. ["--runner=FlinkRunner"]')

    @model_validator(mode="after")
    def _windows_are_in_order(self) -> Self:
        if (self.validation_from is None) != (self.test_from is None):
            raise ValueError("validation_from and test_from go together")
        if self.validation_from and self.test_from and self.validation_from > self.test_from:
            raise ValueError("validation_from is after test_from")
        if self.test_until and not self.test_from:
            raise ValueError("test_until needs test_from")
        if self.test_until and self.test_from and self.test_from >= self.test_until:
            raise ValueError("test_from is not before test_until")
        if self.validation_from is None and not 0 < self.validation_fraction + self.test_fraction < 1:
            raise ValueError("validation_fraction + test_fraction must lie between 0 and 1, both excluded")
        return self
