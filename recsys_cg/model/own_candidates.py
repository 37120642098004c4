"""Candidates that each query has for itself, beside those that all queries of a step share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import EXCLUDED

__all__ = ["OwnCandidates"]


@dataclass(frozen=True)
class OwnCandidates:
    """What `recsys_cg.model.negatives.Impressions` gives each query.

    Attributes:
        vectors: float32 [queries, per_query, dim], unit norm.
        valid: bool [queries, per_query].
        log_expected: float32 [queries, per_query], log of the expected count: 0, they are there by construction.
        weight: times that each counts in a denominator, above 0.
    """

    vectors: Any
    valid: Any
    log_expected: Any
    weight: float = 1.0

    def similarities(self, queries: Any) -> Any:
        """Return ``queries . vectors`` for ``queries`` float32 [queries, dim]: float32 [queries, per_query]."""
        return tf.linalg.matvec(self.vectors, queries)

    def logits(self, queries: Any) -> Any:
        """Return similarities and offsets, `EXCLUDED` where there is no candidate; float32 [queries, per_query]."""
        offset = float(np.log(self.weight)) - self.log_expected
        return tf.where(self.valid, self.similarities(queries) + offset, EXCLUDED)
