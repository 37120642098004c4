"""From glimpses of the user's files to sections of a project file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cg.config import InteractionsConfig, ItemsConfig
from recsys_cg.data.inspection.features import propose_features
from recsys_cg.data.inspection.glimpse import Glimpse, look
from recsys_cg.data.inspection.habits import propose_settings
from recsys_cg.data.inspection.notation import fits
from recsys_cg.data.inspection.profile import Profile, profile_column
from recsys_cg.data.inspection.roles import (
    find_event,
    find_item,
    find_named,
    find_time,
    find_title,
    find_user,
    match_catalogue,
    take_given,
)
from recsys_cg.errors import ConfigError

__all__ = ["Proposal", "inspect_sources"]

_ROWS: Final = 30_000
_FROM: Final = ("available from", "valid from", "available since")
_UNTIL: Final = ("available until", "valid until", "available to", "valid to", "expires at", "expiry date")
_QUANTITIES: Final = ("quantity", "qty", "amount", "units", "count")
_RATINGS: Final = ("rating", "stars", "score", "overall", "grade")
_TOLERATED: Final = 0.008
_VARYING: Final = 0.25


@dataclass(frozen=True)
class Proposal:
    """A proposed project file.

    Attributes:
        interactions: the section, complete.
        items: the section, complete; None without a catalogue.
        settings: ``section.key`` -> (value, why), where the rows looked at ask for another value than the default.
        comments: ``section.key`` -> what was seen, e.g. sample values.
        hints: key of ``[interactions]`` -> a value that the user may want, and why; written commented out.
        skipped: column of the catalogue -> why it is no feature.
    """

    interactions: InteractionsConfig
    items: ItemsConfig | None
    settings: Mapping[str, tuple[Any, str]]
    comments: Mapping[str, str]
    hints: Mapping[str, tuple[Any, str]]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class _Roles:
    user: Profile
    item: Profile
    time: Profile
    event: Profile | None
    rest: list[Profile]


def inspect_sources(
    interactions: str,
    items: str | None = None,
    *,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    time_unit: str | None = None,
) -> Proposal:
    """Look at the first rows of the sources and propose the sections that describe them.

    Format, columns, time unit and feature kinds are guessed from names and from the values of up to 30,000 rows of
    each source: a type of event or a long list that comes later is not seen.

    Args:
        interactions: file, folder, glob or fsspec URL.
        items: the same for the catalogue; None: there is none.
        user: column of the user, when it is known.
        item: column of the item in the interactions, when it is known.
        time: column of the time, when it is known.
        time_unit: its unit or notation, when it is known.

    Raises:
        ConfigError: a column was not found or several fit; the message lists columns with samples and the option
            that settles it.
        SourceError: a source is missing, empty or damaged.
    """
    glimpse = look(interactions, _ROWS)
    catalogue = look(items, _ROWS, "attribute") if items is not None else None
    described = _profile(catalogue) if catalogue is not None else []
    given = {"user": user, "item": item, "time": time}
    roles = _assign_roles(glimpse, given, described, time_unit)
    section, comments, hints = _describe_interactions(glimpse, roles)
    proposed: ItemsConfig | None = None
    skipped: dict[str, str] = {}
    if catalogue is not None:
        proposed, more, skipped = _describe_items(catalogue, described, roles)
        comments |= more
    settings = propose_settings(glimpse.table, roles.user.name, roles.item.name, roles.time.name)
    return Proposal(section, proposed, settings | _more_rejects(roles), comments, hints, skipped)


def _profile(glimpse: Glimpse) -> list[Profile]:
    return [profile_column(name, glimpse.table.column(name)) for name in glimpse.table.column_names]


def _assign_roles(
    glimpse: Glimpse, given: Mapping[str, str | None], described: Sequence[Profile], time_unit: str | None
) -> _Roles:
    profiles = _profile(glimpse)
    if time_unit is not None:
        profiles = [_time_as(profile, time_unit) for profile in profiles]
    known = {
        role: take_given(name, profiles, f"--{role}", glimpse.path) for role, name in given.items() if name is not None
    }
    free = [profile for profile in profiles if profile not in known.values()]
    time = known.get("time") or find_time(free, glimpse.path)
    free = [profile for profile in free if profile is not time]
    values = {profile.name: set(profile.texts) for profile in described}
    with _naming_made_up(glimpse, profiles):
        item = known.get("item") or find_item(free, glimpse.path, values)
        free = [profile for profile in free if profile is not item]
        user = known.get("user") or find_user(free, glimpse.path)
    free = [profile for profile in free if profile is not user]
    event = find_event(free)
    return _Roles(user, item, time, event, [profile for profile in free if profile is not event])


@contextmanager
def _naming_made_up(glimpse: Glimpse, profiles: Sequence[Profile]) -> Iterator[None]:
    """Ask for user and item at once where there is no header line: made-up names tell neither."""
    try:
        yield
    except ConfigError as error:
        if not glimpse.columns:
            raise
        lines = [f"  {profile.name}: {profile.samples}" for profile in profiles]
        likely = [profile.name for profile in profiles if profile.time_unit is None][:2]
        shown = " ".join(f"{option} {name}" for option, name in zip(("--user", "--item"), likely, strict=False))
        raise ConfigError(
            f"{glimpse.path}: the first line holds values, not column names; say which columns they are, e.g. {shown}. "
            "The columns:\n" + "\n".join(lines)
        ) from error


def _time_as(profile: Profile, unit: str) -> Profile:
    readable = bool(profile.texts) and not profile.is_typed_time and fits(profile.texts, unit)
    return replace(profile, time_unit=unit if readable else profile.time_unit if profile.is_typed_time else None)


def _describe_interactions(
    glimpse: Glimpse, roles: _Roles
) -> tuple[InteractionsConfig, dict[str, str], dict[str, tuple[Any, str]]]:
    comments = {f"interactions.{role}": getattr(roles, role).samples for role in ("user", "item", "time")}
    if glimpse.format != glimpse.shown_format:
        comments["interactions.format"] = glimpse.shown_format
    hints: dict[str, tuple[Any, str]] = {}
    filters = []
    if roles.time.time_unit is not None and (roles.time.time_unit == "iso8601" or "%" in roles.time.time_unit):
        comments["interactions.time_zone"] = "of times that carry no zone themselves"
    if roles.event is not None:
        comments["interactions.event"] = roles.event.samples
        weights = dict.fromkeys(sorted(set(roles.event.texts)), 1.0)
        hints["event_weights"] = (weights, "types not named here are left out")
    quantity = find_named(roles.rest, _QUANTITIES)
    if quantity is not None and quantity.numbers is not None and quantity.numbers.min() <= 0:
        filters.append(f"{_as_column(quantity.name)} > 0")
        comments["interactions.filters"] = f"{quantity.name} goes down to {quantity.numbers.min():g}: returns?"
    rating = find_named(roles.rest, _RATINGS)
    graded = rating is not None and rating.numbers is not None and rating.numbers.min() < rating.numbers.max()
    if rating is not None and rating.numbers is not None and graded and not filters:
        better = math.floor(float(rating.numbers.min() + rating.numbers.max()) / 2) + 1
        hints["filters"] = ([f"{_as_column(rating.name)} >= {better}"], "only what was liked")
    section = InteractionsConfig.model_validate(
        {
            "path": glimpse.path,
            "format": glimpse.format,
            "delimiter": glimpse.delimiter,
            "columns": list(glimpse.columns),
            "user": roles.user.name,
            "item": roles.item.name,
            "time": roles.time.name,
            "time_unit": roles.time.time_unit or "s",
            "event": roles.event.name if roles.event is not None else None,
            "filters": filters,
        }
    )
    return section, comments, hints


def _describe_items(
    glimpse: Glimpse, profiles: Sequence[Profile], roles: _Roles
) -> tuple[ItemsConfig, dict[str, str], dict[str, str]]:
    item = match_catalogue(profiles, glimpse.path, roles.item)
    of_events = {profile.name for profile in (roles.user, roles.time, roles.event) if profile is not None}
    free = [profile for profile in profiles if profile is not item and profile.name not in of_events]
    free, skipped = _keep_attributes(glimpse.table, item, free)
    named, unit = _find_availability(free)
    title = find_title(free)
    features, more = propose_features([profile for profile in free if profile.name not in named.values()])
    section = ItemsConfig.model_validate(
        {
            "path": glimpse.path,
            "format": glimpse.format,
            "delimiter": glimpse.delimiter,
            "columns": list(glimpse.columns),
            "item": item.name,
            "title": title.name if title is not None else None,
            "time_unit": unit,
            "features": [feature.model_dump() for feature in features],
            **named,
        }
    )
    samples = {profile.name: profile.samples for profile in profiles}
    comments = {f"items.features.{feature.name}": samples[feature.source_column] for feature in features}
    comments["items.item"] = item.samples
    if glimpse.format != glimpse.shown_format:
        comments["items.format"] = glimpse.shown_format
    if title is not None:
        comments["items.title"] = title.samples
    return section, comments, skipped | more


def _find_availability(profiles: Sequence[Profile]) -> tuple[dict[str, str], str]:
    """Return the columns of the two ends, where they are there and share one unit, and that unit."""
    times = [profile for profile in profiles if profile.time_unit is not None]
    found = {"available_from": find_named(times, _FROM), "available_until": find_named(times, _UNTIL)}
    held = {key: profile for key, profile in found.items() if profile is not None}
    units = {profile.time_unit or "s" for profile in held.values()}
    if len(units) != 1:
        return {}, "s"
    return {key: profile.name for key, profile in held.items()}, units.pop()


def _keep_attributes(
    table: pa.Table, item: Profile, profiles: Sequence[Profile]
) -> tuple[list[Profile], dict[str, str]]:
    """Where items have several rows, keep the columns that tell the item and not the row, one row an item.

    Returns:
        the columns kept, looked at anew, and column -> why it is left out.
    """
    if item.distinct == len(item.texts):
        return list(profiles), {}
    flat = [profile.name for profile in profiles if not profile.is_list and profile.dim is None]
    wanted = [([], "count_all"), *((name, "count_distinct") for name in flat)]
    grouped = table.group_by(item.name).aggregate(wanted)
    several = grouped.filter(pc.greater(grouped["count_all"], 1))
    varying = [name for name in flat if (several[f"{name}_count_distinct"].to_numpy() > 1).mean() > _VARYING]
    table = table.append_column("@row", pa.array(range(table.num_rows)))
    firsts = table.group_by(item.name).aggregate([("@row", "min")])["@row_min"]
    single = table.take(firsts)
    kept = [profile_column(p.name, single.column(p.name)) for p in profiles if p.name not in varying]
    return kept, dict.fromkeys(varying, "differs between rows of one item")


def _more_rejects(roles: _Roles) -> dict[str, tuple[Any, str]]:
    missing = max(profile.missing / profile.rows for profile in (roles.user, roles.item, roles.time))
    if missing <= _TOLERATED:
        return {}
    limit = min(1.0, math.ceil(150 * missing) / 100)
    return {"dataset.max_rejects": (limit, f"{missing:.0%} of the rows looked at lack user, item or time")}


def _as_column(name: str) -> str:
    plain = all(sign.isalnum() or sign in "_-." for sign in name)
    return name if plain else f"`{name}`"
