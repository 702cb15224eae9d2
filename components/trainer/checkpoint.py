"""Resume: a training that was killed goes on with the very next batch.

A checkpoint holds all that the rest of the training depends on: the variables of model, optimizer and metrics, random
states among them, how many steps are done, and what callbacks remember, such as EarlyStopping's best weights. Input
needs no state: a batch depends on (seed, step) alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infeed.components.trainer.cluster import agreed
from infeed.components.trainer.epochs import Progress

_STEP = "step/.ATTRIBUTES/VARIABLE_VALUE"  # how TensorFlow names the variable `step` inside a checkpoint
_KEPT = 2  # the newest, and the one before while the newest is written
_PAUSE = 100  # times what writing took, at least: a large model is saved less often than asked, and stalls under 1 %
_ARRAY = "__array__"


def checkpoint_folder(base: str, *what_is_trained: Any) -> str:
    """The folder under `base` for a training of exactly this; any change of data or options gives another one."""
    described = json.dumps(what_is_trained, sort_keys=True, default=str)
    return os.path.join(base, hashlib.sha256(described.encode()).hexdigest()[:16])


def saved_step(folder: str) -> int:
    """How many steps were trained when the newest checkpoint was written; 0 where there is none."""
    newest = tf.train.latest_checkpoint(folder)
    return int(tf.train.load_variable(newest, _STEP)) if newest else 0


def remove(folder: str) -> None:
    """Removes a training's checkpoints, once nobody needs them."""
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)


class Checkpoints(keras.callbacks.Callback):
    """Writes checkpoints while Keras' `fit` runs, and puts the newest one back before the first step.

    It has to be the last callback: what it saves and restores is what the others have made of the same moment.

    Args:
      read_from: folder of earlier checkpoints; the same for all workers.
      write_to: folder to write to; the chief's is `read_from`, the others' a scratch place, for all have to save.
      seconds: between two checkpoints, at least. The first is written after the first call, so that a folder that
        cannot be written to is told at once.
      strategy: the one that trains.
    """

    def __init__(self, read_from: str, write_to: str, seconds: float, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self._newest = tf.train.latest_checkpoint(read_from)
        self._write_to, self._seconds, self._strategy = write_to, seconds, strategy

    def attach(
        self,
        progress: Progress,
        callbacks: Sequence[keras.callbacks.Callback],
        *more: tf.Variable,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """Tells what belongs to the training beside the model: the other callbacks, and variables of the loop's own.

        `settle` returns when all steps are made that were asked for; what is saved is what they have left.
        """
        self._progress, self._callbacks, self._more, self._settle = progress, callbacks, more, settle

    def on_train_begin(self, logs: Any = None) -> None:
        variables = [variable.value for variable in _all_variables(self.model)]
        with tf.device("cpu:0"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._memory = tf.Variable(b"", dtype=tf.string, trainable=False)
        self._saved = tf.train.Checkpoint(variables=[*variables, *self._more], step=self._step, memory=self._memory)
        self._manager = tf.train.CheckpointManager(self._saved, self._write_to, max_to_keep=_KEPT)
        self._from_here()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._progress.to_skip:
            return
        if self._newest:
            self._restore()
        elif self._progress.done >= self._due:
            self._save_if_time()

    def _from_here(self) -> None:
        """The next call is the first that this process makes."""
        self._last = (self._progress.done, time.perf_counter())
        self._due, self._pause = self._progress.done + self._progress.per_call, 0.0

    def _save_if_time(self) -> None:
        """Saves, or looks again later. When is said in steps: all workers have to save at the same one."""
        step, since = self._last
        passed = self._agreed_since(since)
        rate, left = (self._progress.done - step) / passed, self._pause - passed
        if left <= 0:
            started = time.perf_counter()
            self._save()
            left = self._pause = max(self._seconds, _PAUSE * self._agreed_since(started))
            self._last = (self._progress.done, time.perf_counter())
        self._due = self._progress.done + max(1, int(rate * left))

    def _agreed_since(self, moment: float) -> float:
        return agreed(time.perf_counter() - moment, self._strategy)

    def _save(self) -> None:
        self._settle()
        self._step.assign(self._progress.done)
        self._memory.assign(pack({str(i): _plain_attributes(one) for i, one in enumerate(self._remembering())}))
        self._manager.save(checkpoint_number=self._progress.done)

    def _restore(self) -> None:
        self._saved.restore(self._newest).assert_consumed()
        self._newest = None
        memory = unpack(self._memory.numpy())
        for i, one in enumerate(self._remembering()):
            for name, value in memory[str(i)].items():
                setattr(one, name, value)
        self._from_here()

    def _remembering(self) -> list[Any]:
        return [*self._callbacks, self.model.history]  # Keras puts its History callback there


def _all_variables(model: keras.Model) -> list[Any]:
    """Each once: weights, random states, optimizer and metrics."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return list({id(variable): variable for variable in variables}.values())


def _plain_attributes(callback: Any) -> dict[str, Any]:
    """What a callback remembers; what Keras tells every callback (`params`) is no memory."""
    attributes = vars(callback).items()
    return {name: value for name, value in attributes if not name.startswith("_") and name != "params" and plain(value)}


def plain(value: Any) -> bool:
    """Whether `pack` can keep it."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(plain(one) for one in value)
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    return value is None or isinstance(value, str | bool | int | float | np.generic | tf.Tensor)


def pack(values: Mapping[str, Any]) -> bytes:
    """Nested plain values as bytes, without pickle: JSON, with the arrays beside it."""
    arrays: list[Any] = []

    def apart(value: Any) -> Any:
        if isinstance(value, np.ndarray | tf.Tensor | np.generic):
            arrays.append(np.asarray(value))
            return {_ARRAY: len(arrays) - 1}
        if isinstance(value, Mapping):
            return {key: apart(one) for key, one in value.items()}
        return [apart(one) for one in value] if isinstance(value, list | tuple) else value

    text = json.dumps(apart(values))
    file = io.BytesIO()
    np.savez(file, text=np.array(text), **{f"array{i}": array for i, array in enumerate(arrays)})
    return file.getvalue()


def unpack(packed: bytes) -> Any:
    """The opposite of `pack`; a scalar of numpy or TensorFlow comes back as Python's own."""
    with np.load(io.BytesIO(packed)) as file:  # NumPy refuses pickled objects unless told otherwise

        def together(value: dict[str, Any]) -> Any:
            if _ARRAY not in value:
                return value
            array = file[f"array{value[_ARRAY]}"]
            return array if array.ndim else array.item()

        return json.loads(str(file["text"]), object_hook=together)
