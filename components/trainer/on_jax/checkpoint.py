"""Checkpoints of a training on JAX, in the format of those of a training on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from infeed.components.trainer.checkpoint import Checkpoints


class JaxCheckpoints(Checkpoints):
    """Checkpoints of variables that TensorFlow does not hold: copies of them are saved, and restored from.

    `sync`, which the loop sets, assigns the state of the last step to the variables.
    """

    sync: Callable[[], None]

    def tf_variables(self, found: Sequence[keras.Variable]) -> list[tf.Variable]:
        self._found = found
        self._copies = [tf.Variable(np.asarray(one.value), trainable=False) for one in found]
        return self._copies

    def save(self, finished: bool = False) -> None:
        self.sync()
        for copy, variable in zip(self._copies, self._found, strict=True):
            copy.assign(np.asarray(variable.value))
        super().save(finished)

    def restore(self) -> None:
        super().restore()
        for copy, variable in zip(self._copies, self._found, strict=True):
            variable.assign(copy.numpy())
