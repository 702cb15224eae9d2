"""Steps that a coordinator schedules on workers. Each worker has its own share of the batches and waits for no other.

Keras adds to a counter by reading it and assigning the sum (`KerasVariable.assign_add`), so one worker may undo the
update of another. `with_delta_updates` intercepts the assignment, and sends the difference instead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.feed.build import Batches
from infeed.components.feed.meter import Meter
from infeed.components.feed.options import WorkerContext
from infeed.components.seams import keras as keras_seam
from infeed.components.trainer.steps import StepFunctions, replica_step, unless_empty

_CALLS_AHEAD = 2  # scheduled and not yet made: a worker that has done its part goes on with the next
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class PerWorkerDatasets:
    """Functions that make the batches of a worker on that worker, as for `loop.fit`."""

    workers: int
    train: Callable[[WorkerContext], Batches]
    evaluation: Callable[[WorkerContext], tf.data.Dataset]


def make_scheduled_functions(
    model: keras.Model, strategy: tf.distribute.Strategy, batches: PerWorkerDatasets
) -> StepFunctions:
    """Return the functions for `fit`: a step is one on every worker; raise InfeedError for an unfit optimizer."""
    keras_seam.COORDINATED_STEPS.require("install a keras of docs/compatibility.md, or use another strategy")
    check_model(model)
    # TensorFlow gives the one coordinator of a strategy to whoever asks, so this is the one of `parameter_server`.
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    keras_seam.forget_strategy(model)  # the workers make the batches
    # Under the scope its sum lies on a parameter server, where every worker adds to it.
    with strategy.scope():
        meter = Meter(clocks=batches.workers)
    train_step = replica_step(with_delta_updates(model.train_step, model), model)
    test_step = unless_empty(replica_step(with_delta_updates(model.test_step, model), model))

    def train_once(iterator: _Own) -> None:
        strategy.run(train_step, args=(meter.next(iterator, iterator.worker),))

    def test_once(iterator: _Own) -> None:
        strategy.run(test_step, args=(next(iterator),))

    training = ScheduledSteps(coordinator, batches.workers, train_once)
    testing = ScheduledSteps(coordinator, batches.workers, test_once)
    # Evaluation repeats and takes one pass each time, so that no iterators have to be built on the workers every epoch.
    shares = _iterators(coordinator, batches.workers, batches.train)
    to_test = _iterators(coordinator, batches.workers, lambda workers: batches.evaluation(workers).repeat())
    a_pass = int(batches.evaluation(WorkerContext(0, batches.workers)).cardinality())  # the same for all of them

    def evaluate(*_: Any) -> bool:
        testing(to_test, a_pass)
        testing.join()
        return True

    def train_and_wait(iterator: Any, count: tf.Tensor) -> None:
        training([iterator] * batches.workers, int(count))
        training.join()

    stand_in = tf.data.Dataset.range(1)  # Keras iterates over something
    return StepFunctions(
        meter,
        train=lambda _, count: training(shares, int(count)),
        test=evaluate,
        batches=stand_in.repeat(),
        evaluation=stand_in,
        train_and_wait=train_and_wait,
        join=training.join,
    )


class ScheduledSteps:
    """Run the same number of steps on every worker, on its own share, each worker at its own speed.

    The coordinator gives a task to any free worker. Therefore a task is not a number of steps, but the total that its
    worker has to reach. A worker that has reached the total does nothing.
    """

    def __init__(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator, workers: int, step: Callable[[_Own], None]
    ) -> None:
        self._coordinator, self._workers = coordinator, workers
        self._wanted = 0  # steps of each worker
        self._iterators: list[Any] = []
        self._running: deque[Any] = deque()
        with coordinator.strategy.scope():
            self._made = made = tf.Variable(tf.zeros([workers], tf.int64), trainable=False)

        @tf.function(reduce_retracing=True)
        def catch_up(iterators: list[Any], wanted: tf.Tensor) -> tf.Tensor:
            here = tf.distribute.coordinator.experimental_get_current_worker_index()
            own, missing = _Own(iterators, here), wanted - made[here]
            for _ in tf.range(missing):
                step(own)
            made.scatter_nd_add([[here]], [missing])
            return missing

        self._catch_up = catch_up

    def __call__(self, iterators: list[Any], count: int) -> None:
        """Schedule `count` more steps on every worker, each with its iterator, and return while some still run."""
        self._iterators, self._wanted = iterators, self._wanted + count
        self._schedule()
        while len(self._running) > _CALLS_AHEAD * self._workers:
            self._running.popleft().fetch()

    def join(self) -> None:
        """Return when every worker, a lost one too, has run all of its steps; raise tf.errors.OpError if one failed."""
        self._coordinator.join()
        while (self._made.numpy() < self._wanted).any():
            time.sleep(_PAUSE_SECONDS)
            self._schedule()
            self._coordinator.join()
        self._running.clear()

    def _schedule(self) -> None:
        wanted = tf.constant(self._wanted, tf.int64)
        for _ in range(self._workers):
            self._running.append(self._coordinator.schedule(self._catch_up, args=(self._iterators, wanted)))


def check_model(model: keras.Model) -> None:
    """Raise InfeedError if Keras updates variables inside a condition, where updates cannot be separated."""
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        what = "float16 scales the loss, and workers cannot agree on by how much"
        raise InfeedError(what, where="strategy parameter_server", do="use bfloat16 or float32")
    if optimizer.gradient_accumulation_steps:
        raise InfeedError(
            f"gradient_accumulation_steps is {optimizer.gradient_accumulation_steps}, and each worker's gradients are "
            "applied at once",
            where="strategy parameter_server",
            do="leave it out, and use a larger batch_size",
        )


def with_delta_updates(keras_step: Callable[[Any], Any], model: keras.Model) -> Callable[[Any], None]:
    """Return `keras_step` with increments of counters, metrics and statistics instead of assignments.

    Optimizers change weights and slots by TensorFlow's `assign_add`, which adds on the variable's server. Other
    changes, such as a weight after a constraint, are assigned; the last worker wins.
    """
    iterations = model.optimizer.iterations
    counters = [*model.non_trainable_variables, *model.metrics_variables, iterations]
    others = [one for one in (*model.trainable_variables, *model.optimizer.variables) if one is not iterations]

    def step(batch: Any) -> None:
        scope = keras.StatelessScope([(one, tf.identity(one.value)) for one in counters], collect_losses=True)
        before = [scope.get_current_value(one) for one in counters]
        for weight in model.trainable_variables:
            scope.add_update((weight, weight.value))  # regularizers ask the scope for them
        with scope:
            keras_step(batch)
        for counter, was in zip(counters, before, strict=True):
            value = scope.get_current_value(counter)
            if value is not was and (was.dtype.is_floating or was.dtype.is_integer):
                counter.value.assign_add(value - was)
            elif value is not was:
                counter.value.assign(value)
        for other in others:
            value = scope.get_current_value(other)
            if value is not None and value is not other.value:
                other.value.assign(value)

    return step


def _iterators(
    coordinator: tf.distribute.coordinator.ClusterCoordinator, workers: int, make: Callable[[WorkerContext], Batches]
) -> list[Any]:
    """Make the iterators of all workers on every worker, because a worker learns its index only when it runs."""
    shares = [partial(make, WorkerContext(index, workers)) for index in range(workers)]
    return [iter(coordinator.create_per_worker_dataset(share)) for share in shares]


class _Own:
    """The iterator of the worker that runs this."""

    def __init__(self, iterators: list[Any], worker: tf.Tensor) -> None:
        self._iterators, self.worker = iterators, tf.cast(worker, tf.int32)

    def __next__(self) -> Any:
        return tf.switch_case(self.worker, [iterator.get_next for iterator in self._iterators])
