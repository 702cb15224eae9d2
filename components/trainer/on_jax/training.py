"""A training on JAX from its feed to the trained model and its profile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from infeed.components.base import progress
from infeed.components.base.errors import InfeedError
from infeed.components.dataset.input_profile import InputProfile
from infeed.components.feed.columns import endless, is_static_number
from infeed.components.feed.plan import InputPlan
from infeed.components.trainer.callbacks import CallbackSpec, make_callbacks
from infeed.components.trainer.checkpoint import Checkpoints
from infeed.components.trainer.class_weights import with_class_weights
from infeed.components.trainer.cluster import OutputDirs
from infeed.components.trainer.data import packing_of
from infeed.components.trainer.epochs import ReportPace
from infeed.components.trainer.model import build_model
from infeed.components.trainer.model_inputs import ModelInputs, compute_losses, inputs_of, picked, symbolic_output
from infeed.components.trainer.on_jax.devices import Devices
from infeed.components.trainer.on_jax.loop import Loop
from infeed.components.trainer.own_input import check_same_length
from infeed.components.trainer.steps import Progress
from infeed.components.trainer.training import Training, check_trained, features_of, model_spec

_CEILING_SECONDS, _CEILING_SHARE = 1.0, 0.1  # at most, and as a share of the training
_log = logging.getLogger(__name__)
Weights = Callable[..., list[Any]]  # (ModelSpec, features, whether training resumes) -> the weights to start from


class JaxCheckpoints(Checkpoints):
    """Checkpoints in TensorFlow's format of variables that it does not hold: copies of them are saved and restored.

    `sync`, which the loop sets, assigns the state of the last step to the variables.
    """

    sync: Callable[[], None]

    def tf_variables(self, found: Sequence[keras.Variable]) -> list[tf.Variable]:
        self._found = found
        self._copies = [tf.Variable(np.asarray(one.value), trainable=False) for one in found]
        return self._copies

    def save(self, finished: bool = False) -> None:
        self.sync()
        for copy, variable in zip(self._copies, self._found, strict=True):
            copy.assign(np.asarray(variable.value))
        super().save(finished)

    def restore(self) -> None:
        super().restore()
        for copy, variable in zip(self._copies, self._found, strict=True):
            variable.assign(copy.numpy())


def fit(training: Training, places: OutputDirs, devices: Devices, weights: Weights) -> Loop:
    """Train the model, or resume a killed training.

    Raise InfeedError if JAX does not accept a feature, or the training ends in NaN.
    """
    options, plan, workers = training.options, training.train.plan, training.workers
    checkpoints = training.checkpoints(JaxCheckpoints, places)
    start = checkpoints.start_step if checkpoints else 0
    if options.input_fn and workers.count > 1:
        check_same_length([int(one) for one in devices.gather([plan.steps_per_epoch])], "training", options.input_fn)
    batches = endless(training.train.dataset(workers=workers, start_step=start))
    dataset = with_class_weights(batches, training.class_weights)
    evaluation = training.evaluation.dataset(workers=workers).take(training.eval_steps or -1)
    progress.report("building the model and compiling its steps")
    _log.info("input pipeline of training:\n%s", plan.describe())
    model, inputs = _built(training, dataset, evaluation, devices, weights, bool(start))
    dataset, evaluation = (_used(one, inputs) for one in (dataset, evaluation))
    pick = partial(picked, inputs=inputs, packing=packing_of(training.graph, options))
    if start:
        _log.info("training resumes after step %s, from the checkpoint in %s", start, training.places.checkpoints)
    with devices.distribution.scope():
        _build_variables(model, dataset.element_spec, pick)
        state = Progress(plan.steps_per_epoch, 1, training.max_steps or float("inf"), start)
        loop = Loop(model, devices, dataset, evaluation, training.schedule(steps_per_call=1), state, pick)
        callbacks = make_callbacks(options, CallbackSpec(places.run, workers.index == 0, options.hparams))
        pace = ReportPace(
            plan.batch.size, training.max_steps, start, lambda: loop.meter.seconds, lambda: loop.record.epochs
        )
        hooks = loop.record.among([*callbacks, pace])
        if checkpoints:  # last, because it saves and restores the state of the other callbacks
            checkpoints.attach(loop.progress, (loop.record, *callbacks), loop.meter.waited)
            checkpoints.sync = loop.state.sync
            hooks.append(checkpoints)
        # A finished training runs without an epoch, which restores the model and the state of its callbacks.
        loop.fit(hooks, 0 if checkpoints and checkpoints.finished else training.epochs)
    check_trained(training, model, callbacks)
    return loop


def profile_of(loop: Loop, plan: InputPlan) -> InputProfile:
    """Measure the step without input, which changes the weights, and return the profile of the training."""
    progress.report("measuring the rate of the step without input")
    devices, epochs = loop.devices, loop.record.epochs
    trained = sum(epoch.seconds for epoch in epochs)
    return InputProfile(
        strategy="JAX, data-parallel" if devices.count > 1 else "JAX, one_device",
        replicas=devices.count,
        hosts=devices.workers.count,
        batch_size=plan.batch.size,
        steps_per_epoch=plan.steps_per_epoch,
        epochs=epochs,
        ceiling=loop.ceiling(min(_CEILING_SECONDS, _CEILING_SHARE * trained)),
        plan=plan.summary(),
        bytes=plan.bytes,
        timeline=loop.record.timeline,
    )


def _built(
    training: Training,
    dataset: tf.data.Dataset,
    evaluation: tf.data.Dataset,
    devices: Devices,
    weights: Weights,
    resumes: bool,
) -> tuple[keras.Model, ModelInputs]:
    """Build the user's model on the devices, with the weights of the same model on TensorFlow."""
    options, graph = training.options, training.graph
    spec = model_spec(dataset, graph, options, training.steps)
    features = features_of(dataset, evaluation, packing_of(graph, options))
    given = weights(spec, features, resumes)  # first, because that process reports the errors of the model
    with devices.distribution.scope():
        keras.utils.set_random_seed(options.feed.seed)
        model = build_model(options, spec)
        inputs = inputs_of(model, features, options.model_fn)
        for name, feature in features.items():
            if name not in inputs.unused and not is_static_number(feature):
                what = f"feature {name!r} is {feature.dtype.name} {feature.shape}, which JAX does not accept"
                do = "convert it to numbers of a fixed shape in Transform: apply a vocabulary to text, pad lists"
                raise InfeedError(what, where="option backend", do=do)
        symbolic_output(model, inputs, features)
        model.set_weights(given)
    return model, inputs


def _build_variables(model: keras.Model, element_spec: Any, pick: Callable[[Any], Any]) -> None:
    """Create the variables of metrics, loss and optimizer from the spec of a batch, without computing anything."""
    import jax

    def row_of(spec: tf.TensorSpec) -> Any:
        return np.zeros((1, *spec.shape[1:]), spec.dtype.as_numpy_dtype)

    with keras.StatelessScope():  # has no side effects
        jax.eval_shape(lambda batch: compute_losses(model, pick(batch)), tf.nest.map_structure(row_of, element_spec))
    model.optimizer.build(model.trainable_variables)


def _used(dataset: tf.data.Dataset, inputs: ModelInputs) -> tf.data.Dataset:
    """Return the batches without the features that the model ignores, which may be text."""
    if not inputs.unused:
        return dataset

    def used(features: Mapping[str, Any], *rest: Any) -> tuple[Any, ...]:
        return {name: value for name, value in features.items() if name not in inputs.unused}, *rest

    return dataset.map(used).prefetch(tf.data.AUTOTUNE)
