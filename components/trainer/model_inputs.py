"""Selection of a model's features by the names of its inputs, in training, evaluation and serving.

If the keys of a batch differ from the dict inputs of a functional model, Keras 3 feeds the model by *sorted position*:
given a, b and c, a model with inputs b and c silently receives a and b. This module passes only features that the
model names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.seams import keras as keras_seam
from infeed.components.trainer.packing import Packing

# Default name of a Keras input.
_UNNAMED = re.compile(r"(keras_tensor|input_layer)(_\d+)?")


@dataclass(frozen=True)
class ModelInputs:
    """Mapping from the features of a batch to the model's argument.

    Attributes:
      structure: nested lists, tuples and dicts of the model, with a feature name at each leaf. None passes all
          features as one dict, for subclassed models.
      unused: features that the model does not use, if known.
      outputs: names of the outputs, if the model returns them as a list. Keras takes labels by name even then, but
          weights only as a list.
    """

    structure: Any = None
    unused: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __call__(self, features: Mapping[str, Any]) -> Any:
        """Return the model's argument for {name: value}; values may be tensors or their specs."""
        if self.structure is None:
            return features
        return tf.nest.map_structure(features.__getitem__, self.structure)


def inputs_of(model: keras.Model, features: Mapping[str, tf.TypeSpec], where: str) -> ModelInputs:
    """Return the features that `model` uses. A model without declared inputs is built by a symbolic call.

    Raise InfeedError if a feature of the model is missing, or the model cannot be called with the features.
    """
    if not getattr(model, "inputs", None):
        return _called(model, features, where)
    # A Sequential has one input and one output, and Keras knows neither as a structure before its first call.
    single = isinstance(model, keras.Sequential)
    structure = _names(model.inputs[0] if single else model.input)
    if isinstance(structure, str) and _UNNAMED.fullmatch(structure) and len(features) == 1:
        (structure,) = features  # one input and one feature cannot be confused
    wanted = tf.nest.flatten(structure)
    missing = sorted(set(wanted) - set(features))
    if missing:
        raise _lacking(wanted, missing, features, where)
    outputs = () if single or not isinstance(model.output, list | tuple) else tuple(model.output_names)
    return ModelInputs(structure, tuple(sorted(set(features) - set(wanted))), outputs)


def symbolic_output(model: keras.Model, inputs: ModelInputs, features: Mapping[str, tf.TypeSpec]) -> Any:
    """Return the model's output for symbols of the features. This builds the model."""
    if not _has_ragged(inputs(features)):
        symbols = {}
        for name, spec in features.items():
            kind = {"sparse": True} if isinstance(spec, tf.SparseTensorSpec) else {}
            symbols[name] = keras.KerasTensor(spec.shape, keras.backend.standardize_dtype(spec.dtype), **kind)
        return model(inputs(symbols), training=False)
    traced = tf.function(lambda given: model(inputs(given), training=False), autograph=False)
    return traced.get_concrete_function(dict(features)).structured_outputs


def feed_by_name(model: keras.Model, inputs: ModelInputs, packing: Packing = Packing()) -> None:  # noqa: B008 - frozen
    """Make Keras' training, evaluation and prediction steps of this model unpack and select the features."""

    def build(batch: Any, by_keras: Callable[[Any], None]) -> None:
        data = picked(batch, inputs, packing)
        if not _has_ragged(data):
            by_keras(data)
            return
        # Keras builds from symbols, which are dense even for a ragged tensor: a layer that needs the lengths of rows
        # fails. So create the variables of metrics, loss and optimizer from the specs of the batch.
        traced = tf.function(lambda *batch: compute_losses(model, batch), autograph=False)
        with keras.StatelessScope():  # has no side effects
            traced.get_concrete_function(*data)
        model.optimizer.build(model.trainable_variables)
        keras_seam.finish_build(model)

    if not keras_seam.STEPS.available():  # without these names, Keras builds the model in the first step
        keras_seam.build_by(model, build)
    if inputs.structure is None and not packing.packs:
        return

    def picking(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda data: step(picked(data, inputs, packing))

    for name in ("train_step", "test_step", "predict_step"):
        setattr(model, name, picking(getattr(model, name)))


def _has_ragged(specs: Any) -> bool:
    return any(isinstance(spec, tf.RaggedTensorSpec) for spec in tf.nest.flatten(specs))


def compute_losses(model: keras.Model, batch: Any) -> None:
    """Compute the metrics and the loss of a batch (x, y, weight), which creates their variables."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    output = model(x, training=False)
    model.compute_metrics(x, y, output, weight)
    model.compute_loss(x, y, output, weight)


def _names(structure: Any) -> Any:
    """Return the structure with names instead of symbols. The name is the key in a dict, as in Keras."""
    if isinstance(structure, dict):
        return {key: key if isinstance(one, keras.KerasTensor) else _names(one) for key, one in structure.items()}
    if isinstance(structure, list | tuple):
        return [_names(one) for one in structure]
    return structure.name


def _called(model: keras.Model, features: Mapping[str, tf.TypeSpec], where: str) -> ModelInputs:
    forms: list[str | None] = [None, *(features if len(features) == 1 else ())]  # the whole dict, or its only feature
    if isinstance(model, keras.Sequential):
        forms.reverse()
    errors = []
    for form in forms:
        inputs = ModelInputs(form)
        try:
            symbolic_output(model, inputs, features)
        except Exception as error:  # user code may raise anything
            errors.append(error)
        else:
            return inputs
    cause = errors[0]
    while isinstance(cause.__context__, Exception):  # Keras wraps errors of the model's code
        cause = cause.__context__
    if isinstance(cause, KeyError) and cause.args and cause.args[0] not in features:
        raise _lacking([str(cause.args[0])], [str(cause.args[0])], features, where) from errors[0]
    what = f"the model cannot be called with the features: {type(cause).__name__}: {cause}"
    do = f"declare its inputs with keras.Input, or accept a dict of {', '.join(sorted(features))}"
    raise InfeedError(what, where=where, do=do) from errors[0]


def picked(data: Any, inputs: ModelInputs, packing: Packing) -> Any:
    """Map (features, label, weight) to the structures of the model. Other data, of callbacks, is unchanged."""
    if not isinstance(data, tuple) or not data or not isinstance(data[0], dict):
        return data
    features = packing.unpack(data[0])
    if inputs.structure is not None and not set(tf.nest.flatten(inputs.structure)) <= set(features):
        return data
    weights = list(data[2:])
    if inputs.outputs:
        weights = [[w[name] for name in inputs.outputs] if isinstance(w, Mapping) else w for w in weights]
    return (inputs(features), *data[1:2], *weights)


def _lacking(wanted: list[str], missing: list[str], features: Mapping[str, Any], where: str) -> InfeedError:
    unnamed = any(map(_UNNAMED.fullmatch, missing))
    return InfeedError(
        f"the model expects {_listed(wanted)}, but there is no feature {_listed(missing)}",
        where=where,
        do=f"name the model's inputs like the features, {', '.join(sorted(features))}"
        + (': keras.Input(shape, name="...")' if unnamed else ", or compute the missing feature in Transform"),
    )


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
