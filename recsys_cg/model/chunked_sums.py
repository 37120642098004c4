"""Sums and maxima over candidates, in chunks of candidates, recomputed for the gradient.

What `recsys_cg.model.chunked` does for the softmax losses, for the pairwise ones: of q queries against c candidates
only q * chunk logits exist at a time, in the forward pass and in the backward pass. Where one chunk holds all
candidates, nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import EXCLUDED, Exclusions

__all__ = ["HINGE", "PRESENCE", "SOFTPLUS", "Curve", "masked_max", "masked_sum"]


@dataclass(frozen=True)
class Curve:
    """A function of a logit that is 0 at `EXCLUDED`, and its derivative."""

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]


SOFTPLUS: Final = Curve(tf.nn.softplus, tf.nn.sigmoid)
"""``log(1 + exp(z))``."""

HINGE: Final = Curve(tf.nn.relu, lambda z: tf.cast(z > 0.0, tf.float32))
"""``max(0, z)``."""

PRESENCE: Final = Curve(lambda z: tf.cast(z > 0.5 * EXCLUDED, tf.float32), tf.zeros_like)
"""1 for a candidate that is there and not excluded, else 0."""


def masked_sum(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, *, curve: Curve, chunk: int) -> Any:
    """Return ``sum over c of f(queries . candidates_c + offset_c)`` over the candidates not excluded.

    Differentiable once in queries, candidates and offset. Peak memory grows with queries * chunk.

    Args:
        queries: float32 [queries, dim].
        candidates: float32 [candidates, dim], candidates >= 1.
        offset: float32 [candidates], `EXCLUDED` where a candidate is not there.
        exclusions: who may not meet whom.
        curve: f.
        chunk: candidates at a time, >= 1.

    Returns:
        float32 [queries]; 0 where every candidate is excluded.
    """
    parts = _Parts.of(candidates, offset, exclusions, chunk)
    if parts is None:
        return tf.reduce_sum(curve.value(_logits(queries, candidates, offset, exclusions, 0)), axis=1)

    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def compute(queries: Any, candidates: Any, offset: Any) -> Any:
        def forward(step: Any, summed: Any) -> tuple[Any, Any]:
            _, logits = parts.logits(step, queries, candidates, offset)
            return step + 1, summed + tf.reduce_sum(curve.value(logits), axis=1)

        _, summed = parts.loop(forward, tf.zeros(tf.shape(queries)[:1]))

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            def backward(step: Any, toward: Any, blocks: Any, offsets: Any) -> tuple[Any, Any, Any, Any]:
                block, logits = parts.logits(step, queries, candidates, offset)
                slopes = curve.slope(logits) * upstream[:, None]
                blocks = blocks.write(step, tf.linalg.matmul(slopes, queries, transpose_a=True))
                offsets = offsets.write(step, tf.reduce_sum(slopes, axis=0))
                return step + 1, toward + tf.linalg.matmul(slopes, block), blocks, offsets

            shapes = ([chunk, candidates.shape[1]], [chunk])
            arrays = [tf.TensorArray(tf.float32, parts.steps, element_shape=shape) for shape in shapes]
            _, toward, blocks, offsets = parts.loop(backward, tf.zeros_like(queries), *arrays)
            return toward, tf.reshape(blocks.stack(), tf.shape(candidates)), tf.reshape(offsets.stack(), [-1])

        return summed, gradient

    return compute(queries, parts.candidates, parts.offset)


def masked_max(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, *, chunk: int) -> Any:
    """Return ``max over c of queries . candidates_c`` over the candidates not excluded, float32 [queries].

    Arguments as `masked_sum`, and ``offset`` is 0 or `EXCLUDED`. Differentiable in queries and candidates: of equal
    ones the first is the largest. About `EXCLUDED` where every candidate is excluded.
    """
    asked, met = tf.stop_gradient(queries), tf.stop_gradient(candidates)
    parts = _Parts.of(met, offset, exclusions, chunk)
    if parts is None:
        logits = _logits(asked, met, offset, exclusions, 0)
        largest, place = tf.reduce_max(logits, axis=1), tf.argmax(logits, axis=1, output_type=tf.int32)
    else:

        def look(step: Any, largest: Any, place: Any) -> tuple[Any, Any, Any]:
            _, logits = parts.logits(step, asked, parts.candidates, parts.offset)
            highest = tf.reduce_max(logits, axis=1)
            found = step * chunk + tf.argmax(logits, axis=1, output_type=tf.int32)
            return step + 1, tf.maximum(largest, highest), tf.where(highest > largest, found, place)

        rows = tf.shape(queries)[0]
        _, largest, place = parts.loop(look, tf.fill([rows], 2.0 * EXCLUDED), tf.zeros([rows], tf.int32))
    similarity = tf.reduce_sum(queries * tf.gather(candidates, place), axis=1)
    return tf.where(largest > 0.5 * EXCLUDED, similarity, EXCLUDED)


@dataclass(frozen=True)
class _Parts:
    """Candidates padded to whole chunks."""

    candidates: Any
    offset: Any
    exclusions: Exclusions
    steps: Any
    chunk: int

    @classmethod
    def of(cls, candidates: Any, offset: Any, exclusions: Exclusions, chunk: int) -> _Parts | None:
        """Pad; None where one chunk holds all candidates."""
        total = candidates.shape[0]
        if total is not None and total <= chunk:
            return None
        missing = -tf.shape(candidates)[0] % chunk
        padded = tf.pad(candidates, [[0, missing], [0, 0]])
        extended = tf.pad(offset, [[0, missing]], constant_values=EXCLUDED)
        return cls(padded, extended, exclusions.padded(missing), tf.shape(padded)[0] // chunk, chunk)

    def logits(self, step: Any, queries: Any, candidates: Any, offset: Any) -> tuple[Any, Any]:
        start = step * self.chunk
        block = tf.ensure_shape(candidates[start : start + self.chunk], [self.chunk, candidates.shape[1]])
        return block, _logits(queries, block, offset[start : start + self.chunk], self.exclusions, start)

    def loop(self, body: Callable[..., Any], *start: Any) -> Any:
        state = (tf.constant(0), *start)
        return tf.while_loop(lambda step, *_: step < self.steps, body, state, parallel_iterations=1)


def _logits(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, start: Any) -> Any:
    return exclusions.add_offset(tf.linalg.matmul(queries, candidates, transpose_b=True), offset, start)
