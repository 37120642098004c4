"""Logits of queries against a step's candidates: correction, and exclusion by id.

A candidate's logit is corrected by the log of its expected count in the candidate set, E (see
`recsys_cg.model.negatives`), times a ``strength`` lambda: ``logit - lambda * log E``. With lambda = 1 the sampled
denominator is unbiased; below 1 popular items stay penalised, which buys coverage for hits. What happens to the
positive is the *form* of the correction, see `positive_offset`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from recsys_cg.model.frameworks import tf

__all__ = ["EXCLUDED", "Correction", "Exclusions", "candidate_offset", "owned_candidates", "positive_offset"]

Correction = Literal["standard", "refined", "none"]

EXCLUDED = -1e9
"""Logit of a candidate that is not there: far below any other, yet finite, so that no gradient becomes NaN."""


def candidate_offset(log_expected: Any, valid: Any, *, correction: Correction, strength: float) -> Any:
    """Return what is added to each candidate's logit, float32 [candidates]: ``-strength * log E``.

    An invalid candidate gets `EXCLUDED`. ``correction="none"`` adds 0 to the others.
    """
    correct = correction != "none" and strength > 0.0
    shift = -strength * log_expected if correct else tf.zeros_like(log_expected)
    return tf.where(valid, shift, EXCLUDED)


def positive_offset(log_expected: Any, *, correction: Correction, strength: float) -> Any:
    """Return what is added to each positive's logit, float32 [queries].

    ``refined`` adds nothing: the positive is in the set once, by construction and not by sampling, and its repeats are
    excluded, so its expected count is 1 and ``exp(positive) + sum exp(negative - log E)`` is an unbiased estimate of
    the full softmax's denominator. The gradient equals that of arXiv 2507.09331, which weighs
    ``-positive + logsumexp(negatives)`` by ``stop_gradient(1 - p(positive))``.

    ``standard`` subtracts ``strength * log E`` from the positive too, as if it had been sampled (Yi et al. 2019,
    equation 6, and TFRS): common, and slightly biased, since the gradient of a frequent item is made larger and that
    of a rare one smaller. As the sample grows it tends to the softmax without the positive in its denominator.
    """
    return -strength * log_expected if correction == "standard" else tf.zeros_like(log_expected)


@dataclass(frozen=True)
class Exclusions:
    """Which candidates are no negatives of which queries, by id.

    Attributes:
        positive: int32 [queries], identity of each query's positive; a candidate of that identity is a repeat of it.
        candidate: int32 [candidates], identity of each candidate. Known duplicates share one identity.
        owner: int32 [queries], row of ``owned`` that belongs to the query; None with ``owned``.
        owned: bool [owners, candidates], true where the owner's history holds the candidate; None: not looked at.
        owned_holds_positive: each query's positive is in its owner's history, so ``owned`` excludes its repeats too.
        certain: int32 [queries, n], identities of candidates that each query has for itself anyway, -2 in padding; None
            where it has none.
    """

    positive: Any
    candidate: Any
    owner: Any = None
    owned: Any = None
    owned_holds_positive: bool = False
    certain: Any = None

    def slice(self, start: Any, size: int) -> Any:
        """Return bool [queries, size]: which of the candidates from ``start`` on are excluded."""
        excluded = None if self.owned is None else tf.gather(self.owned[:, start : start + size], self.owner)
        repeats = self._repeats(start, size)
        if excluded is None or repeats is None:
            return repeats if excluded is None else excluded
        return excluded | repeats

    def add_offset(self, logits: Any, offset: Any, start: Any) -> Any:
        """Return logits float32 [queries, size] of the candidates from ``start`` on, offset and with exclusions.

        An excluded one is about `EXCLUDED`. The same as ``where(slice(start, size), EXCLUDED, logits + offset)`` in
        fewer passes over the matrix.

        Args:
            logits: float32 [queries, size].
            offset: float32 [size].
            start: number of the first candidate.
        """
        size = tf.shape(logits)[1]
        if self.owned is None:
            logits += offset[None, :]
        else:
            per_owner = tf.where(self.owned[:, start : start + size], EXCLUDED, offset[None, :])
            logits += tf.gather(per_owner, self.owner)
        repeats = self._repeats(start, size)
        return logits if repeats is None else tf.where(repeats, EXCLUDED, logits)

    def _repeats(self, start: Any, size: Any) -> Any:
        """Return bool [queries, size]: repeats of what a query has anyway; None where ``owned`` knows them all."""
        candidate = self.candidate[None, start : start + size]
        columns = [] if self.certain is None else tf.unstack(self.certain, axis=1)
        if self.owned is None or not self.owned_holds_positive:
            columns.append(self.positive)
        repeats = None
        for column in columns:
            same = tf.equal(column[:, None], candidate)
            repeats = same if repeats is None else repeats | same
        return repeats

    def padded(self, size: Any) -> Exclusions:
        """Return the same with ``size`` (0 or more) further candidates at the end that nobody owns."""
        owned = None if self.owned is None else tf.pad(self.owned, [[0, 0], [0, size]])
        candidate = tf.pad(self.candidate, [[0, size]], constant_values=-1)
        return replace(self, candidate=candidate, owned=owned)


def owned_candidates(owner: Any, item: Any, candidate: Any, *, owners: Any) -> Any:
    """Tell which candidates each owner's history holds.

    Args:
        owner: int32 [pairs], who, in 0 .. owners - 1.
        item: int32 [pairs], identity of an item in that owner's history.
        candidate: int32 [candidates], identities, repeats allowed.
        owners: int32 scalar.

    Returns:
        bool [owners, candidates].
    """
    ordered = tf.sort(candidate)
    found = tf.searchsorted(ordered, item)
    inside = tf.minimum(found, tf.size(ordered) - 1)
    hit = tf.equal(tf.gather(ordered, inside), item)
    places = tf.boolean_mask(tf.stack([owner, inside], axis=1), hit)
    held = tf.scatter_nd(places, tf.ones(tf.shape(places)[:1], tf.int32), [owners, tf.size(ordered)]) > 0
    return tf.gather(held, tf.searchsorted(ordered, candidate), axis=1)
