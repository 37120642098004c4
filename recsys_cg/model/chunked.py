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


def masked_logsumexp(
    queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, *, chunk: int, most: int | None = None
) -> Any:
    """Return ``log sum over c of exp(queries . candidates_c + offset_c)`` over the candidates not excluded.

    Differentiable once in queries, candidates and offset. Peak memory grows with queries * chunk.

    Args:
        queries: float32 [queries, dim]; divide by the temperature before.
        candidates: float32 [candidates, dim], candidates >= 1, statically known or not.
        offset: float32 [candidates], `EXCLUDED` where a candidate is not there.
        exclusions: who may not meet whom.
        chunk: candidates at a time, >= 1.
        most: candidates at most, where their number is not statically known.

    Returns:
        float32 [queries]; about -1e9 where every candidate is excluded.
    """
    total = most if candidates.shape[0] is None else candidates.shape[0]
    if total is not None and total <= chunk:
        return _whole(queries, candidates, offset, exclusions)
    missing = -tf.shape(candidates)[0] % chunk
    padded = tf.pad(candidates, [[0, missing], [0, 0]])
    extended = tf.pad(offset, [[0, missing]], constant_values=EXCLUDED)
    return _in_chunks(queries, padded, extended, exclusions.padded(missing), chunk)


def _logits(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, start: Any) -> Any:
    logits = tf.linalg.matmul(queries, candidates, transpose_b=True)
    return exclusions.add_offset(logits, offset, start)


def _gradients(powers: Any, scale: Any, queries: Any, candidates: Any) -> tuple[Any, Any, Any]:
    """Return the gradients of queries, candidates and offset; the shares are ``powers * scale``, scale [queries, 1].

    Of a long transposed product the factor that is turned is the small one: Eigen is twice as fast that way.
    """
    toward_queries = tf.linalg.matmul(powers, candidates) * scale
    toward_candidates = tf.transpose(tf.linalg.matmul(queries * scale, powers, transpose_a=True))
    return toward_queries, toward_candidates, tf.linalg.matmul(scale, powers, transpose_a=True)[0]


def _whole(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def compute(queries: Any, candidates: Any, offset: Any) -> Any:
        logits = _logits(queries, candidates, offset, exclusions, 0)
        largest = tf.reduce_max(logits, axis=1)
        powers = tf.exp(logits - largest[:, None])
        summed = tf.reduce_sum(powers, axis=1)
        met = largest > 0.5 * EXCLUDED

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            return _gradients(powers, tf.where(met, upstream / summed, 0.0)[:, None], queries, candidates)

        return largest + tf.math.log(summed), gradient

    return compute(queries, candidates, offset)


def _in_chunks(queries: Any, candidates: Any, offset: Any, exclusions: Exclusions, chunk: int) -> Any:
    steps = tf.shape(candidates)[0] // chunk
    dim = candidates.shape[1]

    def part(step: Any, queries: Any, candidates: Any, offset: Any) -> tuple[Any, Any]:
        start = step * chunk
        block = tf.ensure_shape(candidates[start : start + chunk], [chunk, dim])
        return block, _logits(queries, block, offset[start : start + chunk], exclusions, start)

    @tf.custom_gradient  # type: ignore[untyped-decorator, unused-ignore]
    def compute(queries: Any, candidates: Any, offset: Any) -> Any:
        rows = tf.shape(queries)[0]

        def forward(step: Any, largest: Any, summed: Any) -> tuple[Any, Any, Any]:
            _, logits = part(step, queries, candidates, offset)
            higher = tf.maximum(largest, tf.reduce_max(logits, axis=1))
            summed = summed * tf.exp(largest - higher) + tf.reduce_sum(tf.exp(logits - higher[:, None]), axis=1)
            return step + 1, higher, summed

        start = (tf.constant(0), tf.fill([rows], 2.0 * EXCLUDED), tf.zeros([rows]))
        _, largest, summed = tf.while_loop(lambda step, *_: step < steps, forward, start, parallel_iterations=1)
        total = largest + tf.math.log(summed)

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            scale = tf.where(largest > 0.5 * EXCLUDED, upstream, 0.0)[:, None]

            def backward(step: Any, toward: Any, blocks: Any, offsets: Any) -> tuple[Any, Any, Any, Any]:
                block, logits = part(step, queries, candidates, offset)
                found = _gradients(tf.exp(logits - total[:, None]), scale, queries, block)
                return step + 1, toward + found[0], blocks.write(step, found[1]), offsets.write(step, found[2])

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
