"""Logits of queries against a step's candidates: correction, and exclusion by id.

A candidate's logit is corrected by the log of its expected count in the candidate set, E (see
`recsys_cg.model.negatives`), times a ``strength`` lambda: ``logit - lambda * log E``. With lambda = 1 the sampled
denominator is unbiased; below 1 popular items stay penalised, which buys coverage for hits. What happens to the
positive is the *form* of the correction, see `positive_offset`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    positive: Any
    candidate: Any
    owner: Any = None
    owned: Any = None

    def slice(self, start: Any, size: int) -> Any:
        """Return bool [queries, size]: which of the candidates from ``start`` on are excluded."""
        candidate = self.candidate[start : start + size]
        excluded = tf.equal(self.positive[:, None], candidate[None, :])
        if self.owned is not None:
            excluded |= tf.gather(self.owned[:, start : start + size], self.owner)
        return excluded

    def padded(self, size: Any) -> Exclusions:
        """Return the same with ``size`` (0 or more) further candidates at the end that nobody owns."""
        owned = None if self.owned is None else tf.pad(self.owned, [[0, 0], [0, size]])
        return Exclusions(self.positive, tf.pad(self.candidate, [[0, size]], constant_values=-1), self.owner, owned)


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
