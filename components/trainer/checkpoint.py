"""Checkpoints that resume a killed training with the next batch.

A checkpoint holds the complete state of the training: the variables of model, optimizer and metrics, random states, the
number of steps, and attributes of callbacks, such as EarlyStopping's best weights. Input needs no state, because a
batch depends only on (seed, step).

TensorFlow 2.18 and later opens neither `s3://` nor `minio://`, so `CheckpointMirror` copies checkpoints to such a store
after each save. A retried step runs on another machine, so checkpoints must leave this one.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.seams import tensorflow as tensorflow_seam
from infeed.components.trainer.distribution import all_reduce_mean
from infeed.components.trainer.steps import Progress

_STEP, _MEMORY = map(tensorflow_seam.name_in_checkpoint, ("step", "memory"))
_FINISHED = "finished"  # stored with the state of the callbacks
_NAME = "ckpt"
_INDEX = re.compile(rf"{_NAME}-(\d+)\.index")
# Errors of another process of the training, not of the disk. The training is then over.
_LOST = (tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.UnavailableError)
_KEPT = 2  # checkpoints to keep: the newest, and the previous one while the newest is written
_PAUSE = 100  # minimum pause, as a multiple of the writing time, so that stalls take less than 1 %
_ARRAY = "__array__"
_STATE = "checkpoint"  # TensorFlow's list of checkpoints, which every save rewrites
_SCHEMES = ("s3://", "minio://")
_log = logging.getLogger(__name__)


def checkpoint_folder(base: str, *what_is_trained: Any) -> str:
    """Return the folder under `base` for this training. Other data or options use another folder."""
    described = json.dumps(what_is_trained, sort_keys=True, default=str)
    return os.path.join(base, hashlib.sha256(described.encode()).hexdigest()[:16])


def saved_step(folder: str) -> int:
    """Return the step of the newest intact checkpoint, or 0 if there is none."""
    newest = newest_checkpoint(folder)
    return int(tf.train.load_variable(newest, _STEP)) if newest else 0


def newest_checkpoint(folder: str) -> str | None:
    """Return the newest checkpoint that can be read completely."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = {int(found[1]) for name in names if (found := _INDEX.fullmatch(name))}
    for number in sorted(numbers, reverse=True):
        prefix = os.path.join(folder, f"{_NAME}-{number}")
        try:
            reader = tf.train.load_checkpoint(prefix)
            # A killed process may leave any file half written. Reading a tensor verifies its checksum.
            for name in {_STEP, _MEMORY, *reader.get_variable_to_shape_map()}:
                reader.get_tensor(name)
        except Exception as error:  # TensorFlow may raise anything here, such as IndexError for a truncated file
            _log.warning("skipping the damaged checkpoint %s: %s", prefix, _first_line(error))
        else:
            return prefix
    return None


@contextmanager
def export_error_context(model: str, checkpoints: str) -> Iterator[None]:
    """Remove an incomplete export, and raise an InfeedError that explains how to export again."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        with suppress(tf.errors.OpError, OSError):
            remove(model)
        step = saved_step(checkpoints)
        do = "free some space, or change the permissions, and run again"
        kept = f"; {step:,} steps of training are saved in {checkpoints}, and training resumes there" if step else ""
        raise InfeedError(f"the model cannot be exported: {_first_line(error)}", where=model, do=do + kept) from error


def remove(path: str) -> None:
    """Remove a folder or a file, such as the checkpoints of a finished training."""
    if tf.io.gfile.isdir(path):
        tf.io.gfile.rmtree(path)
    elif tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def _first_line(error: Exception) -> str:
    """Return the system's message, without the failed TensorFlow operation."""
    return tensorflow_seam.reason_of(str(error.message if isinstance(error, tf.errors.OpError) else error))


class Checkpoints(keras.callbacks.Callback):
    """Callback that writes checkpoints during `fit`, and restores the newest one before the first step.

    It must be the last callback, because it saves and restores the state of the others.

    Args:
      read_from: folder of earlier checkpoints, the same for all workers.
      write_to: `read_from` for the chief, a temporary folder for other workers, because all must save.
      seconds: minimum time between two checkpoints. The first one is written after the first call, so that a folder
        without write permission is reported at once.
      saved: called after each checkpoint.

    Attributes:
      start_step, finished: step of the newest checkpoint, or 0, and whether training ended with it.
    """

    def __init__(
        self,
        read_from: str,
        write_to: str,
        seconds: float,
        strategy: tf.distribute.Strategy,
        saved: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._newest = newest_checkpoint(read_from)
        self.start_step = int(tf.train.load_variable(self._newest, _STEP)) if self._newest else 0
        self.finished = bool(self._newest and unpack(tf.train.load_variable(self._newest, _MEMORY)).get(_FINISHED))
        self._write_to, self._seconds, self._strategy = write_to, seconds, strategy
        self._on_saved = saved or (lambda: None)
        self._written, self._failed = 0, 0

    def attach(
        self,
        progress: Progress,
        callbacks: Sequence[keras.callbacks.Callback],
        *more: tf.Variable,
    ) -> None:
        """Add the rest of the training's state."""
        self._progress, self._callbacks, self._more = progress, callbacks, more

    def on_train_begin(self, logs: Any = None) -> None:
        # Weights, random states, and variables of optimizer and metrics, each once.
        found = [*self.model.variables, *self.model.optimizer.variables, *self.model.metrics_variables]
        variables = self.tf_variables(list({id(variable): variable for variable in found}.values()))
        with tf.device("cpu:0"):  # accelerators cannot hold strings
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._memory = tf.Variable(b"", dtype=tf.string, trainable=False)
        self._saved = tf.train.Checkpoint(variables=[*variables, *self._more], step=self._step, memory=self._memory)
        self._manager = tf.train.CheckpointManager(self._saved, self._write_to, _KEPT, checkpoint_name=_NAME)
        self._from_here()
        if self.finished:  # no further step follows, so restore now
            self.restore()

    def tf_variables(self, found: Sequence[keras.Variable]) -> list[tf.Variable]:
        """Return the TensorFlow variables to save."""
        return [variable.value for variable in found]

    def on_train_end(self, logs: Any = None) -> None:
        if not self.finished:
            self.save(finished=True)
        if self._failed and not self._written:
            _log.error("none of %d checkpoints could be written to %s", self._failed, self._write_to)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._progress.to_skip:  # Keras repeats the calls of an interrupted epoch that are already done
            return
        if self._newest:
            self.restore()
        elif self._progress.done >= self._due:
            self._save_if_time()

    def _from_here(self) -> None:
        self._last = (self._progress.done, time.perf_counter())
        self._due, self._pause = self._progress.done + self._progress.per_call, 0.0

    def _save_if_time(self) -> None:
        """Save now, or set the step of the next check. All workers must save at the same step."""
        step, since = self._last
        # Clocks of workers differ, so the workers agree on the mean before they decide.
        passed = self._agreed_since(since)
        rate, left = (self._progress.done - step) / passed, self._pause - passed
        if left <= 0:
            started = time.perf_counter()
            self.save()
            left = self._pause = max(self._seconds, _PAUSE * self._agreed_since(started))
            self._last = (self._progress.done, time.perf_counter())
        self._due = self._progress.done + max(1, int(rate * left))

    def _agreed_since(self, moment: float) -> float:
        return all_reduce_mean(time.perf_counter() - moment, self._strategy)

    def save(self, finished: bool = False) -> None:
        self._step.assign(self._progress.done)
        remembered: dict[str, Any] = {}
        for i, one in enumerate(self._remembering()):
            public = {name: value for name, value in vars(one).items() if not name.startswith("_")}
            public.pop("params", None)  # Keras sets `params` again in each `fit`
            remembered[str(i)] = {name: value for name, value in public.items() if plain(value)}
        self._memory.assign(pack({**remembered, _FINISHED: finished}))
        number = self._progress.done + finished  # a new number, so that no earlier checkpoint is overwritten
        try:
            self._manager.save(checkpoint_number=number)
            self._on_saved()
            self._written += 1
        except (tf.errors.OpError, OSError) as error:
            if isinstance(error, _LOST):
                raise
            self._failed += 1
            # Remove the incomplete checkpoint, to free its space for the next one.
            with suppress(tf.errors.OpError, OSError):
                for name in tf.io.gfile.listdir(self._write_to):
                    if name.startswith((f"{_NAME}-{number}.", f"{_NAME}-{number}_temp")):
                        remove(os.path.join(self._write_to, name))
            words = "training continues without the checkpoint after step %d, which cannot be written to %s: %s"
            _log.warning(words, self._progress.done, self._write_to, _first_line(error))

    def restore(self) -> None:
        assert self._newest, "cannot find the checkpoint to resume from"
        try:
            self._saved.restore(self._newest).assert_consumed()
            memory = unpack(self._memory.numpy())
            told = [(one, memory[str(i)]) for i, one in enumerate(self._remembering())]
        except (AssertionError, ValueError, KeyError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            folder = os.path.dirname(self._newest)
            what = f"the checkpoint belongs to another training or another version: {_first_line(error)}"
            do = f"remove {folder} to train from the beginning, or resume with the version that wrote it"
            raise InfeedError(what, where=self._newest, do=do) from error
        self._newest = None  # restore only once
        for one, remembered in told:
            for name, value in remembered.items():
                setattr(one, name, value)
        self._from_here()

    def _remembering(self) -> list[Any]:
        return [*self._callbacks, self.model.history]  # Keras stores its History callback on the model


def plain(value: Any) -> bool:
    """Return whether `pack` can store a value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and plain(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(plain(one) for one in value)
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    return value is None or isinstance(value, str | bool | int | float | np.generic | tf.Tensor)


def pack(values: Mapping[str, Any]) -> bytes:
    """Pack nested plain values into bytes without pickle: JSON, and the arrays separately."""
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
    """Unpack the values of `pack`. Scalars of NumPy or TensorFlow become Python scalars."""
    with np.load(io.BytesIO(packed)) as file:  # NumPy rejects pickled objects by default

        def together(value: dict[str, Any]) -> Any:
            if _ARRAY not in value:
                return value
            array = file[f"array{value[_ARRAY]}"]
            return array if array.ndim else array.item()

        return json.loads(str(file["text"]), object_hook=together)


@dataclass(frozen=True)
class CheckpointMirror:
    """Folder of checkpoints in a store (`remote`), and its copy on this machine (`local`)."""

    remote: str
    local: str

    @classmethod
    def of(cls, folder: str) -> CheckpointMirror | None:
        """Copy the checkpoints of `folder` to this machine, until this process exits.

        Return None if TensorFlow can open the folder.
        """
        if not folder.startswith(_SCHEMES):
            return None
        mirror = cls(folder.rstrip("/"), files.folder_until_exit("infeed-checkpoints-"))
        if files.exists(mirror.remote):
            _log.info("downloading checkpoints from %s", mirror.remote)
            files.copy(mirror.remote, mirror.local)
        return mirror

    def upload(self) -> None:
        """Copy new files to the store, the index of a checkpoint last, and delete files that no longer exist locally.

        A checkpoint without its index does not count, so after a killed upload the previous one is used. Raises
        OSError if the store fails.
        """

        def is_index(name: str) -> bool:
            return name.endswith(".index")

        here = {file.name for file in os.scandir(self.local) if file.is_file()}
        try:
            there = {files.name(file.path) for file in files.list_files(self.remote)}
            # Files of a checkpoint never change, except TensorFlow's list of checkpoints.
            new = [name for name in here if name not in there or name == _STATE]
            for name in sorted(new, key=is_index):
                files.copy(os.path.join(self.local, name), files.join(self.remote, name))
            for name in sorted(there - here, key=is_index, reverse=True):
                files.remove(files.join(self.remote, name))
        except InfeedError as error:  # after an OSError, training continues without a checkpoint
            raise OSError(str(error)) from error

    def remove(self) -> None:
        files.remove(self.remote)
