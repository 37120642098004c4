"""Where negatives come from: declared samplers that each know their proposal, and their mixture.

A sampler draws candidates for a whole step; every query of the step is scored against all of them. With each draw goes
the expected number of times that any item turns up in it, in log space and without clipping: that is what a logit is
corrected by. For sources s that draw n_s items from proposals q_s, the expected count of item i in the mixture is

    E[i] = sum over s of n_s * q_s(i)

so that ``sum over drawn c of f(c) / E[c]`` is an unbiased estimate of ``sum over items i of f(i)`` for every f, as
long as each i has q_s(i) > 0 in some source (importance sampling; for the softmax, Bengio and Senecal 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recsys_cg.errors import DataError
from recsys_cg.model.distribution import gather_rows, replicas
from recsys_cg.model.frameworks import tf

__all__ = [
    "BatchEvents",
    "Draw",
    "Impressions",
    "InBatch",
    "Mixture",
    "Popularity",
    "Sampler",
    "Shares",
    "Uniform",
    "fixed_shares",
    "log_shares",
]


Shares = Callable[[Any], Any]
"""Log of the share of training events, float32 [m], of items int32 [m]."""


@dataclass(frozen=True)
class BatchEvents:
    """The events of one step, as samplers see them.

    Attributes:
        items: int32 [events], item_row.
        valid: bool [events], false in padding.
        skipped: int32 [events, per_query], item_row of what was shown with each event's item and skipped, -1 in
            padding; None where no source asks for it.
    """

    items: Any
    valid: Any
    skipped: Any = None


@dataclass(frozen=True)
class Draw:
    """Candidates drawn by one sampler in one step.

    Attributes:
        items: int32 [n], item_row.
        valid: bool [n]; an invalid candidate is not there.
        count: float32 scalar, how many were drawn, as the expectation counts them.
        vectors: float32 [n, dim] where the sampler brings vectors of its own, None where the item tower embeds them.
    """

    items: Any
    valid: Any
    count: Any
    vectors: Any = None


class Sampler(Protocol):
    """A declared source of negatives."""

    name: str

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """Draw candidates as a pure function of ``batch``, ``seed`` (int32 [2]) and the sampler's declared state."""

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """Return log E of ``items`` (int32 [m]) in ``draw``, float32 [m]; -inf where the expected count is 0."""


def log_shares(counts: NDArray[np.integer], alpha: float = 1.0) -> NDArray[np.float64]:
    """Return ``log(counts^alpha / sum(counts^alpha))``; -inf for a count of 0, unless alpha is 0 (then all are equal).

    Raises:
        DataError: there is no item, a count is negative, or alpha > 0 and every count is 0.

    Example:
        >>> np.exp(log_shares(np.array([6, 3, 1]))).round(6).tolist()
        [0.6, 0.3, 0.1]
    """
    wide = np.asarray(counts, dtype=np.float64)
    if wide.size == 0 or wide.min() < 0 or (alpha > 0 and wide.max() <= 0):
        raise DataError("training counts must be >= 0 with at least one above 0; the dataset holds no training event")
    if alpha == 0:
        return np.full(wide.shape, -np.log(wide.size))
    with np.errstate(divide="ignore"):
        logs = alpha * np.log(wide)
    largest = logs.max()
    shares: NDArray[np.float64] = logs - (largest + np.log(np.exp(logs - largest).sum()))
    return shares


def fixed_shares(log_q: NDArray[np.float64]) -> Shares:
    """Return the function that looks ``log_q`` float64 [items] up."""
    table = tf.constant(log_q, tf.float32)
    return lambda items: tf.gather(table, items)


class InBatch:
    """Draw without replacement among the step's own events.

    Sequences are shuffled, so an event of the step is item i with probability q(i), its share of the training events;
    ``n`` of them hold i ``n * q(i)`` times in expectation. A step of fewer events than ``count`` gives all it has.
    Replicas draw an equal part each and pool what they drew.

    Args:
        log_q: gives the log of the share of training events of items int32 [m], float32 [m]; see `fixed_shares`.
        count: candidates a step.
    """

    name = "in_batch"

    def __init__(self, log_q: Shares, count: int) -> None:
        self._log_q = log_q
        self._count = count

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """See `Sampler.sample`."""
        size = min(-(-self._count // replicas()), batch.items.shape[0] or self._count)
        order = tf.random.stateless_uniform(tf.shape(batch.items), seed) + tf.cast(~batch.valid, tf.float32)
        places = tf.argsort(order)[:size]
        valid = gather_rows(tf.gather(batch.valid, places))
        return Draw(gather_rows(tf.gather(batch.items, places)), valid, tf.reduce_sum(tf.cast(valid, tf.float32)))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """See `Sampler.log_expected_count`."""
        return self._log_q(items) + tf.math.log(draw.count)


class Uniform:
    """Draw with replacement, every item alike, the never-seen ones included.

    Args:
        items: number of items.
        count: candidates a step.
    """

    name = "uniform"

    def __init__(self, items: int, count: int) -> None:
        self._items = items
        self._count = count

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """See `Sampler.sample`."""
        del batch
        items = tf.random.stateless_uniform([self._count], seed, minval=0, maxval=self._items, dtype=tf.int32)
        return Draw(items, tf.ones([self._count], tf.bool), tf.constant(float(self._count)))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """See `Sampler.log_expected_count`.

        Example:
            >>> sampler = Uniform(items=4, count=8)
            >>> draw = sampler.sample(BatchEvents(tf.constant([0]), tf.constant([True])), seed=[1, 2])
            >>> tf.exp(sampler.log_expected_count(tf.constant([3]), draw)).numpy().tolist()  # 8 draws among 4 items
            [2.0]
        """
        return tf.fill(tf.shape(items), tf.math.log(draw.count / self._items))


class Popularity:
    """Draw with replacement, item i with ``q(i) = count(i)^alpha / sum of count^alpha``.

    Inverts the cumulative distribution in float64, so a q of 1e-9 is drawn as often as it says.

    Args:
        counts: integers [items], training events an item.
        count: candidates a step.
        alpha: 1 is proportional to popularity, 0 is uniform.
    """

    name = "popularity"

    def __init__(self, counts: NDArray[np.integer], count: int, alpha: float = 1.0) -> None:
        log_q = log_shares(counts, alpha)
        cumulative = np.cumsum(np.exp(log_q))
        self._last = int(np.flatnonzero(np.isfinite(log_q))[-1])
        self._log_q = tf.constant(log_q, tf.float32)
        self._cumulative = tf.constant(cumulative / cumulative[-1], tf.float64)
        self._count = count

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """See `Sampler.sample`."""
        del batch
        uniform = tf.random.stateless_uniform([self._count], seed, dtype=tf.float64)
        items = tf.minimum(tf.searchsorted(self._cumulative, uniform, side="right"), self._last)
        return Draw(items, tf.ones([self._count], tf.bool), tf.constant(float(self._count)))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """See `Sampler.log_expected_count`."""
        return tf.gather(self._log_q, items) + tf.math.log(draw.count)


class Impressions:
    """Give each query what its user was shown together with the positive and skipped (`recsys_cg.data.skips`).

    The one source whose candidates are not shared by the queries of a step. Query x has a set C_x of its own, in the
    candidate set by construction and not by sampling, so the expected count of each member is 1, and the draws of the
    other sources that repeat a member are excluded for x. The denominator

        exp(s+) + w * sum over j in C_x of exp(s_j) + sum over drawn c not in C_x of exp(s_c) / E[c]

    is with w = 1 an unbiased estimate of the full softmax's, whatever C_x is, as long as the choice of its members
    does not look at the draws: C_x is a stratum taken whole, and the rest of the items is estimated by importance
    sampling as in `Mixture` (Horvitz and Thompson 1952, with inclusion probability 1; certain and sampled candidates
    side by side as in mixed negative sampling, Yang et al. 2020). So which policy chose what was shown does not move
    the optimum: the incumbent's exposure decides only where the estimate is exact, at items that are as a rule hard.

    A ``weight`` w other than 1 changes the objective on purpose, to the softmax in whose denominator an item that was
    shown and skipped counts w times: a skip is then stronger evidence than not having been shown.

    Args:
        per_query: candidates a query at most.
    """

    name = "impressions"

    def __init__(self, per_query: int) -> None:
        self.per_query = per_query

    def sample(self, batch: BatchEvents, seed: Any) -> Draw:
        """Return the candidates of each query: items and valid are [events, per_query], count is 1."""
        del seed
        valid = (batch.skipped >= 0) & batch.valid[:, None]
        return Draw(tf.where(valid, batch.skipped, 0), valid, tf.constant(1.0))

    def log_expected_count(self, items: Any, draw: Draw) -> Any:
        """Return 0 for each of ``items``, of any shape: a member of a query's set is there once."""
        del draw
        return tf.zeros(tf.shape(items), tf.float32)


class Mixture:
    """Several samplers as one: their draws side by side, corrected by the sum of their expected counts.

    Args:
        samplers: at least one, in the order of their candidates.
    """

    name = "mixture"

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        if not samplers:
            raise ValueError("a mixture needs at least one sampler")
        self.samplers = tuple(samplers)

    def sample(self, batch: BatchEvents, seed: Any) -> tuple[Draw, ...]:
        """Draw from every source, each with a seed of its own derived from ``seed``."""
        fold = tf.random.experimental.stateless_fold_in
        return tuple(sampler.sample(batch, fold(seed, place)) for place, sampler in enumerate(self.samplers))

    def log_expected_count(self, items: Any, draws: Sequence[Draw]) -> Any:
        """Return ``log sum over s of n_s q_s(i)`` for ``items`` int32 [m], float32 [m], summed in log space."""
        logs = [sampler.log_expected_count(items, draw) for sampler, draw in zip(self.samplers, draws, strict=True)]
        return tf.reduce_logsumexp(tf.stack(logs), axis=0)
