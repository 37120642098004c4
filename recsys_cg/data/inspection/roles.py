"""Which column is the user, the item, the time, the event type, the title."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from recsys_cg.data.inspection.profile import Profile
from recsys_cg.errors import ConfigError

__all__ = [
    "find_event",
    "find_item",
    "find_named",
    "find_time",
    "find_title",
    "find_user",
    "has_time_word",
    "match_catalogue",
    "normalize",
    "overlap",
    "take_given",
]

_USERS: Final = (
    "user id", "userid", "uid", "user", "customer id", "customerid", "customer", "visitor id", "visitorid", "visitor",
    "member id", "member", "account id", "account", "client id", "client", "reviewer id", "reviewer",
    "buyer id", "buyer", "subscriber id", "subscriber", "viewer id", "viewer", "listener id", "reader id",
    "player id", "profile id",
    "person id", "device id", "cookie id", "session id", "sessionid", "session",
)  # fmt: skip
_ITEMS: Final = (
    "item id", "itemid", "iid", "item", "product id", "productid", "product", "article id", "articleid", "article",
    "movie id", "movieid", "movie", "book id", "bookid", "isbn", "track id", "trackid", "track", "song id", "songid",
    "song", "video id", "videoid", "video", "news id", "newsid", "document id", "doc id", "content id", "parent asin",
    "asin", "sku", "stock code", "stockcode", "listing id", "post id", "page id", "game id", "app id", "artist id",
    "business id", "recipe id", "offer id", "job id", "course id", "show id", "podcast id", "ad id", "url",
)  # fmt: skip
_TIMES: Final = (
    "timestamp", "time", "ts", "event time", "event timestamp", "datetime", "date time", "created at", "occurred at",
    "clicked at", "unix review time", "unix time", "invoice date", "order date", "purchase date", "rated at", "date",
)  # fmt: skip
_TIME_WORDS: Final = ("timestamp", "time", "date", "datetime", "ts", "at")
_EVENTS: Final = (
    "event type", "event name", "event", "action type", "action", "behavior type", "behavior", "behaviour",
    "interaction type", "interaction", "feedback type", "activity type", "activity", "verb", "type",
)  # fmt: skip
_TITLES: Final = (
    "title", "item title", "product title", "movie title", "name", "item name", "product name", "headline", "label",
    "track name", "display name", "description", "short description",
)  # fmt: skip
_MOST_EVENTS: Final = 30
_OVERLAP: Final = 0.5


def normalize(name: str) -> str:
    """Return a column name as lower-case words: ``CustomerID`` and ``customer_id`` are both ``customer id``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    spaced = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", " ", spaced)
    return " ".join(re.findall(r"[^\W_]+", spaced.lower()))


def find_named(profiles: Sequence[Profile], names: Sequence[str]) -> Profile | None:
    """Return the column whose name comes first in ``names``."""
    by_name = {normalize(profile.name): profile for profile in reversed(profiles)}
    return next((by_name[name] for name in names if name in by_name), None)


def take_given(given: str, profiles: Sequence[Profile], option: str, path: str) -> Profile:
    """Return the column that the user named with ``option``.

    Raises:
        ConfigError: there is none of that name.
    """
    for profile in profiles:
        if profile.name == given:
            return profile
    known = [profile.name for profile in profiles]
    nearest = difflib.get_close_matches(given, known, n=1, cutoff=0.4)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; it has {', '.join(map(repr, known))}"
    raise ConfigError(f"{option} {given}: {path} has no such column{hint}")


def find_time(profiles: Sequence[Profile], path: str) -> Profile:
    """Return the column of the time: by name where its values are times, else the only one whose values are.

    Raises:
        ConfigError: none or several fit, or the column named like a time cannot be read.
    """
    usable = [profile for profile in profiles if profile.time_unit is not None]
    named = find_named(usable, _TIMES)
    if named is not None:
        return named
    for fitting in (
        [profile for profile in usable if profile.is_typed_time],
        [profile for profile in usable if has_time_word(profile)],
        [profile for profile in usable if profile.numbers is None],
        usable,
    ):
        if len(fitting) == 1:
            return fitting[0]
    unread = find_named(profiles, _TIMES)
    if unread is not None and not usable:
        raise ConfigError(
            f"{path}: column {unread.name!r} is named like a time, and its values ({unread.samples}) are neither "
            "counts of s, ms, us or ns since 1970, nor ISO 8601 (2026-01-31 18:05:00), nor of one other notation alone "
            "(day or month first?): give it with --time-unit, e.g. '%d/%m/%Y %H:%M', or another column with --time"
        )
    raise _unclear(path, "time", "--time", usable or profiles)


def find_item(profiles: Sequence[Profile], path: str, catalogue: Mapping[str, Collection[str]]) -> Profile:
    """Return the column of the item: by name, or the one whose values are in a column of the catalogue.

    Args:
        profiles: columns that are still free.
        path: for errors.
        catalogue: column of the catalogue -> its values; empty without one.

    Raises:
        ConfigError: none or several fit.
    """
    named = find_named(profiles, _ITEMS)
    if named is not None:
        return named
    matched = [
        profile for profile in profiles if any(overlap(profile, values) >= _OVERLAP for values in catalogue.values())
    ]
    if len(matched) == 1:
        return matched[0]
    raise _unclear(path, "item", "--item", matched or profiles)


def match_catalogue(profiles: Sequence[Profile], path: str, item: Profile) -> Profile:
    """Return the catalogue's column of the item: named like the interactions', of the same values, or by name.

    Raises:
        ConfigError: none fits.
    """
    for profile in profiles:
        if profile.name == item.name:
            return profile
    shares = {profile.name: overlap(item, set(profile.texts)) for profile in profiles if not profile.is_list}
    best = max(profiles, key=lambda profile: shares.get(profile.name, 0.0))
    if shares.get(best.name, 0.0) >= _OVERLAP:
        return best
    named = find_named(profiles, _ITEMS)
    if named is not None:
        return named
    lines = [f"  {profile.name}: {profile.samples}" for profile in profiles]
    raise ConfigError(
        f"{path}: which column is the item? None is named {item.name!r}, as in the interactions, and none holds values "
        f"like {item.samples}: rename it. The columns:\n" + "\n".join(lines)
    )


def overlap(profile: Profile, values: Collection[str]) -> float:
    """Return the share of the column's distinct values that are among ``values``."""
    mine = set(profile.texts)
    return len(mine.intersection(values)) / len(mine) if mine else 0.0


def find_user(profiles: Sequence[Profile], path: str) -> Profile:
    """Return the column of the user: by name, or the only one left that is named like an identifier.

    Raises:
        ConfigError: none or several fit.
    """
    named = find_named(profiles, _USERS)
    if named is not None:
        return named
    ids = [profile for profile in profiles if normalize(profile.name).endswith("id") and not profile.is_list]
    if len(ids) == 1:
        return ids[0]
    raise _unclear(path, "user", "--user", profiles)


def find_event(profiles: Sequence[Profile]) -> Profile | None:
    """Return the column of the event type: named like one, with few values that are no numbers; or None."""
    fitting = [p for p in profiles if p.numbers is None and not p.is_list and 0 < p.distinct <= _MOST_EVENTS]
    return find_named(fitting, _EVENTS)


def find_title(profiles: Sequence[Profile]) -> Profile | None:
    """Return the column of the title, text that is not a number; or None."""
    return find_named([p for p in profiles if p.numbers is None and p.texts and not p.is_list], _TITLES)


def has_time_word(profile: Profile) -> bool:
    """Whether the column is named with a word for time."""
    return any(word in _TIME_WORDS for word in normalize(profile.name).split())


def _unclear(path: str, role: str, option: str, profiles: Sequence[Profile]) -> ConfigError:
    lines = [f"  {profile.name}: {profile.samples}" for profile in profiles]
    nested = next((profile.name for profile in profiles if profile.is_list and profile.samples.startswith("'{")), None)
    hint = f" ({nested!r} holds lists of objects: a row is to be one event, so unfold them first.)" if nested else ""
    return ConfigError(
        f"{path}: which column is the {role}? Give it with {option} COLUMN.{hint} The columns:\n" + "\n".join(lines)
    )
