"""The two-tower model: query tower, item tower, declared negatives and the corrected task, as one TFRS model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.errors import NonFiniteError
from recsys_cg.model.features import ContentFeature
from recsys_cg.model.frameworks import keras, tf, tfrs
from recsys_cg.model.item_tower import ItemTower
from recsys_cg.model.logits import Exclusions, owned_candidates
from recsys_cg.model.negatives import BatchEvents, Draw, InBatch, Mixture, Popularity, Sampler, Uniform, log_shares
from recsys_cg.model.normalisation import l2_normalise
from recsys_cg.model.query_tower import QueryTower
from recsys_cg.model.task import Candidates, CorrectedRetrieval

__all__ = ["Catalogue", "TwoTower", "build_mixture"]

_BLOCK = 8192


@dataclass(frozen=True)
class Catalogue:
    """What the model knows of the items, besides what it learns.

    Attributes:
        counts: int64 [items], training events.
        features: the fitted content features.
        content: ``f_<name>`` -> int32 [items, max_values] or float32 [items, width].
        identity: int32 [items], equal for known duplicates; a negative that shares the positive's is masked.
    """

    counts: NDArray[np.int64]
    features: Sequence[ContentFeature]
    content: Mapping[str, NDArray[np.generic]]
    identity: NDArray[np.int32]

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.counts)


def build_mixture(config: ModelConfig, counts: NDArray[np.int64]) -> Mixture:
    """Build the samplers that ``config.negatives`` declares, in their order."""
    samplers: list[Sampler] = []
    for source in config.negatives:
        if source.kind == "in_batch":
            samplers.append(InBatch(log_shares(counts), source.count))
        elif source.kind == "uniform":
            samplers.append(Uniform(len(counts), source.count))
        else:
            samplers.append(Popularity(counts, source.count, source.alpha))
    return Mixture(samplers)


class TwoTower(tfrs.models.Model):  # type: ignore[misc, unused-ignore]
    """Train both towers on packed rows; see `recsys_cg.model.inputs` for a batch.

    All randomness of a step is a function of ``seed`` and the optimiser's step count, so that training resumed from a
    checkpoint repeats what it would have done.

    Args:
        config: the ``[model]`` section.
        training: mixed precision, XLA and chunk size are read from it.
        catalogue: the items.
        events: number of event types.
        max_length: longest row or history.
        seed: seed of negatives and dropout.
    """

    def __init__(
        self,
        config: ModelConfig,
        training: TrainingConfig,
        catalogue: Catalogue,
        *,
        events: int,
        max_length: int,
        seed: int,
    ) -> None:
        super().__init__(name="two_tower")
        self._config = config
        self._seed = seed
        self.items = catalogue.items
        self._content = {name: tf.constant(array) for name, array in catalogue.content.items()}
        self._identity = tf.constant(catalogue.identity)
        policy = keras.mixed_precision.Policy("mixed_bfloat16" if training.mixed_precision else "float32")
        self.item_tower = ItemTower(config, features=catalogue.features, items=catalogue.items)
        self.query_tower = QueryTower(config, events=events, max_length=max_length, dtype=policy)
        self.task = CorrectedRetrieval(config, chunk=training.softmax_chunk)
        self.mixture = build_mixture(config, catalogue.counts)
        encode = self.query_tower.__call__
        self._encode = tf.function(encode, jit_compile=True) if training.jit_compile else encode

    def build_weights(self, shape: tuple[int, int]) -> None:
        """Create every weight, for batches of ``shape`` (rows, length); call once, before the optimiser is built."""
        grid = tf.zeros(shape)
        codes = tf.zeros(shape, tf.int32)
        self.query_tower(tf.zeros([*shape, self._config.dim]), grid, codes)

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(int(np.prod(variable.shape)) for variable in self.trainable_variables)

    def compute_loss(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Return the mean loss of one batch."""
        return self._forward(inputs, training=training)[0]

    def train_step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Update the weights by one batch; return loss, targets, candidates and the mean number masked a query."""
        with tf.GradientTape() as tape:
            loss, figures = self._forward(inputs, training=True)
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss, **figures}

    def _forward(self, inputs: Mapping[str, Any], *, training: bool) -> tuple[Any, dict[str, Any]]:
        seeds = self._seeds() if training else (None, None, tf.constant([self._seed, -1]))
        items = tf.reshape(inputs["items"], [-1])
        segment = tf.reshape(inputs["segment"], [-1])
        draws = self.mixture.sample(BatchEvents(items, segment >= 0), seeds[2])
        drawn = tf.concat([draw.items for draw in draws], axis=0)
        embedded, place = self._embed(tf.concat([items, drawn], axis=0), seeds[0])
        unit = l2_normalise(embedded)
        here, there = place[: tf.size(items)], place[tf.size(items) :]
        history = tf.reshape(tf.gather(embedded, here), [*inputs["items"].shape, self._config.dim])
        outputs = self._encode(history, inputs["gap_s"], inputs["event"], inputs["segment"], seeds[1])
        outputs = tf.concat([tf.reshape(outputs, [-1, self._config.dim]), self.query_tower.empty()[None, :]], axis=0)
        candidates = self._candidates(inputs, draws, drawn, tf.gather(unit, there))
        weights = tf.reshape(inputs["weight"], [-1])
        loss = self.task(tf.gather(outputs, inputs["query"]), tf.gather(unit, here), candidates, weights)
        return loss, _figures(candidates, weights)

    def _seeds(self) -> tuple[Any, Any, Any]:
        step = tf.cast(self.optimizer.iterations, tf.int32)
        root = tf.stack([tf.constant(self._seed), step])
        fold = tf.random.experimental.stateless_fold_in
        return fold(root, 0), fold(root, 1), fold(root, 2)

    def _embed(self, rows: Any, seed: Any) -> tuple[Any, Any]:
        """Embed each distinct row once: ([distinct, dim], place of each row among them)."""
        distinct, place = tf.unique(rows)
        content = {name: tf.gather(table, distinct) for name, table in self._content.items()}
        return self.item_tower(distinct + 1, content, seed=seed), place

    def _candidates(self, inputs: Mapping[str, Any], draws: Sequence[Draw], drawn: Any, vectors: Any) -> Candidates:
        items = tf.reshape(inputs["items"], [-1])
        identity = tf.gather(self._identity, drawn)
        owner = owned = None
        if self._config.mask_history:
            owner = tf.maximum(tf.reshape(inputs["segment"], [-1]), 0)
            own = tf.gather(self._identity, inputs["own_item"])
            owners = tf.reduce_max(inputs["own_segment"]) + 1
            owned = owned_candidates(inputs["own_segment"], own, identity, owners=owners)
        return Candidates(
            vectors=vectors,
            valid=tf.concat([draw.valid for draw in draws], axis=0),
            log_expected=self.mixture.log_expected_count(drawn, draws),
            log_expected_positive=self.mixture.log_expected_count(items, draws),
            exclusions=Exclusions(tf.gather(self._identity, items), identity, owner, owned),
        )

    def encode_items(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return (vectors, history vectors) of all items, float32 [items, dim] each, in blocks."""
        vectors, history = [], []
        for start in range(0, self.items, _BLOCK):
            rows = tf.range(start, min(start + _BLOCK, self.items))
            unit, raw = self._encode_rows(rows)
            vectors.append(unit.numpy())
            history.append(raw.numpy())
        return np.concatenate(vectors), np.concatenate(history)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator, unused-ignore]
    def _encode_rows(self, rows: Any) -> tuple[Any, Any]:
        content = {name: tf.gather(table, rows) for name, table in self._content.items()}
        return self.item_tower.vectors(rows + 1, content)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator, unused-ignore]
    def encode_histories(self, inputs: Mapping[str, Any]) -> Any:
        """Encode ``history``, ``gap_s``, ``event``, ``length`` as `QueryTower.encode_last`: float32 [queries, dim]."""
        return self.query_tower.encode_last(**inputs)

    def check_finite(self, when: str) -> None:
        """Raise unless every weight is finite.

        Raises:
            NonFiniteError: names the weights that are not, and ``when``.
        """
        broken = [variable.name for variable in self.trainable_variables if not np.isfinite(variable.numpy()).all()]
        if broken:
            raise NonFiniteError(f"{when}: NaN or infinity in {', '.join(broken)}; lower training.learning_rate")


def _figures(candidates: Candidates, weights: Any) -> dict[str, Any]:
    exclusions = candidates.exclusions
    present = tf.cast(candidates.valid, tf.float32)
    if exclusions.owned is not None:
        masked = tf.gather(tf.linalg.matvec(tf.cast(exclusions.owned, tf.float32), present), exclusions.owner)
    else:
        ordered = tf.sort(tf.where(candidates.valid, exclusions.candidate, -1))
        sides = [tf.searchsorted(ordered, exclusions.positive, side=side) for side in ("right", "left")]
        masked = tf.cast(sides[0] - sides[1], tf.float32)
    targets = tf.cast(weights > 0, tf.float32)
    return {
        "targets": tf.reduce_sum(targets),
        "candidates": tf.reduce_sum(present),
        "masked": tf.math.divide_no_nan(tf.reduce_sum(masked * targets), tf.reduce_sum(targets)),
    }
