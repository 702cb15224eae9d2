"""Graphs that train and evaluate under every strategy: many steps per call, with a measurement of the wait for input.

Keras' own step functions return the metrics of every step. With several workers these cannot be combined, and Keras 3
fails with `Invalid reduction dimension`. The graphs run Keras' `train_step` and `test_step` only for their side
effects. Metrics are read once per call, across all replicas of all workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.meter import Meter
from infeed.components.feed.row_batches import RowBatches
from infeed.components.seams import keras as keras_seam
from infeed.components.trainer.distribution import distribute

TrainSteps = Callable[[Any, tf.Tensor], None]  # (iterator, number of steps)
TestSteps = Callable[[Any, tf.Tensor], tf.Tensor | bool]  # (iterator, maximum steps) -> whether there was any batch


@dataclass(frozen=True)
class StepFunctions:
    """Step functions and batches that replace those of Keras' `fit`."""

    meter: Meter
    train: TrainSteps
    test: TestSteps
    batches: Any  # data that `fit` iterates over
    evaluation: Any
    # Values that the model's own step functions returned for the last step.
    train_logs: Callable[[], dict[str, Any]] = dict
    test_logs: Callable[[], dict[str, Any]] = dict


class StepLogs:
    """Values of the last step from a model's own `train_step` or `test_step`, averaged over replicas.

    Keras passes them to callbacks and the history (`Trainer.fit`, `reduce_per_replica`). Keras' own steps return only
    metrics, which are read once per call, so this class does nothing for them. Custom steps are traced once with
    `element_spec` to determine their outputs.
    """

    def __init__(self, model: keras.Model, strategy: tf.distribute.Strategy, name: str, element_spec: Any) -> None:
        self._model, self._strategy = model, strategy
        self._values: dict[str, tf.Variable] = {}
        if not is_own_step(model, name):
            return
        found: dict[str, tf.DType] = {}

        def probe(batch: Any) -> None:
            found.update({key: value.dtype for key, value in _scalars(getattr(model, name)(batch)).items()})

        run = tf.function(lambda batch: strategy.run(probe, args=(batch,)), autograph=False)
        with strategy.scope():
            run.get_concrete_function(element_spec)
            kind = {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}
            mean = tf.VariableAggregation.MEAN
            self._values = {
                key: tf.Variable(tf.zeros([], dtype), aggregation=mean, **kind) for key, dtype in found.items()
            }

    def keep(self, returned: Any) -> None:
        for key, value in _scalars(returned).items() if self._values else ():
            self._values[key].assign(value)

    def __call__(self) -> dict[str, Any]:
        if not self._values:
            return {}
        with self._strategy.scope():
            values = {key: variable.read_value() for key, variable in self._values.items()}
        # A metric computed over all replicas is exact, unlike the mean of the replicas' results.
        exact = self._model.get_metrics_result() if self._strategy.num_replicas_in_sync > 1 else {}
        return {**values, **exact}


def is_own_step(model: keras.Model, name: str) -> bool:
    """Return whether the model's class overrides Keras' `train_step` or `test_step`."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def _scalars(returned: Any) -> dict[str, tf.Tensor]:
    """Return the scalars of a step by name. Floats become float32, independent of the policy."""
    found = _flattened(returned) if isinstance(returned, dict) else {}
    tensors = {key: tf.convert_to_tensor(value) for key, value in found.items() if value is not None}
    return {
        key: tf.cast(value, tf.float32) if value.dtype.is_floating else tf.cast(value, tf.int64)
        for key, value in tensors.items()
        if value.shape.rank == 0 and (value.dtype.is_floating or value.dtype.is_integer)
    }


def _flattened(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values by name, as Keras does. Metrics passed to `compile` are a dict of results."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat.update(_flattened(value) if isinstance(value, dict) else {name: value})
    return flat


@dataclass
class Progress:
    """Number of finished and remaining steps."""

    per_epoch: int
    per_call: int
    total: float = float("inf")
    done: int = 0
    to_skip: int = 0

    @classmethod
    def resumed(cls, done: int, per_epoch: int, per_call: int, total: float) -> Progress:
        """Return the progress after `done` steps.

        Keras restarts the interrupted epoch, so its first calls are skipped.
        Raise InfeedError if no call of `per_call` steps ends at that step.
        """
        if done % per_epoch % per_call:
            what = f"a checkpoint was written after {done:,} steps, but no call of {per_call} steps ends there"
            do = "use the same steps_per_call as when it was written, or remove the folder of checkpoints"
            raise InfeedError(what, where="steps_per_call", do=do)
        return cls(per_epoch, per_call, total, done - done % per_epoch, done % per_epoch)

    def take(self) -> int:
        """Return the number of steps of the next call. The last call of an epoch may be shorter."""
        count = int(min(self.per_call, self.per_epoch - self.done % self.per_epoch, self.total - self.done))
        self.done += count
        if not self.to_skip:
            return count
        self.to_skip -= count
        return 0


def make_step_functions(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    train: tf.data.Dataset,
    evaluation: tf.data.Dataset,
    batch_size: int,
    element_spec: Any,
    rows: RowBatches | None = None,
) -> StepFunctions:
    """Create the functions for a process that runs steps itself, alone or with others.

    `rows` converts row numbers to batches if `train` yields `CallRows`.
    """
    meter = Meter()
    train_logs = StepLogs(model, strategy, "train_step", element_spec)
    test_logs = StepLogs(model, strategy, "test_step", evaluation.element_spec)
    make = partial(make_row_steps, rows=rows) if rows else make_train_steps
    return StepFunctions(
        meter,
        train=make(model, strategy, meter, logs=train_logs),
        test=make_test_steps(model, strategy, test_logs),
        batches=distribute(train, strategy, batch_size),
        evaluation=distribute(evaluation, strategy, batch_size),
        train_logs=train_logs,
        test_logs=test_logs,
    )


def prepare(model: keras.Model, strategy: tf.distribute.Strategy, element_spec: Any) -> None:
    """Create the variables of metrics and optimizer outside the loops, and read metrics across replicas."""
    with strategy.scope():
        keras_seam.build_variables(model, element_spec)
    keras_seam.keep_first_batch(model)
    of_replica = model.get_metrics_result
    read = tf.function(of_replica, autograph=False)
    own = is_own_step(model, "train_step") or is_own_step(model, "test_step")

    def get_metrics_result() -> dict[str, Any]:
        if tf.inside_function():  # `train_step` reads metrics, too, where a replica has only its own share
            return of_replica() if own else {}
        with strategy.scope():
            return read()  # type: ignore[no-any-return]

    model.get_metrics_result = get_metrics_result


def make_train_steps(
    model: keras.Model, strategy: tf.distribute.Strategy, meter: Meter, logs: StepLogs | None = None
) -> TrainSteps:
    """Return a graph that takes `count` batches from an iterator and trains on each."""
    step = replica_step(model.train_step, model, logs)

    @tf.function(reduce_retracing=True)
    def train_steps(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            batch = meter.next(iterator)
            strategy.run(step, args=(batch,))

    return train_steps  # type: ignore[no-any-return]


def make_row_steps(
    model: keras.Model,
    strategy: tf.distribute.Strategy,
    meter: Meter,
    rows: RowBatches,
    logs: StepLogs | None = None,
) -> TrainSteps:
    """Return a graph that takes the row numbers of `count` steps from an iterator of `CallRows`, and gathers the rows.

    It gathers the rows of all steps of an element at once, because gathering per step waits longer for threads.
    """
    train_step = replica_step(model.train_step, model, logs)

    @tf.autograph.experimental.do_not_convert
    def step(gathered: Any, number: tf.Tensor, first: tf.Tensor) -> None:
        train_step(rows.batch_of(gathered, number, first))

    @tf.function(reduce_retracing=True)
    def train_steps(iterator: Any, count: tf.Tensor) -> None:
        # `count` steps may need several elements, because an element holds only rows that fit into the CPU's cache.
        made = 0
        while made < count:
            call = meter.next(iterator)
            gathered = strategy.run(rows.gather, args=(call.numbers,))
            steps = tf.minimum(tf.shape(strategy.experimental_local_results(call.numbers)[0])[0], count - made)
            for number in tf.range(steps):
                strategy.run(step, args=(gathered, number, call.first))
            made += steps

    return train_steps  # type: ignore[no-any-return]


def make_test_steps(model: keras.Model, strategy: tf.distribute.Strategy, logs: StepLogs | None = None) -> TestSteps:
    """Return a graph that evaluates up to `count` batches. A replica may get no rows of a short last batch."""
    step = unless_empty(replica_step(model.test_step, model, logs))

    @tf.function(reduce_retracing=True)
    def test_steps(iterator: Any, count: tf.Tensor) -> tf.Tensor:
        seen = False
        for _ in tf.range(count):
            batch = iterator.get_next_as_optional()
            if not batch.has_value():
                break
            strategy.run(step, args=(batch.get_value(),))
            seen = True
        return seen

    return test_steps  # type: ignore[no-any-return]


def unless_empty(step: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return `step` without effect on empty batches."""

    @tf.autograph.experimental.do_not_convert
    def step_unless_empty(batch: Any) -> None:
        rows = tf.shape(tf.nest.flatten(batch, expand_composites=True)[-1])[0]  # the label comes last
        tf.cond(rows > 0, lambda: step(batch), lambda: None)

    return step_unless_empty  # type: ignore[no-any-return]


def replica_step(
    keras_step: Callable[[Any], Any], model: keras.Model, logs: StepLogs | None = None
) -> Callable[[Any], None]:
    """Return Keras' step function for its side effects, compiled by XLA if the model requests it."""
    compiled = tf.function(keras_step, jit_compile=True) if model.jit_compile else keras_step

    @tf.autograph.experimental.do_not_convert
    def step(batch: Any) -> None:
        returned = compiled(batch)
        if logs:
            logs.keep(returned)

    return step  # type: ignore[no-any-return]
