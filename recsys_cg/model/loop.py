"""The training loop: epochs, validation, early stopping, geometry, checkpoints and what is logged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import TrainingConfig
from recsys_cg.errors import NonFiniteError
from recsys_cg.model.checkpoints import Checkpoints, TrainingState
from recsys_cg.model.distribution import sum_over_replicas
from recsys_cg.model.frameworks import tf
from recsys_cg.model.geometry import GeometryProbe, refuse_collapse
from recsys_cg.model.inputs import (
    Sequences,
    batch_signature,
    fitting_rows,
    split_batch,
    steps_per_epoch,
    stream_epoch,
)
from recsys_cg.model.mining import Search, mine
from recsys_cg.model.optimizer import build_optimizer
from recsys_cg.model.ties import mix_ties
from recsys_cg.model.two_tower import TwoTower
from recsys_cg.model.validation import RecallProbe, encode_queries
from recsys_cg.progress import Meter, meter, say

__all__ = ["TrainingLoop"]

_PROBE_PAIRS = 2048


@dataclass
class _Totals:
    """Sums over the steps of an epoch."""

    steps: int = 0
    loss: float = 0.0
    targets: float = 0.0
    candidates: float = 0.0
    masked: float = 0.0
    seconds: float = 0.0

    def add(self, figures: Mapping[str, Any]) -> None:
        self.steps += 1
        for name in ("loss", "targets", "candidates", "masked"):
            setattr(self, name, getattr(self, name) + float(figures[name]))

    def record(self) -> dict[str, Any]:
        steps = max(self.steps, 1)
        return {
            "loss": self.loss / steps,
            "steps": self.steps,
            "targets": int(self.targets),
            "candidates": self.candidates / steps,
            "masked": self.masked / steps,
            "seconds": round(self.seconds, 3),
            "examples_per_s": round(self.targets / self.seconds, 1) if self.seconds > 0 else 0.0,
        }


class TrainingLoop:
    """Train ``network`` to its best validation recall.

    Args:
        network: the model, its weights created, in the scope of the strategy that trains it.
        sequences: the training events.
        probe: validation queries; without any, the last epoch is the best.
        counts: int64 [items], training events an item.
        training: schedule and limits.
        seed: of order and probes.
    """

    def __init__(
        self,
        network: TwoTower,
        sequences: Sequences,
        probe: RecallProbe,
        counts: NDArray[np.int64],
        *,
        training: TrainingConfig,
        seed: int,
    ) -> None:
        self._network, self._sequences, self._probe = network, sequences, probe
        self._training, self._seed = training, seed
        self._geometry = GeometryProbe(counts, seed=seed)
        self._strategy = tf.distribute.get_strategy()
        length, replicas = training.row_length, self._strategy.num_replicas_in_sync
        rows = training.batch_sequences or fitting_rows(sequences.events, length=length, replicas=replicas)
        self._shape = (rows, length)
        self._steps = steps_per_epoch(sequences, shape=self._shape)
        network.compile(optimizer=build_optimizer(training, total_steps=training.epochs * self._steps))
        network.optimizer.build(network.trainable_variables)
        # By signature: without one, TensorFlow looks each batch's lengths up among those it met before, one by one.
        self._step = tf.function(self._train_replicas, input_signature=[self._batches(0).element_spec])

    def run(self, checkpoints: Path, *, fingerprint: str) -> TrainingState:
        """Train until an end is reached, and leave the best epoch's weights in the network."""
        saved = Checkpoints(checkpoints, self._network, self._network.optimizer, writes=self._is_chief())
        state = saved.restore(fingerprint)
        total = self._training.epochs * self._sequences.events
        board = tf.summary.create_file_writer(str(checkpoints.with_name(f"{checkpoints.name}-tensorboard")))
        with meter("training", total=total, unit="events") as shown:
            shown.advance(state.epoch * self._sequences.events)
            while not state.stopped:
                record = self._train_epoch(state, shown)
                self._measure(record, state)
                saved.save(state, is_best=state.best_epoch == state.epoch)
                _log(board, record)
        board.close()
        self._wait_for_all()
        saved.restore_best(state)
        say(f"training stopped: {state.stopped}")
        return state

    def _is_chief(self) -> bool:
        resolver = self._strategy.cluster_resolver
        return resolver is None or not resolver.task_id

    def _wait_for_all(self) -> None:
        """Return when every replica is here: what the first worker wrote is then there for the others."""
        if self._strategy.num_replicas_in_sync > 1:
            meet = tf.function(lambda: sum_over_replicas(tf.constant(1.0)))
            self._strategy.run(meet)

    def _train_replicas(self, batch: Any) -> dict[str, Any]:
        """Train one step on all replicas; the figures are those of the whole."""
        figures = self._strategy.run(self._train_part, args=(batch,))
        return {name: self._strategy.experimental_local_results(value)[0] for name, value in figures.items()}

    def _train_part(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Train one step on a replica's rows; of several workers' batches TensorFlow forgets the shape."""
        signature = self._signature()
        figures: dict[str, Any] = self._network.train_step(
            {name: tf.ensure_shape(part, signature[name].shape) for name, part in batch.items()}
        )
        return figures

    def _signature(self) -> dict[str, Any]:
        """Return the tf.TensorSpec of each entry of a replica's batch."""
        rows = self._shape[0] // self._strategy.num_replicas_in_sync
        sequences = self._sequences
        return batch_signature((rows, self._shape[1]), skips=sequences.skips, context=sequences.context)

    def _train_epoch(self, state: TrainingState, shown: Meter) -> dict[str, Any]:
        totals = _Totals()
        shown_events = 0
        started = time.monotonic()
        for batch in self._batches(state.epoch):
            figures = {name: value.numpy() for name, value in self._step(batch).items()}
            if not np.isfinite(figures["loss"]):
                where = f"epoch {state.epoch + 1}, step {totals.steps + 1}"
                self._network.check_finite(where)
                raise NonFiniteError(f"{where}: the loss is {figures['loss']}; lower training.learning_rate")
            totals.add(figures)
            done = min(self._shape[0] * self._shape[1], self._sequences.events - shown_events)
            shown_events += done
            shown.advance(done, f"loss {totals.loss / totals.steps:.4f}")
            totals.seconds = time.monotonic() - started
            if self._out_of_time(state.seconds + totals.seconds):
                break
        state.epoch += 1
        state.seconds += totals.seconds
        return {"epoch": state.epoch, **totals.record()}

    def _batches(self, epoch: int) -> Any:
        """Return the epoch's batches, each replica's rows apart."""
        count = self._strategy.num_replicas_in_sync
        signature = self._signature()

        def build(context: Any) -> Any:
            per_pipeline = count // context.num_input_pipelines
            first = context.input_pipeline_id * per_pipeline

            def generate() -> Iterator[Mapping[str, NDArray[Any]]]:
                draw = {"seed": self._seed, "epoch": epoch}
                sequences = mix_ties(self._sequences, share=self._training.ties_in_order, **draw)
                for batch in stream_epoch(sequences, shape=self._shape, **draw):
                    for part in range(first, first + per_pipeline):
                        yield split_batch(batch, part, count)

            return tf.data.Dataset.from_generator(generate, output_signature=signature).prefetch(2)

        return self._strategy.distribute_datasets_from_function(build)

    def _out_of_time(self, seconds: float) -> bool:
        return self._training.max_minutes is not None and seconds >= 60.0 * self._training.max_minutes

    def _measure(self, record: dict[str, Any], state: TrainingState) -> None:
        """Add recall, geometry and temperature to ``record``, and decide whether training ends."""
        network, training = self._network, self._training
        network.check_finite(f"after epoch {state.epoch}")
        vectors, embedded = network.encode_items()
        recall = self._probe.recall(network, vectors, embedded) if self._probe.size else None
        record["temperature"] = float(network.task.temperature.value().numpy())
        record["validation_recall"] = recall
        record["geometry"] = self._measure_geometry(embedded)
        record["mined"] = self._mine(state, vectors, embedded)
        state.epochs.append(record)
        if record["geometry"] is not None:
            refuse_collapse(record["geometry"], training, dim=vectors.shape[1], items=len(vectors), epoch=state.epoch)
        if recall is None or recall > state.best_recall:
            state.best_epoch, state.best_recall = state.epoch, -1.0 if recall is None else recall
        if state.epoch >= training.epochs:
            state.stopped = f"all {training.epochs} epochs are done"
        elif state.epoch - state.best_epoch >= training.patience:
            state.stopped = f"no better validation recall in {training.patience} epochs"
        elif self._out_of_time(state.seconds):
            state.stopped = f"max_minutes = {training.max_minutes:g} is reached"
        shown = "" if recall is None else f", validation recall@{training.validation_k} {recall:.4f}"
        say(f"epoch {state.epoch}: loss {record['loss']:.4f}{shown}, {record['examples_per_s']:,.0f} examples/s")

    def _mine(
        self, state: TrainingState, vectors: NDArray[np.float32], embedded: NDArray[np.float32]
    ) -> dict[str, Any] | None:
        """Refill the mined negatives, where they are declared and their warm-up is over."""
        source = self._network.sources.mined
        if source is None or state.epoch < source.warmup_epochs:
            return None
        findings = mine(
            Search(
                self._network,
                self._sequences,
                vectors,
                embedded,
                band=source.band,
                max_history=self._probe.max_history,
                seed=self._seed + state.epoch,
            )
        )
        source.assign(findings.counts)
        return {
            "queries": findings.queries,
            "distinct_items": int((findings.counts > 0).sum()),
            "estimated_false_negative_share": findings.false_share,
        }

    def _measure_geometry(self, embedded: NDArray[np.float32]) -> dict[str, float] | None:
        pairs = min(self._probe.size, _PROBE_PAIRS)
        if pairs == 0 or len(embedded) < 2:
            return None
        queries = encode_queries(self._network, self._probe.arrays, embedded, slice(0, pairs))
        return self._geometry.measure(queries, self._probe.targets.first()[:pairs], embedded)


def _log(board: Any, record: Mapping[str, Any]) -> None:
    flat = {**record}
    for group in ("geometry", "mined"):
        flat |= {f"{group}/{name}": value for name, value in (record[group] or {}).items()}
    with board.as_default(step=record["epoch"]):
        for name, value in flat.items():
            if isinstance(value, int | float) and name != "epoch":
                tf.summary.scalar(name, float(value))
    board.flush()
