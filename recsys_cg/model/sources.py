"""The sources of negatives that a configuration declares, with the state that some of them keep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys_cg.config import ModelConfig, NegativesConfig
from recsys_cg.extensions import call_extension, is_extension, load_extension
from recsys_cg.model.frameworks import keras, tf
from recsys_cg.model.memory import CrossBatchMemory, Mined, StreamingFrequency
from recsys_cg.model.negatives import (
    BatchEvents,
    Impressions,
    InBatch,
    Mixture,
    Popularity,
    Sampler,
    Uniform,
    fixed_shares,
    log_shares,
)

__all__ = ["Sources"]


class Sources(keras.layers.Layer):  # type: ignore[misc, unused-ignore]
    """The mixture of ``config.negatives``, in their order; impressions stand apart, since each query has its own.

    Args:
        config: negatives, frequencies and dim.
        counts: int64 [items], training events an item.
    """

    def __init__(self, config: ModelConfig, counts: NDArray[np.int64]) -> None:
        super().__init__(name="sources")
        self._counts = counts
        self._frequency: StreamingFrequency | None = None
        self._shares = fixed_shares(log_shares(counts))
        if config.frequencies == "streaming":
            self._frequency = StreamingFrequency(len(counts), rate=config.frequency_rate)
            self._shares = self._frequency.log_q
        self._memory: CrossBatchMemory | None = None
        self.mined: Mined | None = None
        self.impressions: Impressions | None = None
        self.skip_weight = 1.0
        self.mixture = Mixture(
            [self._build(source, config.dim) for source in config.negatives if source.kind != "impressions"]
        )
        for source in config.negatives:
            if source.kind == "impressions":
                self.impressions, self.skip_weight = Impressions(source.per_query), source.weight

    def _build(self, source: NegativesConfig, dim: int) -> Sampler:
        if is_extension(source.kind):
            return self._build_outside(source)
        if source.kind == "in_batch":
            return InBatch(self._shares, source.count)
        if source.kind == "uniform":
            return Uniform(len(self._counts), source.count)
        if source.kind == "popularity":
            return Popularity(self._counts, source.count, source.alpha)
        if source.kind == "mined":
            band = (source.first_rank, source.last_rank)
            mined = Mined(len(self._counts), count=source.count, warmup_epochs=source.warmup_epochs, band=band)
            self.mined = mined
            return mined
        memory = CrossBatchMemory(self._shares, count=source.count, max_age=source.max_age, dim=dim)
        self._memory = memory
        return memory

    def _build_outside(self, source: NegativesConfig) -> Sampler:
        key = "model.negatives.kind"
        part = load_extension(source.kind, key=key, methods=("sample", "log_expected_count"))
        given = {"counts": self._counts, "count": source.count}
        sampler: Sampler = call_extension(part, source.kind, source.options, key=key, **given)
        return sampler

    def observe(self, batch: BatchEvents) -> None:
        """Let the frequency estimate, where there is one, see the events of a step."""
        if self._frequency is not None:
            self._frequency.observe(batch)

    def remember(self, batch: BatchEvents, vectors: Any, seed: Any) -> None:
        """Let the memory, where there is one, keep some of the step's items and their vectors."""
        if self._memory is not None:
            self._memory.remember(batch, vectors, tf.random.experimental.stateless_fold_in(seed, -1))
