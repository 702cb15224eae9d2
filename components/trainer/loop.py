"""Keras' `fit`, with training and evaluation functions that run many steps per call under any strategy.

`fit` still runs callbacks, epochs, validation and history. Only its two step functions are replaced; see `steps`. The
loop records the time of each epoch, and measures the maximum rate of training.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import Ceiling, EpochProfile, Timeline
from infeed.components.feed.build import Batches
from infeed.components.feed.columns import endless
from infeed.components.feed.meter import Meter, Tap
from infeed.components.feed.row_batches import RowBatches
from infeed.components.seams import keras as keras_seam
from infeed.components.seams.tensorflow import untuned
from infeed.components.trainer.checkpoint import Checkpoints
from infeed.components.trainer.distribution import all_reduce_mean, distribute, gather_seconds, strategy_name
from infeed.components.trainer.epochs import RecordEpochs, ReportPace, tapped_epochs
from infeed.components.trainer.steps import (
    Progress,
    StepFunctions,
    TrainSteps,
    make_step_functions,
    make_train_steps,
    prepare,
)

_Function = Callable[[Any], dict[str, Any]]  # iterator -> logs
_TURNS = 5  # turns of the ceiling's measurement. The floor is their median
_ATTEMPTS = 3  # attempts to measure a floor below the waiting of the training
STEPS_PER_CALL = 16  # makes steps of a tiny model about four times cheaper than 1; larger values gain little


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Sizes of a training."""

    batch_size: int  # examples in a global batch, over all workers
    steps_per_epoch: int
    steps_per_call: int  # steps in one call of a TensorFlow function
    epochs: int
    max_steps: int | None = None  # number of steps after which training ends, even within an epoch


@dataclass(frozen=True)
class Fitted:
    """A trained model, and how it was trained."""

    model: keras.Model
    train: tf.data.Dataset  # input of the steps: batches, or `CallRows`
    history: dict[str, list[float]]  # Keras' history: the values of all epochs by name
    epochs: tuple[EpochProfile, ...]
    train_steps: TrainSteps
    meter: Meter
    timeline: Timeline | None = None


def fit(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: Batches,
    evaluation: tf.data.Dataset,
    schedule: Schedule,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    *,
    checkpoints: Checkpoints | None = None,
    start_step: int = 0,
) -> Fitted:
    """Train `model`, compiled and built under `strategy`'s scope.

    Args:
      train: endless batches of this worker, ({name: [batch, ...]}, [batch]).
      evaluation: this worker's part of the evaluation data, one pass.
      checkpoints: writes checkpoints, and restores that of `start_step`, where `train` has to start.
    """
    batch_size, steps_per_epoch, max_steps = schedule.batch_size, schedule.steps_per_epoch, schedule.max_steps
    if not keras_seam.STEPS.usable():
        reason, do = keras_seam.STEPS.available(), f"install keras {' or '.join(keras_seam.STEPS.versions)}"
        if (name := strategy_name(strategy)) != "one_device":
            what = f"{reason}, so it cannot train under {name}"
            raise InfeedError(what, where="option strategy", do=f"{do}, or use one_device")
        if start_step:
            what = f"{reason}, so it cannot resume a training at step {start_step:,}"
            raise InfeedError(what, where="option checkpoint_seconds", do=f"{do}, or remove the checkpoints")
        watched = [*callbacks, ReportPace(batch_size, max_steps)]
        return _fit_plain(model, strategy, train, evaluation, schedule, watched)
    # A call must not cross the end of an epoch, where Keras runs validation and callbacks.
    per_call = min(schedule.steps_per_call, steps_per_epoch)
    progress = Progress.resumed(start_step, steps_per_epoch, per_call, max_steps or math.inf)
    prepare(model, strategy, train.element_spec)
    rows = train if isinstance(train, RowBatches) else None
    handed = rows.handed(per_call) if rows else endless(train)
    calls = make_step_functions(model, strategy, handed, evaluation, batch_size, train.element_spec, rows)
    model.steps_per_execution = per_call
    record = RecordEpochs(calls.meter, progress, batch_size, partial(gather_seconds, strategy=strategy))
    keras_seam.run_steps_by(model, *_functions(model, calls, progress, record))
    pace = ReportPace(batch_size, max_steps, start_step, lambda: calls.meter.seconds, lambda: record.epochs)
    all_callbacks = record.among([*callbacks, pace])
    if checkpoints:  # last, because it saves and restores the state of the other callbacks
        checkpoints.attach(progress, (record, *callbacks), calls.meter.waited)
        all_callbacks.append(checkpoints)
    with keras_seam.without_end_warning():
        history = model.fit(
            calls.batches,
            initial_epoch=start_step // steps_per_epoch,
            # A finished training runs without an epoch, which restores the model and the state of its callbacks.
            epochs=0 if checkpoints and checkpoints.finished else schedule.epochs,
            steps_per_epoch=steps_per_epoch,
            validation_data=calls.evaluation,
            callbacks=all_callbacks,
            verbose=2,
        )
    return Fitted(model, handed, history.history, record.epochs, calls.train, calls.meter, record.timeline)


def _fit_plain(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: Batches,
    evaluation: tf.data.Dataset,
    schedule: Schedule,
    callbacks: list[keras.callbacks.Callback],
) -> Fitted:
    """Train with Keras' own `fit` on one device: same batches, order and weights as `fit`."""
    batches = endless(train.dataset() if isinstance(train, RowBatches) else train)
    steps_per_epoch, max_steps = schedule.steps_per_epoch, schedule.max_steps
    tap, meter = Tap(steps_per_epoch), Meter()
    # Keras runs only whole calls: more steps than an epoch has, unless the calls divide it.
    model.steps_per_execution = next(
        size
        for size in range(min(schedule.steps_per_call, steps_per_epoch), 0, -1)
        if not steps_per_epoch % size and not (max_steps or 0) % size
    )

    def stop(batch: int, logs: Any = None) -> None:
        if int(model.optimizer.iterations) >= (max_steps or math.inf):
            model.stop_training = True

    history = model.fit(
        tap.measured(batches),
        epochs=schedule.epochs,
        steps_per_epoch=steps_per_epoch,
        validation_data=evaluation,
        callbacks=[*callbacks, keras.callbacks.LambdaCallback(on_train_batch_end=stop)],
        verbose=2,
    ).history
    profiles = tapped_epochs(tap, schedule.batch_size)
    return Fitted(model, batches, history, profiles, make_train_steps(model, strategy, meter), meter)


def steps_per_call(model: keras.Model) -> int:
    """Return the compiled `steps_per_execution` if it exceeds Keras' default of 1, otherwise `STEPS_PER_CALL`."""
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
    """Train on one constant batch for about `seconds`, to measure the rate with free input.

    The batch is always ready, so the time that the meter counts is the floor, not waiting. The floor is the median of
    several turns. Training changes the model's weights, so export the model first. `batch` is this worker's part
    of a global batch of `batch_size`, or `CallRows` to repeat constant row numbers.
    """
    constant = untuned(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))
    iterator = iter(distribute(constant, strategy, batch_size))

    def timed(count: int) -> float:
        started = time.perf_counter()
        train_steps(iterator, tf.constant(count))
        return time.perf_counter() - started

    timed(8)  # the first call may trace
    steps = max(8, int(8 * seconds / _TURNS / all_reduce_mean(timed(8), strategy)))
    took, floors = 0.0, []
    for _ in range(_TURNS):
        meter.reset()
        turn = timed(steps)
        took += turn
        # The slowest replica's wait holds up the step.
        floors.append(min(max(meter.seconds), turn) / steps)
    # Half of the turns are within the interquartile range.
    low, _, high = statistics.quantiles(floors, n=4)
    rate = _TURNS * steps * batch_size / took
    return Ceiling(_TURNS * steps, took, rate, statistics.median(floors), (high - low) / 2)


def measure_believable_ceiling(fitted: Fitted, strategy: tf.distribute.Strategy, batch_size: int) -> Ceiling:
    """Measure the ceiling, and repeat a few times while its floor exceeds the waiting of the training.

    Passing a batch to the step cannot take longer than waiting for one, unless the machine is briefly busy. The lowest
    floor is the most accurate. All workers decide the same.
    """
    batch, steady = next(iter(fitted.train)), fitted.epochs[1:] or fitted.epochs
    counted = sum(epoch.wait_seconds for epoch in steady) / max(1, sum(epoch.steps for epoch in steady))
    found: list[Ceiling] = []
    while len(found) < _ATTEMPTS:
        found.append(measure_ceiling(fitted.train_steps, fitted.meter, strategy, batch, batch_size))
        if all_reduce_mean(found[-1].floor_seconds, strategy) <= counted:
            break
    return min(found, key=lambda ceiling: ceiling.floor_seconds)


def _functions(
    model: keras.Model, calls: StepFunctions, progress: Progress, record: RecordEpochs
) -> tuple[_Function, _Function]:
    def train_function(iterator: Any) -> dict[str, Any]:
        record.starts_call()
        if count := progress.take():
            calls.train(iterator, tf.constant(count))
        if progress.done >= progress.total:
            model.stop_training = True
        return {**model.get_metrics_result(), **calls.train_logs()}

    def test_function(iterator: Any) -> dict[str, Any]:
        if not calls.test(iterator, tf.constant(progress.per_call)):
            raise StopIteration
        return {**model.get_metrics_result(), **calls.test_logs()}

    return train_function, test_function
