"""The training loop on JAX: Keras' `train_step` and `test_step`, compiled for all devices.

Keras' own `fit` starts epochs from their first batch only, and evaluates only batches that the devices can share.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from infeed.components.dataset.input_profile import Ceiling
from infeed.components.feed.meter import Meter
from infeed.components.trainer.epochs import RecordEpochs
from infeed.components.trainer.loop import Schedule
from infeed.components.trainer.on_jax.devices import Ahead, Devices, evaluation_batches, training_batches
from infeed.components.trainer.steps import Progress

_Step = Callable[[Any, Any], Any]
_IN_FLIGHT = 2  # steps that may be waiting for the devices; each holds a batch


class State:
    """Values of the variables on the devices: of weights, of other variables, of the optimizer, and of metrics.

    A step takes the arrays and returns new ones. Meanwhile, the variables have no values.
    """

    def __init__(self, model: keras.Model) -> None:
        self._variables = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        self._arrays: Any = None

    def take(self) -> Any:
        return self._arrays or tuple([one.value for one in group] for group in self._variables)

    def keep(self, arrays: Any) -> None:
        self._arrays = arrays

    def sync(self) -> None:
        """Assign the arrays to the variables, for callbacks, checkpoints and export."""
        for group, arrays in zip(self._variables, self._arrays or (), strict=False):
            for variable, array in zip(group, arrays, strict=True):
                variable.assign(array)
        self._arrays = None


def compiled_steps(model: keras.Model, state: State, pick: Callable[[Any], Any]) -> tuple[_Step, _Step]:
    """Return the training step and the evaluation step, compiled: (state, batch) -> (logs, state)."""
    import jax

    def train_step(state: Any, batch: Any) -> Any:
        return model.train_step(state, pick(batch))

    def test_step(state: Any, batch: Any) -> Any:
        return model.test_step(state, pick(batch))

    weights, others, optimizer, metrics = jax.tree.map(lambda one: one.sharding, state.take())
    shardings = None, (weights, others, optimizer, metrics)
    train = jax.jit(train_step, donate_argnums=0, out_shardings=shardings)
    return train, jax.jit(test_step, out_shardings=(None, (weights, others, metrics)))


class Loop:
    """Epochs of a training, with Keras' callbacks.

    Args:
      model: compiled model whose variables are on the devices.
      train, evaluation: batches of this worker, (features, label, ...).
      progress: steps that are done. `train` starts with the next one.
      pick: batch -> (the model's argument, label, ...). Runs in the compiled step.
    """

    def __init__(
        self,
        model: keras.Model,
        devices: Devices,
        train: tf.data.Dataset,
        evaluation: tf.data.Dataset,
        schedule: Schedule,
        progress: Progress,
        pick: Callable[[Any], Any],
    ) -> None:
        self.model, self.progress, self.meter = model, progress, Meter()
        self.devices, self._train, self._evaluation, self._schedule = devices, train, evaluation, schedule
        self.record = RecordEpochs(self.meter, progress, schedule.batch_size, devices.gather)
        self.state = State(model)
        self._train_step, self._test_step = compiled_steps(model, self.state, pick)
        self._running = deque[Any]()  # logs of the steps in flight
        model.jax_state_sync = self.state.sync  # Keras' name for the callbacks of a user

    def fit(self, callbacks: Sequence[keras.callbacks.Callback], epochs: int) -> None:
        """Train to the end of epoch number `epochs`, or until a callback stops training."""
        model, schedule = self.model, self._schedule
        hooks = keras.callbacks.CallbackList(
            list(callbacks),
            add_history=True,
            add_progbar=True,
            verbose=2,
            epochs=epochs,
            steps=schedule.steps_per_epoch,
            model=model,
        )
        model.stop_training = False
        batches, logs = Ahead(training_batches(self._train, self.devices), self.meter), dict[str, Any]()
        try:
            hooks.on_train_begin()
            for epoch in range(self.progress.done // schedule.steps_per_epoch, epochs):
                model.reset_metrics()
                hooks.on_epoch_begin(epoch)
                logs = self._epoch(batches, hooks)
                logs |= {f"val_{name}": value for name, value in self._evaluate(hooks).items()}
                hooks.on_epoch_end(epoch, logs)
                if model.stop_training:
                    break
            hooks.on_train_end(logs)
        finally:
            batches.close()

    def _epoch(self, batches: Ahead, hooks: keras.callbacks.CallbackList) -> dict[str, float]:
        logs, progress = dict[str, Any](), self.progress
        for step in range(progress.done % progress.per_epoch, progress.per_epoch):
            # Not by the list itself, which would wait for the logs of every step.
            for callback in hooks.callbacks:
                callback.on_train_batch_begin(step)
            self.record.starts_call()
            logs = self._step(batches.next(logs))
            progress.take()
            for callback in hooks.callbacks:
                callback.on_train_batch_end(step, logs)
            if progress.done >= progress.total:
                self.model.stop_training = True
            if self.model.stop_training:
                break
        logs = {name: float(value) for name, value in logs.items()}  # waits for the devices
        self.state.sync()
        return logs

    def _step(self, batch: Any) -> dict[str, Any]:
        """Start a step, and return its logs before they are computed."""
        import jax

        if len(self._running) == _IN_FLIGHT:
            jax.block_until_ready(self._running.popleft())
        logs, arrays = self._train_step(self.state.take(), batch)
        self.state.keep(arrays)
        self._running.append(logs)
        return logs  # type: ignore[no-any-return]

    def _evaluate(self, hooks: keras.callbacks.CallbackList) -> dict[str, float]:
        hooks.on_test_begin()
        self.model.reset_metrics()
        weights, others, _, metrics = self.state.take()
        size = self._schedule.batch_size // self.devices.workers.count
        made = evaluation_batches(self._evaluation, self.devices, size)
        state, logs = (weights, others, metrics), dict[str, Any]()
        for number, batch in enumerate(made):
            for callback in hooks.callbacks:
                callback.on_test_batch_begin(number)
            logs, state = self._test_step(state, batch)
            for callback in hooks.callbacks:
                callback.on_test_batch_end(number, logs)
        for variable, value in zip(self.model.metrics_variables, state[-1], strict=True):
            variable.assign(value)
        logs = {name: float(value) for name, value in logs.items()}
        hooks.on_test_end(logs)
        return logs

    def ceiling(self, seconds: float) -> Ceiling:
        """Train on one constant batch for about `seconds`. This changes the weights.

        The clock of `Ahead` stands still while batches are ready, so the floor of waiting is 0.
        """
        import jax

        batch = next(training_batches(self._train.take(1), self.devices))

        def timed(count: int) -> float:
            started = time.perf_counter()
            for _ in range(count):
                logs = self._step(batch)
            jax.block_until_ready(logs)
            return time.perf_counter() - started

        timed(8)  # the first call may compile
        took = max(self.devices.gather([timed(8)]))
        # All processes must take the same number of steps, but each has its own clock.
        steps = max(8, int(8 * min(self.devices.gather([seconds])) / took))
        took = timed(steps)
        return Ceiling(steps, took, steps * self._schedule.batch_size / took)
