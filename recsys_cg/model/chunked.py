"""Log-sum-exp of a product of matrices, in chunks of candidates, recomputed for the gradient.

The logits of q queries against c candidates would be q * c floats, several times over with their gradient. Here only
q * chunk of them exist at a time: the forward pass keeps a running maximum and sum (Milakov and Gimelshein 2018), the
backward pass computes each chunk's logits again. Where one chunk holds all candidates, nothing is computed twice.
"""

from __future__ import annotations

from typing import Any

from recsys_cg.model.frameworks import tf
from recsys_cg.model.logits import EXCLUDED, Exclusions

__all__ = ["masked_logsumexp"]


def masked_logsumexp(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, *, chunk: int) -> Any:
    """Return ``log sum over c of exp(queries . candidates_c + offset_c)`` over the candidates not excluded.

    Differentiable once in queries, candidates and offset. Peak memory grows with queries * chunk.

    Args:
        queries: float32 [queries, dim]; divide by the temperature before.
        candidates: float32 [candidates, dim], candidates >= 1, statically known or not.
        offset: float32 [candidates], `EXCLUDED` where a candidate is not there.
        exclusions: who may not meet whom.
        chunk: candidates at a time, >= 1.

    Returns:
        float32 [queries]; about -1e9 where every candidate is excluded.
    """
    total = candidates.shape[0]
    if total is not None and total <= chunk:
        return _whole(queries, candidates, offset, exclusions)
    missing = -tf.shape(candidates)[0] % chunk
    padded = tf.pad(candidates, [[0, missing], [0, 0]])
    extended = tf.pad(offset, [[0, missing]], constant_values=EXCLUDED)
    return _in_chunks(queries, padded, extended, exclusions.padded(missing), chunk)


def _logits(queries: Any, candidates: Any, offset: Any, excluded: Any) -> Any:
    logits = tf.linalg.matmul(queries, candidates, transpose_b=True) + offset[None, :]
    return tf.where(excluded, EXCLUDED, logits)


def _shares(logits: Any, excluded: Any, total: Any, upstream: Any) -> Any:
    return tf.where(excluded, 0.0, tf.exp(logits - total[:, None])) * upstream[:, None]


def _whole(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions) -> Any:
    excluded = exclusions.slice(0, candidates.shape[0])

    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def compute(queries: Any, candidates: Any, offset: Any) -> Any:
        logits = _logits(queries, candidates, offset, excluded)
        largest = tf.reduce_max(logits, axis=1)
        powers = tf.exp(logits - largest[:, None])
        summed = tf.reduce_sum(powers, axis=1)
        met = largest > 0.5 * EXCLUDED

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            scale = tf.where(met, upstream / summed, 0.0)[:, None]
            toward_queries = tf.linalg.matmul(powers, candidates) * scale
            toward_candidates = tf.linalg.matmul(powers, queries * scale, transpose_a=True)
            return toward_queries, toward_candidates, tf.linalg.matmul(powers, scale, transpose_a=True)[:, 0]

        return largest + tf.math.log(summed), gradient

    return compute(queries, candidates, offset)


def _in_chunks(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, chunk: int) -> Any:
    steps = tf.shape(candidates)[0] // chunk
    dim = candidates.shape[1]

    def part(step: Any, queries: Any, candidates: Any, offset: Any) -> tuple[Any, Any, Any]:
        start = step * chunk
        block = tf.ensure_shape(candidates[start : start + chunk], [chunk, dim])
        excluded = exclusions.slice(start, chunk)
        return block, _logits(queries, block, offset[start : start + chunk], excluded), excluded

    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def compute(queries: Any, candidates: Any, offset: Any) -> Any:
        rows = tf.shape(queries)[0]

        def forward(step: Any, largest: Any, summed: Any) -> tuple[Any, Any, Any]:
            _, logits, _ = part(step, queries, candidates, offset)
            higher = tf.maximum(largest, tf.reduce_max(logits, axis=1))
            summed = summed * tf.exp(largest - higher) + tf.reduce_sum(tf.exp(logits - higher[:, None]), axis=1)
            return step + 1, higher, summed

        start = (tf.constant(0), tf.fill([rows], 2.0 * EXCLUDED), tf.zeros([rows]))
        _, largest, summed = tf.while_loop(lambda step, *_: step < steps, forward, start, parallel_iterations=1)
        total = largest + tf.math.log(summed)

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            def backward(step: Any, toward: Any, blocks: Any, offsets: Any) -> tuple[Any, Any, Any, Any]:
                block, logits, excluded = part(step, queries, candidates, offset)
                shares = _shares(logits, excluded, total, upstream)
                toward += tf.linalg.matmul(shares, block)
                blocks = blocks.write(step, tf.linalg.matmul(shares, queries, transpose_a=True))
                return step + 1, toward, blocks, offsets.write(step, tf.reduce_sum(shares, axis=0))

            arrays = (
                tf.TensorArray(tf.float32, steps, element_shape=[chunk, dim]),
                tf.TensorArray(tf.float32, steps, element_shape=[chunk]),
            )
            _, toward, blocks, offsets = tf.while_loop(
                lambda step, *_: step < steps,
                backward,
                (tf.constant(0), tf.zeros_like(queries), *arrays),
                parallel_iterations=1,
            )
            return toward, tf.reshape(blocks.stack(), [-1, dim]), tf.reshape(offsets.stack(), [-1])

        return total, gradient

    return compute(queries, candidates, offset)
