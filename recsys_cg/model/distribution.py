"""One device or several: the global batch is the candidate set, the loss its mean, the gradient that of one device.

Each replica takes its rows of every batch. What replicas draw from their own events is gathered as item rows, so each
scores its queries against everybody's candidates; sources that do not depend on the events draw the same everywhere.
Item rows, not vectors, are gathered: every replica embeds the candidates from its mirror of the weights, and the sum
of the replicas' gradients is the gradient of the whole.
"""

from __future__ import annotations

from typing import Any

from recsys_cg.config import ModelConfig, TrainingConfig
from recsys_cg.errors import ConfigError
from recsys_cg.model.frameworks import tf

__all__ = ["build_strategy", "gather_rows", "replica_seed", "replicas", "sum_over_replicas"]


def build_strategy(training: TrainingConfig, model: ModelConfig) -> Any:
    """Return the ``tf.distribute`` strategy that ``training.devices`` names.

    ``multi_worker`` reads the cluster from the environment variable ``TF_CONFIG``; start the same command in every
    worker, each with a directory of its own, and the checkpoints on a disk that all see.

    Raises:
        ConfigError: an option that is not defined across devices, or rows that cannot be shared out evenly.
    """
    if training.devices == "one":
        return tf.distribute.get_strategy()
    stateful = [source.kind for source in model.negatives if source.kind == "cross_batch"]
    if stateful or model.frequencies == "streaming" or model.loss == "symmetric":
        raise ConfigError(
            f'training.devices = "{training.devices}" does not go with cross_batch negatives, streaming frequencies '
            'or the symmetric loss: use devices = "one"'
        )
    if training.max_minutes is not None:
        raise ConfigError("training.max_minutes would end workers at different steps: set epochs instead")
    multi = training.devices == "multi_worker"
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if multi else tf.distribute.MirroredStrategy()
    count = strategy.num_replicas_in_sync
    if training.batch_sequences is not None and training.batch_sequences % count:
        raise ConfigError(f"training.batch_sequences = {training.batch_sequences} is no multiple of {count} replicas")
    return strategy


def replicas() -> int:
    """Return the number of replicas that train together; 1 outside of a strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def _context() -> Any:
    """Return the replica context when there is more than one replica, else None."""
    return tf.distribute.get_replica_context() if replicas() > 1 else None


def gather_rows(values: Any) -> Any:
    """Return ``values`` [n, ...] of all replicas, one after the other; equal n everywhere."""
    context = _context()
    if context is None:
        return values
    sent = tf.cast(values, tf.int32) if values.dtype == tf.bool else values
    gathered = tf.cast(context.all_gather(sent, axis=0), values.dtype)
    return tf.ensure_shape(gathered, [values.shape[0] * replicas(), *values.shape[1:]])


def sum_over_replicas(value: Any) -> Any:
    """Return the sum of a scalar over all replicas."""
    context = _context()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def replica_seed(seed: Any) -> Any:
    """Return a seed (int32 [2]) that differs from replica to replica; ``seed`` itself where there is one."""
    context = _context()
    if context is None:
        return seed
    return tf.random.experimental.stateless_fold_in(seed, context.replica_id_in_sync_group)
