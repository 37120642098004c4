"""The retrieval task: TFRS's, with our logits, correction and losses in place of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recsys_cg.config import ModelConfig
from recsys_cg.model.chunked import masked_logsumexp
from recsys_cg.model.distribution import sum_over_replicas
from recsys_cg.model.frameworks import keras, tf, tfrs
from recsys_cg.model.logits import EXCLUDED, Exclusions, candidate_offset, positive_offset
from recsys_cg.model.losses import margin_loss, sigmoid_loss, softmax_loss, triplet_loss
from recsys_cg.model.temperature import Temperature

__all__ = ["Candidates", "CorrectedRetrieval"]


@dataclass(frozen=True)
class Candidates:
    """A step's candidate set.

    Attributes:
        vectors: float32 [candidates, dim], unit norm.
        valid: bool [candidates].
        log_expected: float32 [candidates], log of each candidate's expected count under the whole mixture.
        log_expected_positive: float32 [queries], the same of each query's positive.
        exclusions: who may not meet whom.
    """

    vectors: Any
    valid: Any
    log_expected: Any
    log_expected_positive: Any
    exclusions: Exclusions


class CorrectedRetrieval(tfrs.tasks.Retrieval):  # type: ignore[misc, unused-ignore]
    """Score queries against a declared candidate set.

    TFRS's own step clips probabilities to [1e-6, 1], sums its loss and counts ties as hits; only its place in the
    frame is kept here.

    Args:
        config: loss, correction, strength, margin and temperature.
        chunk: candidates scored at a time by the softmax losses.
    """

    def __init__(self, config: ModelConfig, *, chunk: int) -> None:
        super().__init__(name="retrieval")
        self._config = config
        self._chunk = chunk
        self.temperature = Temperature(config)
        if config.loss == "sigmoid":
            self.bias = self.add_weight("bias", [], initializer=keras.initializers.Constant(-10.0))

    def call(self, queries: Any, positives: Any, candidates: Candidates, weights: Any) -> Any:
        """Return the mean loss, weighted; 0 when every weight is 0. Of several replicas: this one's part of it.

        Args:
            queries: float32 [queries, dim], unit norm.
            positives: float32 [queries, dim], unit norm, row i belongs to query i.
            candidates: the negatives.
            weights: float32 [queries], >= 0.
        """
        losses = self.per_query(queries, positives, candidates, weights)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), sum_over_replicas(tf.reduce_sum(weights)))

    def per_query(self, queries: Any, positives: Any, candidates: Candidates, weights: Any) -> Any:
        """Return the loss of each query, float32 [queries]; arguments as `call`."""
        config = self._config
        if config.loss in ("triplet", "margin"):
            excluded = candidates.exclusions.slice(0, candidates.vectors.shape[0]) | ~candidates.valid[None, :]
            similarities = tf.linalg.matmul(queries, candidates.vectors, transpose_b=True)
            function = triplet_loss if config.loss == "triplet" else margin_loss
            positive = tf.reduce_sum(queries * positives, axis=1)
            return function(positive, similarities, excluded, margin=config.margin)
        scaled = queries / self.temperature.value()
        form: dict[str, Any] = {"correction": config.correction, "strength": config.correction_strength}
        offset = candidate_offset(candidates.log_expected, candidates.valid, **form)
        positive = tf.reduce_sum(scaled * positives, axis=1)
        positive += positive_offset(candidates.log_expected_positive, **form)
        if config.loss == "sigmoid":
            excluded = candidates.exclusions.slice(0, candidates.vectors.shape[0]) | ~candidates.valid[None, :]
            logits = tf.linalg.matmul(scaled, candidates.vectors, transpose_b=True) + offset[None, :]
            return sigmoid_loss(positive, logits, excluded, self.bias)
        negatives = masked_logsumexp(scaled, candidates.vectors, offset, candidates.exclusions, chunk=self._chunk)
        forward = softmax_loss(positive, negatives)
        if config.loss == "softmax":
            return forward
        return 0.5 * (forward + self._from_items(scaled, positives, candidates.exclusions, weights))

    def _from_items(self, scaled: Any, positives: Any, exclusions: Exclusions, weights: Any) -> Any:
        """Return the loss of each item against the step's other queries (CLIP, Radford et al. 2021).

        Queries come uniformly from the events, so no correction is due. A query is no negative of an item that it
        has as its own positive, nor, where histories are looked at, of any item of its own user.
        """
        owner = own_queries = None
        if exclusions.owner is not None:
            owner = exclusions.owner
            own_queries = tf.equal(tf.range(tf.shape(exclusions.owned)[0])[:, None], owner[None, :])
        others = Exclusions(exclusions.positive, exclusions.positive, owner, own_queries)
        offset = tf.where(weights > 0, 0.0, EXCLUDED)
        negatives = masked_logsumexp(positives, scaled, offset, others, chunk=self._chunk)
        return softmax_loss(tf.reduce_sum(scaled * positives, axis=1), negatives)
