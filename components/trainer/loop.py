"""Keras' own `fit`, with a training function that runs many steps a call and measures the wait for input.

Keras' multi-step function hides the moment a batch arrives, so it is replaced on the model instance; `fit` keeps doing
everything a Keras user knows: callbacks, epochs, validation, history. One private name of Keras is leaned on,
`_symbolic_build`, which creates metrics and optimizer variables outside the loop; a test guards it.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components.feed.meter import Meter

StepFunction = Callable[[Any, tf.Tensor], None]


@dataclass(frozen=True)
class EpochRecord:
    """One epoch as measured: seconds of training (without validation) and the part of it spent waiting for input."""

    epoch: int
    steps: int
    seconds: float
    wait_seconds: float
    examples: int
    examples_per_second: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class Fitted:
    """What `fit` leaves behind. `history` is Keras' own: a list of values an epoch for each name."""

    history: dict[str, list[float]]
    epochs: tuple[EpochRecord, ...]
    run_steps: StepFunction


@dataclass
class _Steps:
    """How many steps are left: in the epoch, and in the whole training where that is limited."""

    per_epoch: int
    per_call: int
    left_in_training: float
    done_in_epoch: int = 0

    def take(self) -> int:
        """Steps of the next call; the last call of an epoch is shorter where the numbers do not divide."""
        count = int(min(self.per_call, self.per_epoch - self.done_in_epoch, self.left_in_training))
        self.done_in_epoch += count
        self.left_in_training -= count
        return count


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
) -> Fitted:
    """Trains `model`, built under `strategy`'s scope, on endless `train` batches ({name: [batch, ...]}, [batch])."""
    meter = Meter()
    run_steps = make_step_function(model, strategy, train.element_spec, meter)
    per_call = min(steps_per_call, steps_per_epoch)
    steps = _Steps(steps_per_epoch, per_call, float("inf") if max_steps is None else max_steps)
    model.steps_per_execution = per_call
    model.train_function = _train_function(model, run_steps, steps)
    record = RecordEpochs(meter, steps, batch_size)
    history = model.fit(
        train,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        validation_data=evaluation,
        callbacks=[record, *callbacks],
        verbose=2,
    )
    return Fitted(history.history, tuple(record.epochs), run_steps)


def make_step_function(
    model: keras.Model, strategy: tf.distribute.Strategy, element_spec: Any, meter: Meter
) -> StepFunction:
    """A graph that takes `count` batches from an iterator and trains on each, for its side effects alone."""
    with strategy.scope():
        model._symbolic_build(data_batch=element_spec)
    # Keras would do it again from a batch that it takes out of the iterator, and drops.
    model._maybe_symbolic_build = lambda iterator=None, data_batch=None: None
    step = tf.function(model.train_step, jit_compile=True) if model.jit_compile else model.train_step

    @tf.autograph.experimental.do_not_convert
    def replica_step(batch: Any) -> None:
        step(batch)

    @tf.function(reduce_retracing=True)
    def run_steps(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            batch = meter.next(iterator)
            strategy.run(replica_step, args=(batch,))

    return run_steps  # type: ignore[no-any-return]


def _train_function(model: keras.Model, run_steps: StepFunction, steps: _Steps) -> Callable[[Any], dict[str, Any]]:
    def train_function(iterator: Any) -> dict[str, Any]:
        run_steps(iterator, tf.constant(steps.take()))
        if steps.left_in_training <= 0:
            model.stop_training = True
        return model.get_metrics_result()  # type: ignore[no-any-return]

    return train_function


class RecordEpochs(keras.callbacks.Callback):
    """Keeps an `EpochRecord` an epoch. The clock runs from the epoch's first step to its last, not over validation."""

    def __init__(self, meter: Meter, steps: _Steps, batch_size: int) -> None:
        super().__init__()
        self.epochs: list[EpochRecord] = []
        self._meter, self._steps, self._batch_size = meter, steps, batch_size
        self._started = self._last_step = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._meter.reset()
        self._steps.done_in_epoch = 0
        self._started = self._last_step = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._last_step = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds, steps = self._last_step - self._started, self._steps.done_in_epoch
        examples = steps * self._batch_size
        self.epochs.append(
            EpochRecord(
                epoch=epoch,
                steps=steps,
                seconds=seconds,
                wait_seconds=min(self._meter.seconds, seconds),
                examples=examples,
                examples_per_second=examples / seconds if seconds else 0.0,
                peak_memory_bytes=_peak_memory(),
            )
        )


def measure_ceiling(
    run_steps: StepFunction, strategy: tf.distribute.Strategy, batch: Any, batch_size: int, *, seconds: float = 1.0
) -> dict[str, float | int]:
    """Trains on one constant batch for about `seconds`: the rate training could reach if input were free.

    It changes the model's weights, so it comes after the export.
    """
    constant = tf.data.Dataset.from_tensors(batch).repeat().prefetch(2)
    iterator = iter(strategy.experimental_distribute_dataset(constant))
    calls, count = 0, 8
    run_steps(iterator, tf.constant(count))  # the first call may trace
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        run_steps(iterator, tf.constant(count))
        calls += 1
    steps = calls * count
    return {"steps": steps, "seconds": elapsed, "examples_per_second": steps * batch_size / elapsed}


def _peak_memory() -> int:
    """The process' largest resident set so far, in bytes; getrusage counts kilobytes, on macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
