"""Keras' own `fit`, with training and evaluation functions that run many steps a call under any strategy.

`fit` keeps doing everything a Keras user knows: callbacks, epochs, validation, history. Only the two functions that it
calls for steps are ours, see `steps`. What each epoch took is recorded, and the rate that training could reach.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components import schema
from infeed.components.dataset.input_profile import Ceiling, EpochProfile
from infeed.components.feed.build import Batches
from infeed.components.feed.columns import endless
from infeed.components.feed.meter import Meter
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer import asynchronous
from infeed.components.trainer.asynchronous import PerWorkerDatasets
from infeed.components.trainer.checkpoint import Checkpoints
from infeed.components.trainer.distribution import all_reduce_mean, distribute, gather_seconds
from infeed.components.trainer.steps import (
    Progress,
    StepFunctions,
    TrainSteps,
    make_step_functions,
    prepare,
)

STEPS_PER_CALL = 16  # makes a step of a tiny model about four times cheaper than 1 does; more gained little


@dataclass(frozen=True)
class Fitted:
    """What `fit` leaves behind.

    `train` is what steps were given: batches, or `CallRows`. `history` is Keras' own: a list of values an epoch for
    each name.
    """

    model: keras.Model
    train: tf.data.Dataset
    history: dict[str, list[float]]
    epochs: tuple[EpochProfile, ...]
    train_steps: TrainSteps
    meter: Meter


class RecordEpochs(keras.callbacks.Callback):
    """Keeps an `EpochProfile` for each epoch, timed from its first step to its last, without validation.

    Every worker has to have one: they tell each other at the end of each epoch how long they waited.
    """

    def __init__(
        self, meter: Meter, progress: Progress, batch_size: int, strategy: tf.distribute.Strategy | None = None
    ) -> None:
        super().__init__()
        self._strategy = strategy or tf.distribute.get_strategy()
        self.records: list[dict[str, Any]] = []  # plain values: they are part of a checkpoint, as is `seconds`
        self.seconds = 0.0
        self._meter, self._progress, self._batch_size = meter, progress, batch_size
        self._last_step = 0.0

    @property
    def epochs(self) -> tuple[EpochProfile, ...]:
        """All epochs so far."""
        return tuple(schema.read(EpochProfile, record) for record in self.records)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._meter.reset()
        self.seconds = 0.0
        self._last_step = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.perf_counter()
        self.seconds += now - self._last_step
        self._last_step = now

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        steps = self._progress.done - epoch * self._progress.per_epoch
        waited = gather_seconds(self._meter.seconds, self._strategy)
        record = EpochProfile.measured(epoch, steps, self.seconds, waited, self._batch_size)
        self.records.append(asdict(record))


def fit(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: Batches,
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
    per_worker: PerWorkerDatasets | None = None,
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
    rows = train if isinstance(train, RowBatches) else None
    handed = rows.handed(per_call) if rows else endless(train)
    if per_worker:
        calls = asynchronous.make_scheduled_functions(model, strategy, per_worker)
    else:
        calls = make_step_functions(model, strategy, handed, evaluation, batch_size, train.element_spec, rows)
    model.steps_per_execution = per_call
    model.train_function = _train_function(model, calls, progress)
    model.test_function = _test_function(model, calls, per_call)
    record = RecordEpochs(calls.meter, progress, batch_size, strategy)
    all_callbacks = [record, *callbacks]
    if checkpoints:
        checkpoints.attach(progress, tuple(all_callbacks), calls.meter.waited, join=calls.join)
        all_callbacks.append(checkpoints)
    with warnings.catch_warnings():
        # Keras says so of evaluation batches that lie on devices, for it cannot count them; training has no end.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        history = model.fit(
            calls.batches,
            initial_epoch=start_step // steps_per_epoch,
            # A finished training is gone through without an epoch: that restores it, and what its callbacks remember.
            epochs=0 if checkpoints and checkpoints.finished else epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=calls.evaluation,
            callbacks=all_callbacks,
            verbose=2,
        )
    return Fitted(model, handed, history.history, record.epochs, calls.train_and_wait, calls.meter)


def steps_per_call(model: keras.Model) -> int:
    """What the model was compiled with where that is more than Keras' default of 1, else `STEPS_PER_CALL`."""
    compiled = model.steps_per_execution
    return compiled if compiled > 1 else STEPS_PER_CALL


def measure_ceiling(
    train_steps: TrainSteps,
    meter: Meter,
    strategy: tf.distribute.Strategy,
    batch: Any,
    batch_size: int,
    *,
    seconds: float = 1.0,
) -> Ceiling:
    """Trains on one constant batch for about `seconds`: the rate training could reach if input were free.

    What the meter counts meanwhile is no waiting, for the batch is there: it is the floor of what it counts.
    It changes the model's weights, so it comes after the export.

    Args:
      train_steps, meter: as `fit` left them.
      strategy: the one that trained.
      batch: this worker's part of a global batch, or `CallRows`: then it is the rows that are constant.
      batch_size: of the global batch.
      seconds: how long about; all workers make the same number of steps.
    """
    constant = tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)
    iterator = iter(distribute(constant, strategy, batch_size))

    def timed(count: int) -> float:
        started = time.perf_counter()
        train_steps(iterator, tf.constant(count))
        return time.perf_counter() - started

    timed(8)  # the first call may trace
    steps = max(8, int(8 * seconds / all_reduce_mean(timed(8), strategy)))
    meter.reset()
    took = timed(steps)
    return Ceiling(steps, took, steps * batch_size / took, min(max(meter.seconds), took) / steps)


def _train_function(model: keras.Model, calls: StepFunctions, progress: Progress) -> Callable[[Any], dict[str, Any]]:
    def train_function(iterator: Any) -> dict[str, Any]:
        if count := progress.take():
            calls.train(iterator, tf.constant(count))
        if progress.ends_epoch:  # whose metrics are read next: no worker may still be adding to them
            calls.join()
        if progress.done >= progress.total:
            model.stop_training = True
        return {**model.get_metrics_result(), **calls.train_logs()}

    return train_function


def _test_function(model: keras.Model, calls: StepFunctions, per_call: int) -> Callable[[Any], dict[str, Any]]:
    def test_function(iterator: Any) -> dict[str, Any]:
        if not calls.test(iterator, tf.constant(per_call)):
            raise StopIteration
        return {**model.get_metrics_result(), **calls.test_logs()}

    return test_function
