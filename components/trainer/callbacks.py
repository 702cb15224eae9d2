"""Callbacks of a training: user callbacks, TensorBoard, early stopping, and a trace of chosen steps."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.trainer.options import TrainOptions

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallbackSpec:
    """Argument of a callbacks function.

    Attributes:
      folder: folder of the model run, for logs. Workers other than the chief get a temporary folder.
      chief: whether this process exports the model. All workers must stop at the same step, so stop training only for
          reasons that all workers share, such as metrics.
      hparams: hyperparameters, as in ModelSpec.
    """

    folder: str
    chief: bool
    hparams: Mapping[str, Any]


def make_callbacks(options: TrainOptions, spec: CallbackSpec) -> list[keras.callbacks.Callback]:
    """Return all callbacks, the user's first. Raise InfeedError unless the user's are Keras callbacks."""
    callbacks: list[keras.callbacks.Callback] = []
    if function := options.callbacks_fn:
        callbacks += user_code.load(function, "callbacks_fn")(spec)
        for callback in callbacks:
            if not isinstance(callback, keras.callbacks.Callback):
                what = f"the function returned a {type(callback).__name__} among the callbacks"
                raise InfeedError(what, where=function, do="return a list of keras.callbacks.Callback objects")
    if spec.chief:
        callbacks.append(TensorBoard(spec.folder, write_graph=False))
    if options.patience:
        stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=options.patience, restore_best_weights=True)
        callbacks.append(stop)
    if options.profile_steps and spec.chief:
        callbacks.append(ProfileSteps(spec.folder, *options.profile_steps))
    return callbacks


class TensorBoard(keras.callbacks.TensorBoard):
    """Keras' TensorBoard callback.

    If logs cannot be written, it warns once and stops logging, and training continues.
    """

    given_up = False


def _or_give_up(hook: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(hook)
    def tried(self: TensorBoard, *args: Any, **named: Any) -> None:
        if self.given_up:
            return
        try:
            hook(self, *args, **named)
        except (tf.errors.OpError, OSError) as error:
            self.given_up = True
            _log.warning("stopped logging to TensorBoard, because writing to %s failed: %s", self.log_dir, error)

    return tried


for _name in ("set_model", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_test_begin",
              "on_test_end", "on_train_batch_begin", "on_train_batch_end", "on_test_batch_begin"):  # fmt: skip
    setattr(TensorBoard, _name, _or_give_up(getattr(keras.callbacks.TensorBoard, _name)))


class ProfileSteps(keras.callbacks.Callback):
    """Callback that writes a profiler trace of steps `first` to `last`, counted from 1, for TensorBoard.

    The profiler is that of Keras' backend: TensorFlow's, or JAX's, which knows the work on TPUs and GPUs. Whole calls
    are traced. If a call of 16 steps includes a chosen step, the trace has all 16 steps.
    """

    def __init__(self, folder: str, first: int, last: int) -> None:
        super().__init__()
        self._folder, self._first, self._last = folder, first, last
        self._steps_before_epoch = 0
        self._running = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._steps_before_epoch = epoch * self.params["steps"]

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        first = self._steps_before_epoch + batch + 1  # steps of this call
        if not self._running and first + int(self.model.steps_per_execution) > self._first and first <= self._last:
            _profile(self._folder)
            self._running = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._running and self._steps_before_epoch + batch + 1 >= self._last:
            self._stop()

    def on_train_end(self, logs: Any = None) -> None:
        if self._running:
            self._stop()

    def _stop(self) -> None:
        _profile(None)
        self._running = False


def _profile(folder: str | None) -> None:
    """Start a trace in the folder. None ends the trace."""
    if keras.backend.backend() != "jax":
        if folder:
            tf.profiler.experimental.start(folder)
        else:
            tf.profiler.experimental.stop()
        return
    import jax

    # Wait for the dispatched steps: a device computes in order, and earlier steps are not part of the trace.
    for device in jax.local_devices():
        (jax.device_put(0, device) + 0).block_until_ready()
    if folder:
        jax.profiler.start_trace(folder)
    else:
        jax.profiler.stop_trace()
