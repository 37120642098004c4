"""The retrieval task: TFRS's, with our logits, correction and losses in place of its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from recsys_cg.config import ModelConfig
from recsys_cg.errors import ConfigError
from recsys_cg.extensions import call_extension, is_extension, load_extension
from recsys_cg.model.candidates import Candidates
from recsys_cg.model.chunked import masked_logsumexp
from recsys_cg.model.chunked_sums import HINGE, PRESENCE, SOFTPLUS, masked_max, masked_sum
from recsys_cg.model.distribution import sum_over_replicas
from recsys_cg.model.frameworks import keras, tf, tfrs
from recsys_cg.model.logits import EXCLUDED, Exclusions, candidate_offset, positive_offset
from recsys_cg.model.losses import margin_loss, sigmoid_loss, softmax_loss, triplet_loss
from recsys_cg.model.projection import ProjectionHead
from recsys_cg.model.temperature import Temperature

__all__ = ["CorrectedRetrieval"]


class CorrectedRetrieval(tfrs.tasks.Retrieval):  # type: ignore[misc, unused-ignore]
    """Score queries against a declared candidate set.

    TFRS's own step clips probabilities to [1e-6, 1], sums its loss and counts ties as hits; only its place in the
    frame is kept here.

    Args:
        config: loss, correction, strength, margin, projection head and temperature.
        chunk: candidates scored at a time; bounds the memory of every loss.
    """

    def __init__(self, config: ModelConfig, *, chunk: int) -> None:
        super().__init__(name="retrieval")
        self._config = config
        self._chunk = chunk
        self.temperature = Temperature(config)
        self._outside = _load_loss(config) if is_extension(config.loss) else None
        self.head = ProjectionHead(config) if config.projection_head is not None else None
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
        if self.head is not None:
            queries, positives, candidates = self.head(queries), self.head(positives), candidates.projected(self.head)
        loss = self._config.loss
        if loss in ("triplet", "margin"):
            return self._compare(queries, positives, candidates)
        scaled = queries * (1.0 / self.temperature.value())
        form: dict[str, Any] = {"correction": self._config.correction, "strength": self._config.correction_strength}
        offset = candidate_offset(candidates.log_expected, candidates.valid, **form)
        positive = tf.reduce_sum(scaled * positives, axis=1)
        positive += positive_offset(candidates.log_expected_positive, **form)
        if self._outside is not None:
            return self._ask_outside(self._outside, scaled, positive, offset, candidates)
        if loss == "sigmoid":
            return self._score(scaled, positive, offset, candidates)
        if candidates.copies is not None:
            offset = tf.where(candidates.valid, offset + tf.math.log(candidates.copies), EXCLUDED)
        shared = (scaled, candidates.vectors, offset, candidates.exclusions)
        negatives = masked_logsumexp(*shared, chunk=self._chunk, most=candidates.most)
        if candidates.own is not None:
            together = tf.concat([negatives[:, None], candidates.own.logits(scaled)], axis=1)
            negatives = tf.reduce_logsumexp(together, axis=1)
        forward = softmax_loss(positive, negatives)
        if loss == "softmax":
            return forward
        return 0.5 * (forward + self._from_items(scaled, positives, candidates.exclusions, weights))

    def _score(self, scaled: Any, positive: Any, offset: Any, candidates: Candidates) -> Any:
        shared = (scaled, candidates.vectors, offset + self.bias, candidates.exclusions)
        negatives = masked_sum(*shared, curve=SOFTPLUS, chunk=self._chunk)
        if candidates.own is not None:
            own = candidates.own.logits(scaled) + self.bias
            negatives += tf.reduce_sum(SOFTPLUS.value(own), axis=1)
        return sigmoid_loss(positive + self.bias, negatives)

    def _ask_outside(self, loss: Any, scaled: Any, positive: Any, offset: Any, candidates: Candidates) -> Any:
        """Give a loss from outside all logits at once: memory grows with queries * candidates."""
        logits = tf.linalg.matmul(scaled, candidates.vectors, transpose_b=True) + offset[None, :]
        excluded = candidates.exclusions.slice(0, candidates.vectors.shape[0]) | ~candidates.valid[None, :]
        if candidates.own is not None:
            own = candidates.own.logits(scaled)
            logits, excluded = tf.concat([logits, own], 1), tf.concat([excluded, own < 0.5 * EXCLUDED], 1)
        return loss(positive, tf.where(excluded, EXCLUDED, logits), excluded)

    def _compare(self, queries: Any, positives: Any, candidates: Candidates) -> Any:
        config, own = self._config, candidates.own
        positive = tf.reduce_sum(queries * positives, axis=1)
        offset = tf.where(candidates.valid, 0.0, EXCLUDED)
        if config.loss == "triplet":
            hardest = masked_max(queries, candidates.vectors, offset, candidates.exclusions, chunk=self._chunk)
            if own is not None:
                hardest = tf.maximum(hardest, tf.reduce_max(own.logits(queries), axis=1))
            return triplet_loss(positive, hardest, margin=config.margin)
        # A further coordinate carries margin - s+ of the query, so that the logit is what the hinge is of.
        lead = (config.margin - positive)[:, None]
        asked, met = tf.concat([queries, lead], 1), tf.concat([candidates.vectors, tf.ones_like(offset)[:, None]], 1)
        hinges = masked_sum(asked, met, offset, candidates.exclusions, curve=HINGE, chunk=self._chunk)
        blank = (tf.zeros_like(lead), tf.zeros_like(offset)[:, None], offset, candidates.exclusions)
        present = masked_sum(*blank, curve=PRESENCE, chunk=self._chunk)
        if own is not None:
            further = own.logits(queries) + lead
            hinges += tf.reduce_sum(HINGE.value(further), axis=1)
            present += tf.reduce_sum(PRESENCE.value(further), axis=1)
        return margin_loss(hinges, present)

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


def _load_loss(config: ModelConfig) -> Any:
    """Return the loss from outside, called once to see that it takes its options and gives a value a query."""
    loss = load_extension(config.loss, key="model.loss")
    tried = (tf.zeros([2]), tf.fill([2, 3], EXCLUDED), tf.ones([2, 3], tf.bool))
    values = call_extension(loss, config.loss, config.loss_options, *tried, key="model.loss")
    if tuple(values.shape) != (2,) or not np.isfinite(values.numpy()).all():
        raise ConfigError(
            f"model.loss = {config.loss!r} must give finite float32 [queries], also where every candidate is excluded; "
            f"for 2 queries it gave {values.numpy().tolist()}"
        )
    return partial(loss, **config.loss_options)
