"""Which targets a report counts apart: by popularity, history, exposure and the categories that the config names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from recsys_cg.data.content import FeatureSet
from recsys_cg.errors import ConfigError, DataError
from recsys_cg.evaluation.queries import QuerySet
from recsys_cg.evaluation.ragged import Ragged
from recsys_cg.schema import BUCKETS

__all__ = ["HISTORY_BINS", "Group", "bucket_codes", "category_groups", "groups_of"]

_MOST_VALUES = 20

HISTORY_BINS: Final = ((0, 0), (1, 4), (5, 19), (20, 49), (50, 199), (200, None))
"""Inclusive bounds of the bins of ``by_history_length``."""


@dataclass(frozen=True)
class Group:
    """Some of the targets: ``path`` is where its figures go in the report, ``mask`` is over the targets."""

    path: tuple[str, ...]
    mask: NDArray[np.bool_]


def bucket_codes(items: pa.Table) -> NDArray[np.int8]:
    """Return [items] position of each item's bucket in `recsys_cg.schema.BUCKETS`."""
    codes = pc.index_in(items.column("bucket"), value_set=pa.array(BUCKETS))
    if codes.null_count:
        raise DataError(f"items: column bucket holds a value outside {', '.join(BUCKETS)}")
    result: NDArray[np.int8] = codes.to_numpy().astype(np.int8)
    return result


def groups_of(queries: QuerySet, buckets: NDArray[np.int8], is_random: NDArray[np.bool_] | None) -> list[Group]:
    """Return the groups of every report: overall, by bucket, by history length, and the uniformly random slice.

    Args:
        queries: what was asked.
        buckets: [items] positions in `recsys_cg.schema.BUCKETS`.
        is_random: [targets] whether the target was shown uniformly at random; None where the log does not say.
    """
    targets = queries.targets
    codes = buckets[targets.values]
    groups = [Group(("overall",), np.ones(len(codes), dtype=np.bool_))]
    groups += [Group((name,), codes == code) for code, name in enumerate(BUCKETS)]
    lengths = queries.table.column("history_length").to_numpy()[targets.owners]
    for low, high in HISTORY_BINS:
        label = str(low) if low == high else f"{low}-{high}" if high is not None else f"{low}+"
        inside = (lengths >= low) & (lengths <= (np.inf if high is None else high))
        groups.append(Group(("by_history_length", label), inside))
    if is_random is not None:
        groups.append(Group(("random_exposure",), is_random))
    return groups


def category_groups(
    queries: QuerySet, items: pa.Table, features: FeatureSet | None, names: Sequence[str]
) -> Iterator[Group]:
    """Yield a group for each of the 20 most frequent values of the named features; the rest is not counted apart.

    A target with several values counts in each of them. The place in the report is ``by_<name>``, then the value.

    Args:
        queries: what was asked.
        items: with the column ``f_<name>`` of each named feature.
        features: what the columns were encoded with.
        names: categorical features.

    Raises:
        ConfigError: a name that is no categorical feature of the items.
    """
    known = {feature.name: feature for feature in features.features} if features is not None else {}
    for name in names:
        feature = known.get(name)
        if feature is None or feature.kind != "categorical":
            offered = ", ".join(sorted(f.name for f in known.values() if f.kind == "categorical")) or "none"
            raise ConfigError(f"evaluation.by: {name!r} is no categorical feature of the items; there is: {offered}")
        values = Ragged.from_column(items, f"f_{name}")
        for code, label in enumerate(feature.vocabulary[:_MOST_VALUES], start=1):
            has_value = np.zeros(items.num_rows, dtype=np.bool_)
            has_value[values.owners[values.values == code]] = True
            yield Group((f"by_{name}", label), has_value[queries.targets.values])
