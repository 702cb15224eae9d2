"""Keras' own `fit`, with training and evaluation functions that run many steps a call under any strategy.

`fit` keeps doing everything a Keras user knows: callbacks, epochs, validation, history. Only the two functions that it
calls for steps are ours, see `steps`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components.trainer import asynchronous
from infeed.components.trainer.asynchronous import PerWorker
from infeed.components.trainer.checkpoint import Checkpoints
from infeed.components.trainer.epochs import EpochRecord, Progress, RecordEpochs
from infeed.components.trainer.steps import Calls, TestSteps, TrainSteps, make_calls, prepare

STEPS_PER_CALL = 16  # makes a step of a tiny model about four times cheaper than 1 does; more gained little


@dataclass(frozen=True)
class Fitted:
    """What `fit` leaves behind. `history` is Keras' own: a list of values an epoch for each name."""

    model: keras.Model
    train: tf.data.Dataset
    history: dict[str, list[float]]
    epochs: tuple[EpochRecord, ...]
    train_steps: TrainSteps


def fit(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: tf.data.Dataset,
    evaluation: tf.data.Dataset,
    *,
    batch_size: int,
    steps_per_epoch: int,
    steps_per_call: int,
    epochs: int,
    max_steps: int | None,
    callbacks: Sequence[keras.callbacks.Callback],
    checkpoints: Checkpoints | None = None,
    start_step: int = 0,
    per_worker: PerWorker | None = None,
) -> Fitted:
    """Trains `model`, built under `strategy`'s scope.

    Args:
      model: compiled.
      strategy: the one that trains.
      train: endless batches of this worker, ({name: [batch, ...]}, [batch]).
      evaluation: this worker's part of the evaluation data, once through.
      batch_size: of the global batch, over all workers.
      steps_per_epoch: global batches in an epoch.
      steps_per_call: steps in one call of a TensorFlow function.
      epochs: how many.
      max_steps: ends training after so many steps, even within an epoch.
      callbacks: Keras' own and the user's.
      checkpoints: writes them, and restores the one to go on from.
      start_step: step of that checkpoint; `train` has to start there.
      per_worker: where this process schedules the steps of others, what they make their batches with; `train` and
        `evaluation` are then what worker 0 would get.
    """
    per_call = min(steps_per_call, steps_per_epoch)
    progress = Progress.resumed(start_step, steps_per_epoch, per_call, max_steps or float("inf"))
    prepare(model, strategy, train.element_spec)
    if per_worker:
        calls = asynchronous.make_calls(model, strategy, per_worker)
    else:
        endless = train.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        calls = make_calls(model, strategy, endless, evaluation, batch_size)
    model.steps_per_execution = per_call
    model.train_function = _train_function(model, calls, progress)
    model.test_function = _test_function(model, calls.test, per_call)
    record = RecordEpochs(calls.meter, progress, batch_size)
    all_callbacks = [record, *callbacks]
    if checkpoints:
        checkpoints.attach(progress, tuple(all_callbacks), calls.meter.waited, settle=calls.settle)
        all_callbacks.append(checkpoints)
    with warnings.catch_warnings():
        # Keras says so of evaluation batches that lie on devices, for it cannot count them; training has no end.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        history = model.fit(
            calls.batches,
            initial_epoch=start_step // steps_per_epoch,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=calls.evaluation,
            callbacks=all_callbacks,
            verbose=2,
        )
    return Fitted(model, train, history.history, record.epochs, calls.train_and_wait)


def steps_per_call(model: keras.Model) -> int:
    """What the model was compiled with where that is more than Keras' default of 1, else `STEPS_PER_CALL`."""
    compiled = model.steps_per_execution
    return compiled if compiled > 1 else STEPS_PER_CALL


def _train_function(model: keras.Model, calls: Calls, progress: Progress) -> Callable[[Any], dict[str, Any]]:
    def train_function(iterator: Any) -> dict[str, Any]:
        if count := progress.take():
            calls.train(iterator, tf.constant(count))
        if progress.ends_epoch:
            calls.settle()
        if progress.done >= progress.total:
            model.stop_training = True
        return model.get_metrics_result()  # type: ignore[no-any-return]

    return train_function


def _test_function(model: keras.Model, steps: TestSteps, per_call: int) -> Callable[[Any], dict[str, Any]]:
    def test_function(iterator: Any) -> dict[str, Any]:
        if not steps(iterator, tf.constant(per_call)):
            raise StopIteration
        return model.get_metrics_result()  # type: ignore[no-any-return]

    return test_function
