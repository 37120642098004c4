"""Uncertainty over users: cluster bootstrap of ratios, and the paired test between two systems.

Queries of one user are not independent, so whole users are drawn with replacement, each with all of their queries
(Field and Welsh 2007). A mean over queries is then a ratio of two sums over users, and is resampled as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["interval", "paired_test", "ratios", "resample_sums", "sum_by_user"]

Floats = NDArray[np.float64]

_CELLS = 1 << 24  # draws held at once: samples x users


def sum_by_user(values: Floats, users: NDArray[np.int64], count: int) -> tuple[Floats, Floats]:
    """Return ([users] sum of the values that are not NaN, [users] how many of them there are).

    Example:
        >>> [sums.tolist() for sums in sum_by_user(np.array([1.0, np.nan, 0.5]), np.array([0, 0, 1]), 2)]
        [[1.0, 0.5], [1.0, 1.0]]
    """
    known = ~np.isnan(values)
    owners = users[known]
    return (
        np.bincount(owners, weights=values[known], minlength=count).astype(np.float64),
        np.bincount(owners, minlength=count).astype(np.float64),
    )


def resample_sums(values: Floats, *, samples: int, seed: int) -> Floats:
    """Draw users with replacement, as many as there are, and sum ``values`` over each draw.

    Args:
        values: [users, figures] sums over the queries of one user, at least one user.
        samples: number of draws.
        seed: equal seeds and user counts give equal draws, so that two systems' samples are paired.

    Returns:
        [samples, figures].
    """
    return np.concatenate([draws @ values for draws in _draws(len(values), samples, seed)])


def ratios(numerators: Floats, denominators: Floats) -> Floats:
    """Divide element by element; NaN where the denominator is zero.

    Example:
        >>> ratios(np.array([1.0, 1.0]), np.array([4.0, 0.0])).tolist()
        [0.25, nan]
    """
    result = np.full(np.broadcast(numerators, denominators).shape, np.nan)
    np.divide(numerators, denominators, out=result, where=denominators > 0)
    return result


def _draws(users: int, samples: int, seed: int) -> Iterator[Floats]:
    """Yield [block, users] how often each user was drawn."""
    rng = np.random.default_rng(seed)
    block = max(1, _CELLS // max(1, users))
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        drawn = np.empty((rows, users))
        for row in range(rows):
            drawn[row] = np.bincount(rng.integers(0, users, users), minlength=users)
        yield drawn


def interval(samples: Floats) -> tuple[float, float]:
    """Return the 2.5% and 97.5% quantiles of the samples that are not NaN; (0, 1) where there are none."""
    known = samples[~np.isnan(samples)]
    if not len(known):
        return 0.0, 1.0
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def paired_test(a: Floats, b: Floats, users: NDArray[np.int64], *, samples: int, seed: int) -> dict[str, Any]:
    """Compare two systems on the same queries: the mean of ``a - b`` with an interval and a p-value.

    Args:
        a: [queries] one metric of the first system; NaN where the query does not count (in either).
        b: [queries] the same metric of the second.
        users: [queries] the user of each query, from 0.
        samples: bootstrap samples over users.
        seed: of the draws.

    Returns:
        ``{"queries", "users", "difference", "ci95": [lo, hi], "p_value"}``. The p-value is two-sided, by the
        centred bootstrap, ``(1 + #{|d* - d| >= |d|}) / (1 + samples)``. With no query only ``{"queries": 0}``; with
        one user nothing is known, so the interval is [-1, 1] and the p-value 1.

    Example:
        >>> one_user = paired_test(np.array([1.0, 0.0]), np.array([0.0, 0.0]), np.array([7, 7]), samples=100, seed=0)
        >>> one_user["difference"], one_user["ci95"], one_user["p_value"]
        (0.5, [-1.0, 1.0], 1.0)
    """
    difference = a - b
    known = ~np.isnan(difference)
    if not known.any():
        return {"queries": 0}
    codes, owners = np.unique(users[known], return_inverse=True)
    tops, bottoms = sum_by_user(difference[known], owners, len(codes))
    mean = float(tops.sum() / bottoms.sum())
    result: dict[str, Any] = {"queries": int(known.sum()), "users": len(codes), "difference": mean}
    if len(codes) < 2:
        return {**result, "ci95": [-1.0, 1.0], "p_value": 1.0}
    sums = resample_sums(np.stack((tops, bottoms), axis=1), samples=samples, seed=seed)
    drawn = ratios(sums[:, 0], sums[:, 1])
    extreme = int((np.abs(drawn - mean) >= abs(mean) - 1e-15).sum())
    return {**result, "ci95": list(interval(drawn)), "p_value": (1 + extreme) / (1 + samples)}
