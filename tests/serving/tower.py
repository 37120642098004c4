"""Export a query tower whose output can be worked out by hand. Run as a program: it alone imports TensorFlow.

The query is the normalised sum of ``history * exp(-min(gap_s, 10000) / 1000) * (1 + event)`` over the valid positions,
and the last unit vector when there is none. With context features, each code c from 1 to DIM adds ten times the unit
vector of place c - 1, whatever the history.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

TEMPORARY, MAX_HISTORY, DIM = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
FEATURES = int(sys.argv[4]) if len(sys.argv) > 4 else 0
CONTEXT = [tf.TensorSpec([None, FEATURES], tf.int32, name="context")] if FEATURES else []


class Tower(tf.Module):
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, MAX_HISTORY, DIM], tf.float32, name="history"),
            tf.TensorSpec([None, MAX_HISTORY], tf.float32, name="gap_s"),
            tf.TensorSpec([None, MAX_HISTORY], tf.int32, name="event"),
            tf.TensorSpec([None], tf.int32, name="length"),
            *CONTEXT,
        ]
    )
    def __call__(self, history, gap_s, event, length, *context):
        valid = tf.cast(tf.range(MAX_HISTORY)[None, :] < length[:, None], tf.float32)
        weight = valid * tf.exp(-tf.minimum(gap_s, 10_000.0) / 1000.0) * (1.0 + tf.cast(event, tf.float32))
        total = tf.reduce_sum(history * weight[:, :, None], axis=1)
        for codes in context:
            total += 10.0 * tf.reduce_sum(tf.one_hot(codes - 1, DIM), axis=1)
        empty = tf.cast(tf.equal(length, 0), tf.float32)[:, None] * np.eye(DIM, dtype=np.float32)[None, -1]
        return {"query": tf.math.l2_normalize(total + empty, axis=1)}


tower = Tower()
tf.saved_model.save(tower, str(TEMPORARY / "saved_model"), signatures={"serving_default": tower.__call__})
converter = tf.lite.TFLiteConverter.from_saved_model(str(TEMPORARY / "saved_model"), signature_keys=["serving_default"])
(TEMPORARY / "query.tflite").write_bytes(converter.convert())


class ContentTower(tf.Module):
    """Entry 1, 2, 3 of the genre stands for axis 0, 1, 2; the price, where there is one, for the last axis."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.int32, name="f_genre"),
            tf.TensorSpec([None, 2], tf.float32, name="f_price"),
        ]
    )
    def __call__(self, f_genre, f_price):
        axes = tf.reduce_sum(tf.one_hot(f_genre - 1, DIM), axis=1)
        last = tf.constant(np.eye(DIM, dtype=np.float32)[-1])
        return {"vector": tf.math.l2_normalize(axes + f_price[:, :1] * last + 1e-9, axis=1)}


content = ContentTower()
tf.saved_model.save(content, str(TEMPORARY / "content"), signatures={"serving_default": content.__call__})
converter = tf.lite.TFLiteConverter.from_saved_model(str(TEMPORARY / "content"), signature_keys=["serving_default"])
(TEMPORARY / "content.tflite").write_bytes(converter.convert())
