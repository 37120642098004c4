"""Which columns of a catalogue are content, and of which kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from recsys_cg.config import FeatureConfig
from recsys_cg.data.inspection.profile import Profile
from recsys_cg.data.inspection.roles import has_time_word, normalize

__all__ = ["find_separator", "propose_feature", "propose_features"]

_SEPARATORS: Final = ("|", ";", ", ", ",", " / ", "/")
_MOST_SPACED: Final = 100
_FEW: Final = 20
_DEFAULT_MAX_VALUES: Final = 24
_COUNTED: Final = re.compile(
    "(view|play|click|like|vote|purchase|order|download|listen|listener|interaction|rating|review|sale|star|score)s?$"
)
_COUNTS: Final = frozenset(("count", "counts", "number", "num", "cnt", "n", "avg", "average", "mean", "total", "rank"))
_TALLIES: Final = frozenset(("popularity", "popularity score", "rank", "salesrank", "bestseller rank", "playcount"))
_GRADES: Final = frozenset(("rating", "stars", "score", "overall"))
_TALLIED: Final = "a count or average over the whole log tells the future; take it if it is of training time alone"
_LINK: Final = re.compile(r"^(https?://|/|data:)|\.(jpe?g|png|gif|webp)$", re.IGNORECASE)


def propose_features(profiles: Sequence[Profile]) -> tuple[list[FeatureConfig], dict[str, str]]:
    """Choose a kind for each column.

    Returns:
        the features, and column -> why it is none, for the others.
    """
    features: list[FeatureConfig] = []
    skipped: dict[str, str] = {}
    for profile in profiles:
        name = _name_feature(profile.name, {feature.name for feature in features})
        feature = _TALLIED if _is_tally(profile) else propose_feature(profile, name)
        if isinstance(feature, str):
            skipped[profile.name] = feature
        else:
            features.append(feature)
    return features, skipped


def propose_feature(profile: Profile, name: str) -> FeatureConfig | str:
    """Return the feature ``name`` that a column makes, or why it makes none."""
    column = None if name == profile.name else profile.name
    if not profile.texts:
        return "no value in the rows looked at"
    if profile.dim is not None:
        return FeatureConfig(name=name, kind="dense", column=column, dim=profile.dim)
    if profile.is_list:
        most = _most_values(profile.rows, len(profile.texts))
        return FeatureConfig(name=name, kind="categorical", column=column, max_values=most)
    if profile.distinct == 1 or (profile.time_unit is not None and (profile.numbers is None or profile.is_typed_time)):
        return "a time" if profile.distinct > 1 else f"the same value everywhere ({profile.samples})"
    if profile.numbers is not None:
        return _propose_number(profile, name, column)
    return _propose_text(profile, name, column)


def _propose_number(profile: Profile, name: str, column: str | None) -> FeatureConfig | str:
    assert profile.numbers is not None  # noqa: S101 - the caller asked
    if profile.time_unit is not None and has_time_word(profile):
        return f"looks like a time in {profile.time_unit}"
    unique = profile.distinct == len(profile.texts) and profile.is_whole
    if unique and len(profile.texts) > _FEW and profile.name.lower().endswith("id"):
        return "a number of its own for each item: an identifier"
    few = profile.is_whole and profile.distinct <= _FEW and profile.distinct <= len(profile.texts) / 2
    return FeatureConfig(name=name, kind="categorical" if few else "numeric", column=column)


def _is_tally(profile: Profile) -> bool:
    """Tell whether a column is named like what is counted or averaged over a log, e.g. ``average_rating``."""
    name = normalize(profile.name)
    words = name.split()
    if name in _TALLIES or (name in _GRADES and profile.numbers is not None and not profile.is_whole):
        return True
    return any(_COUNTED.match(word) for word in words) and bool(_COUNTS.intersection(words))


def _propose_text(profile: Profile, name: str, column: str | None) -> FeatureConfig | str:
    separator = find_separator(profile.texts)
    if separator is not None:
        most = max(text.count(separator) + 1 for text in profile.texts)
        return FeatureConfig(
            name=name, kind="categorical", column=column, separator=separator,
            max_values=max(_DEFAULT_MAX_VALUES, most),
        )  # fmt: skip
    if np.mean([bool(_LINK.search(text)) for text in profile.texts]) > 0.5:
        return "links"
    share = profile.distinct / len(profile.texts)
    words = float(np.mean([len(text.split()) for text in profile.texts]))
    if share <= 0.5 and words <= 5:
        return FeatureConfig(name=name, kind="categorical", column=column)
    if words < 1.5 and share > 0.9 and len(profile.texts) > _FEW:
        return "a word of its own for each item: an identifier"
    return FeatureConfig(name=name, kind="text", column=column)


def find_separator(texts: Sequence[str]) -> str | None:
    """Return what separates several values in one text, or None.

    A separator stands in a fifth of the texts at least, and what it separates is met again and again: ten times on
    average, five for ``|``, ``;`` and the like, and a space must leave at most 100 distinct values.
    """
    for separator in _SEPARATORS:
        if _separates(texts, separator, repeats=5.0):
            return separator
    if _separates(texts, " ", repeats=10.0):
        words = {word for text in texts for word in text.split(" ")}
        return " " if len(words) <= _MOST_SPACED and len(words) < len(set(texts)) else None
    return None


def _separates(texts: Sequence[str], separator: str, repeats: float) -> bool:
    if sum(separator in text for text in texts) < 0.2 * len(texts):
        return False
    values = [value.strip() for text in texts for value in text.split(separator)]
    return len(values) >= repeats * len(set(values)) and len(set(values)) < len(set(texts))


def _most_values(rows: int, values: int) -> int:
    return max(_DEFAULT_MAX_VALUES, 2 * -(-values // max(rows, 1)))


def _name_feature(column: str, taken: set[str]) -> str:
    """Return a feature name made of ``column``: lower case, digits and underscores, not among ``taken``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column)
    plain = re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")
    if not plain or not plain[0].isalpha():
        plain = f"f_{plain}".rstrip("_")
    name, number = plain[:36], 2
    while name in taken:
        name, number = f"{plain[:36]}_{number}", number + 1
    return name
