"""The two-tower model: query tower, item tower, declared negatives and the corrected task, as one TFRS model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.errors import NonFiniteError
from recsys_cg.model.candidates import Candidates, merge_copies, side_by_side
from recsys_cg.model.catalogue import Catalogue
from recsys_cg.model.distribution import replica_seed, sum_over_replicas
from recsys_cg.model.frameworks import keras, tf, tfrs
from recsys_cg.model.item_tower import ItemTower
from recsys_cg.model.logits import Exclusions, owned_candidates
from recsys_cg.model.losses import SUMMED
from recsys_cg.model.negatives import BatchEvents, Draw
from recsys_cg.model.normalisation import l2_normalise
from recsys_cg.model.own_candidates import OwnCandidates
from recsys_cg.model.query_tower import QueryTower
from recsys_cg.model.sources import Sources
from recsys_cg.model.task import CorrectedRetrieval

__all__ = ["TwoTower"]

_BLOCK = 8192


class TwoTower(tfrs.models.Model):  # type: ignore[misc, unused-ignore]
    """Train both towers on packed rows; see `recsys_cg.model.inputs` for a batch.

    All randomness of a step is a function of ``seed`` and the optimiser's step count, so that training resumed from a
    checkpoint repeats what it would have done.

    Args:
        config: the ``[model]`` section; of a dropout of None nothing is dropped: `train_encoder` settles it first.
        training: mixed precision, XLA and chunk size are read from it.
        catalogue: the items.
        events: number of event types.
        max_length: longest row or history.
        seed: seed of negatives and dropout.
        context: of each context feature, int64 [codes], training events of each code.
        initial_ids: float32 [known items + 1, dim], where ids of items begin (`recsys_cg.model.initial_ids`).
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
        context: Sequence[NDArray[np.int64]] = (),
        initial_ids: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(name="two_tower")
        self._config = config
        self._seed = seed
        self.items = catalogue.items
        self._content = {name: tf.constant(array) for name, array in catalogue.content.items()}
        self._identity = tf.constant(catalogue.identity)
        self._id_rows = tf.constant(catalogue.id_rows)
        policy = keras.mixed_precision.Policy("mixed_bfloat16" if training.mixed_precision else "float32")
        known = int(catalogue.id_rows.max())
        self.item_tower = ItemTower(config, features=catalogue.features, items=known, start=initial_ids)
        self._build_tower = partial(QueryTower, config, events=events, max_length=max_length, context=context)
        self.query_tower = self._build_tower(dtype=policy)
        self._served: Callable[[], QueryTower] = lambda: self.query_tower
        self.task = CorrectedRetrieval(config, chunk=training.softmax_chunk)
        self.sources = Sources(config, catalogue.counts)
        self._put_together = merge_copies if config.loss in SUMMED else side_by_side
        encode = self.query_tower.states if context else self.query_tower.__call__
        self._encode = tf.function(encode, jit_compile=True) if training.jit_compile else encode
        rows, grid = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.float32)
        history, codes = tf.TensorSpec([None, None, config.dim], tf.float32), tf.TensorSpec([None, None], tf.int32)
        self._rows_encoder = tf.function(self._encode_rows, input_signature=[rows])
        asked = [tf.TensorSpec([None, len(context)], tf.int32)] if context else []
        signature = [history, grid, codes, rows, *asked]
        self._last_encoder = tf.function(self._encode_last, input_signature=signature)

    def build_weights(self) -> None:
        """Create every weight; call once, before the optimiser is built."""
        blank = (tf.zeros([1, 1, self._config.dim]), tf.zeros([1, 1]), tf.zeros([1, 1], tf.int32))
        self.query_tower(*blank)
        if self.query_tower.compute_dtype != "float32":
            served = self._build_tower()
            served(*blank)
            self._served = lambda: served  # out of Keras's sight: the copy's weights are not trained

    def served_tower(self) -> QueryTower:
        """Return the query tower in float32 with the weights as they are: what is validated, mined with and exported.

        The trained tower itself, unless it computes in mixed precision, which LiteRT cannot: then a copy of it.
        """
        served = self._served()
        if served is not self.query_tower:
            served.set_weights(self.query_tower.get_weights())
        return served

    @property
    def parameters(self) -> int:
        """Number of trained numbers."""
        return sum(int(np.prod(variable.shape)) for variable in self.trainable_variables)

    def compute_loss(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Return the mean loss of one batch."""
        return self._forward(inputs, training=training)[0]

    def train_step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Update the weights by one batch; return loss, targets, candidates and the mean number masked a query."""
        loss, gradients, figures = self.loss_and_gradients(inputs)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": sum_over_replicas(loss), **figures}

    def loss_and_gradients(self, inputs: Mapping[str, Any]) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return this replica's part of the loss and of the gradients of `trainable_variables`, and the figures."""
        with tf.GradientTape() as tape:
            loss, figures = self._forward(inputs, training=True)
        return loss, tape.gradient(loss, self.trainable_variables), figures

    def _forward(self, inputs: Mapping[str, Any], *, training: bool) -> tuple[Any, dict[str, Any]]:
        seeds = self._seeds() if training else (None, None, tf.constant([self._seed, -1]))
        items = tf.reshape(inputs["items"], [-1])
        segment = tf.reshape(inputs["segment"], [-1])
        batch = BatchEvents(items, segment >= 0, inputs.get("skipped"))
        if training:
            self.sources.observe(batch)
        draws = self.sources.mixture.sample(batch, seeds[2])
        apart = None if self.sources.impressions is None else self.sources.impressions.sample(batch, seeds[2])
        fresh = [draw.items for draw in draws if draw.vectors is None]
        fresh += [] if apart is None else [tf.reshape(apart.items, [-1])]
        embedded, place = self._embed(tf.concat([items, *fresh], axis=0), seeds[0])
        unit = l2_normalise(embedded)
        here, there = place[: tf.size(items)], place[tf.size(items) :]
        history = tf.reshape(tf.gather(embedded, here), [*inputs["items"].shape, self._config.dim])
        outputs = self._encode(history, inputs["gap_s"], inputs["event"], inputs["segment"], seeds[1])
        outputs = tf.concat([tf.reshape(outputs, [-1, self._config.dim]), self.query_tower.empty()[None, :]], axis=0)
        queries = tf.gather(outputs, inputs["query"])
        if self.query_tower.context:
            asked = tf.reshape(inputs["context"], [-1, self.query_tower.context])
            queries = self.query_tower.finish(queries, asked, seeds[1])
        positives = tf.gather(unit, here)
        candidates = self._candidates(inputs, draws, apart, unit, there)
        if training:
            self.sources.remember(batch, positives, seeds[2])
        weights = tf.reshape(inputs["weight"], [-1])
        loss = self.task(queries, positives, candidates, weights)
        return loss, _figures(candidates, weights)

    def _seeds(self) -> tuple[Any, Any, Any]:
        step = tf.cast(self.optimizer.iterations, tf.int32)
        root = tf.stack([tf.constant(self._seed), step])
        fold = tf.random.experimental.stateless_fold_in
        return replica_seed(fold(root, 0)), replica_seed(fold(root, 1)), fold(root, 2)

    def _embed(self, rows: Any, seed: Any) -> tuple[Any, Any]:
        """Embed each distinct row once: ([distinct, dim], place of each row among them)."""
        distinct, place = tf.unique(rows)
        content = {name: tf.gather(table, distinct) for name, table in self._content.items()}
        return self.item_tower(tf.gather(self._id_rows, distinct), content, seed=seed), place

    def _candidates(
        self, inputs: Mapping[str, Any], draws: Sequence[Draw], apart: Draw | None, unit: Any, places: Any
    ) -> Candidates:
        """Put the candidate set together; ``places`` are the rows of ``unit`` of what was drawn, ``apart`` last."""
        drawn = self._put_together(draws, unit, places)
        items = tf.reshape(inputs["items"], [-1])
        identity = tf.gather(self._identity, drawn.items)
        owner = owned = None
        if self._config.mask_history:
            owner = tf.maximum(tf.reshape(inputs["segment"], [-1]), 0)
            own = tf.gather(self._identity, inputs["own_item"])
            owners = tf.reduce_max(inputs["own_segment"]) + 1
            owned = owned_candidates(inputs["own_segment"], own, identity, owners=owners)
        return Candidates(
            vectors=drawn.vectors,
            valid=drawn.valid,
            log_expected=self.sources.mixture.log_expected_count(drawn.items, draws),
            log_expected_positive=self.sources.mixture.log_expected_count(items, draws),
            exclusions=Exclusions(
                tf.gather(self._identity, items),
                identity,
                owner,
                owned,
                owned_holds_positive=owned is not None,
                certain=None if apart is None else tf.where(apart.valid, tf.gather(self._identity, apart.items), -2),
            ),
            own=self._own_candidates(apart, unit, places),
            copies=drawn.copies,
            most=drawn.most,
        )

    def _own_candidates(self, draw: Draw | None, unit: Any, places: Any) -> OwnCandidates | None:
        source = self.sources.impressions
        if draw is None or source is None:
            return None
        own = tf.gather(unit, places[tf.size(places) - tf.size(draw.items) :])
        vectors = tf.reshape(own, [-1, source.per_query, self._config.dim])
        return OwnCandidates(vectors, draw.valid, source.log_expected_count(draw.items, draw), self.sources.skip_weight)

    def encode_items(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return (vectors, history vectors) of all items, float32 [items, dim] each, in blocks.

        From then on `encode_histories` answers with the weights as they are now.
        """
        self.served_tower()
        vectors, history = [], []
        for start in range(0, self.items, _BLOCK):
            rows = tf.range(start, min(start + _BLOCK, self.items))
            unit, raw = self._rows_encoder(rows)
            vectors.append(unit.numpy())
            history.append(raw.numpy())
        return np.concatenate(vectors), np.concatenate(history)

    def _encode_rows(self, rows: Any) -> tuple[Any, Any]:
        content = {name: tf.gather(table, rows) for name, table in self._content.items()}
        return self.item_tower.vectors(tf.gather(self._id_rows, rows), content)

    def _encode_last(self, *inputs: Any) -> Any:
        return self._served().encode_last(*inputs)

    def encode_histories(self, inputs: Mapping[str, Any]) -> Any:
        """Encode ``history``, ``gap_s``, ``event``, ``length`` as `QueryTower.encode_last`: float32 [queries, dim].

        With context features ``context`` is read too.
        """
        names = ("history", "gap_s", "event", "length", *(["context"] if self.query_tower.context else []))
        return self._last_encoder(*(inputs[name] for name in names))

    def check_finite(self, when: str) -> None:
        """Raise unless every weight is finite.

        Raises:
            NonFiniteError: names the weights that are not, and ``when``.
        """
        broken = [variable.name for variable in self.trainable_variables if not np.isfinite(variable.numpy()).all()]
        if broken:
            raise NonFiniteError(f"{when}: NaN or infinity in {', '.join(broken)}; lower training.learning_rate")


def _figures(candidates: Candidates, weights: Any) -> dict[str, Any]:
    exclusions, times = candidates.exclusions, candidates.times
    if exclusions.owned is not None:
        masked = tf.gather(tf.linalg.matvec(tf.cast(exclusions.owned, tf.float32), times), exclusions.owner)
    else:
        masked = _times_of(exclusions.positive, exclusions.candidate, times)
    if exclusions.certain is not None:
        masked += tf.reduce_sum(_times_of(exclusions.certain, exclusions.candidate, times), axis=1)
    asked = tf.cast(weights > 0, tf.float32)
    targets = sum_over_replicas(tf.reduce_sum(asked))
    return {
        "targets": targets,
        "candidates": tf.reduce_sum(times),
        "masked": tf.math.divide_no_nan(sum_over_replicas(tf.reduce_sum(masked * asked)), targets),
    }


def _times_of(wanted: Any, identity: Any, times: Any) -> Any:
    """Return how often each of ``wanted`` is among the candidates, in its shape."""
    order = tf.argsort(identity)
    ordered, flat = tf.gather(identity, order), tf.reshape(wanted, [-1])
    before = tf.concat([[0.0], tf.cumsum(tf.gather(times, order))], axis=0)
    first, last = (tf.gather(before, tf.searchsorted(ordered, flat, side=side)) for side in ("left", "right"))
    return tf.reshape(last - first, tf.shape(wanted))
