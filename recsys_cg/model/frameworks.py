"""TensorFlow, Keras 2 and TFRS, imported once behind the environment guard; every module here takes them from it."""

from __future__ import annotations

from recsys_cg.model.environment import prepare

prepare()

import tensorflow as tf  # noqa: E402 - the guard must run first
import tensorflow_recommenders as tfrs  # noqa: E402
import tf_keras as keras  # noqa: E402

__all__ = ["keras", "tf", "tfrs"]
