"""SavedModel that combines transform graph, normalization and network, with up to three signatures.

    serving_default     serialized tf.Examples, string [batch] -> predictions
    raw                 one tensor per raw feature, [batch] or [batch, n] -> predictions; named like the feature, or as
    `argument_names` defines (`image/encoded` is `image_encoded`)
    transform_features  serialized tf.Examples with the label -> transformed features, for Evaluator; only with a
    transform graph

A classification predicts `probabilities` float32 [batch, classes] and `class` string [batch, 1], or its index int64 if
classes have no names. A regression predicts `prediction` float32 [batch]. For other cases, see `Head`. If the model has
several outputs, the number of an output has its name, such as `price`, and its classes are `sold/probabilities` and
`sold/class`.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.saved_model.experimental import TrackableResource

from infeed.components.base.units import UniqueNames
from infeed.components.dataset import files, names
from infeed.components.trainer.data import normalise_images
from infeed.components.trainer.graph import Graph
from infeed.components.trainer.model import Head, losses_of, outputs_of, takes_logits
from infeed.components.trainer.model_inputs import ModelInputs
from infeed.components.trainer.options import TrainOptions

# Python rejects keywords as argument names, TensorFlow functions use `self`, and signatures that accept serialized
# tf.Examples use `examples`.
_RESERVED = frozenset([*keyword.kwlist, "self", "examples"])
_LONGEST = 200  # maximum characters of an argument's name
_KINDS = {tf.int64: "int", tf.float32: "float", tf.string: "bytes"}  # types of a tf.Example


class ServingModel:
    """The signatures of a trained model, and the objects that they use."""

    def __init__(self, model: keras.Model, inputs: ModelInputs, graph: Graph, options: TrainOptions) -> None:
        self._model, self._inputs, self._graph, self._options = model, inputs, graph, options
        losses = losses_of(model, [*options.outputs])
        self._heads = {
            name: Head(one.task, takes_logits(losses[name]), graph.classes_of(one.feature), one.threshold)
            for name, one in options.outputs.items()
        }
        self._spec = graph.serving_spec(inputs.unused)
        self._arguments = argument_names(self._spec)
        self._examples = tf.TensorSpec([None], tf.string, name=examples_argument(graph.raw_spec))
        self._predict = tf.function(self._predictions, autograph=False)

    def save(self, path: str) -> None:
        """Write the SavedModel."""

        @tf.function(input_signature=[self._examples], autograph=False)
        def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._predict(tf.io.parse_example(examples, self._spec))  # type: ignore[no-any-return]

        @tf.function(input_signature=[self._examples], autograph=False)
        def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._graph.transform(tf.io.parse_example(examples, self._graph.raw_spec))

        # Serving first: the shapes of Examples are the least specific, so `raw` reuses their traces. Trace before
        # saving, because TensorFlow does not reuse earlier traces during saving.
        signatures = {"serving_default": serving_default.get_concrete_function(), "raw": self._raw()}
        if self._graph.transforms:
            signatures["transform_features"] = transform_features.get_concrete_function()
        tf.saved_model.save(self._held(), path, signatures=signatures)
        # For clients that check their data before loading the model.
        parsed = self._graph.raw_spec if self._graph.transforms else self._spec
        types = {name: _KINDS[spec.dtype] for name, spec in sorted(parsed.items())}
        columns = {"columns": sorted(self._spec), "types": types}
        tasks = {name: one.task for name, one in self._options.outputs.items()}
        dates = {name: forms for name, forms in self._graph.date_formats.items() if name in self._spec}
        described = {**columns, "source_options": self._options.source_options, "outputs": tasks, "dates": dates}
        files.write_bytes(files.join(path, names.RAW_COLUMNS), json.dumps(described).encode())

    def _held(self) -> tf.Module:
        """Return a module with the variables, tables and assets of the signatures, to save.

        The module does not contain the Keras model. Its export would create a second variable for each Keras variable,
        a session would restore only those, and the signatures would fail.
        """
        held = tf.Module()
        held.weights = [variable.value for variable in self._model.variables]
        below = tf.train.TrackableView(self._model).descendants()
        # Lookup tables and similar objects, which have no variables.
        held.resources = [one for one in below if isinstance(one, TrackableResource)]
        held.transform_graph = self._graph.held
        # For clients that use the original feature names: parallel lists, string [features].
        held.raw_features = tf.Variable(list(self._arguments), dtype=tf.string, trainable=False)
        held.raw_arguments = tf.Variable(list(self._arguments.values()), dtype=tf.string, trainable=False)
        return held

    def _predictions(self, raw: dict[str, Any]) -> dict[str, tf.Tensor]:
        features = self._graph.transform(raw)
        for name in self._graph.not_inputs:
            features.pop(name, None)
        features = normalise_images(features, self._options)
        outputs = outputs_of(self._model(self._inputs(features), training=False), self._model, [*self._heads])
        return {
            served_name(name, part): tensor
            for name, head in self._heads.items()
            for part, tensor in head.predictions(outputs[name]).items()
        }

    def _raw(self) -> Any:
        spec, arguments = self._spec, self._arguments

        @tf.function(autograph=False)
        def raw(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._predict(  # type: ignore[no-any-return]
                {name: _as_parsed(tensors[arguments[name]], spec[name]) for name in spec}
            )

        taken = {}
        for name, feature in spec.items():
            shape = feature.shape if isinstance(feature, tf.io.FixedLenFeature) else [None]
            shape = [] if list(shape) in ([], [1], [None]) else shape
            taken[arguments[name]] = tf.TensorSpec([None, *shape], feature.dtype, name=arguments[name])
        return raw.get_concrete_function(**taken)


def served_name(output: str, part: str) -> str:
    """Return the name of a prediction in the signatures, as TFMA finds it by the output: `price`, `sold/class`."""
    if not output:
        return part
    return output if part == "prediction" else f"{output}/{part}"


def argument_names(features: Iterable[str]) -> dict[str, str]:
    """Map each feature name to a unique argument name. The result depends only on the set of features.

    TensorFlow accepts ASCII identifiers that begin with a letter, and compares them case-insensitively. Valid names
    are assigned first, so they stay unchanged.
    """
    arguments = {}
    for feature in sorted(features):
        name = re.sub(r"\W", "_", feature[:_LONGEST], flags=re.ASCII)
        arguments[feature] = name if name[:1].isalpha() and name not in _RESERVED else f"f_{name}"
    unique = UniqueNames()
    # The sort is stable, so both groups stay sorted by name.
    for feature in sorted(arguments, key=lambda one: arguments[one] != one):
        arguments[feature] = unique.take(arguments[feature])
    return arguments


def examples_argument(columns: Iterable[str]) -> str:
    """Return the argument name for serialized tf.Examples: `examples`, or `examples_2` if a column has that name.

    TensorFlow Model Analysis passes the column of the same name to an argument.
    """
    unique = UniqueNames()
    for column in sorted(columns):
        unique.take(column)
    return unique.take("examples")


def _as_parsed(tensor: tf.Tensor, feature: Any) -> Any:
    """Convert a client's dense tensor to the form that parsing returns.

    In sparse features, NaN and "" count as missing.
    """
    if isinstance(feature, tf.io.FixedLenFeature):
        return tf.reshape(tensor, [-1, *feature.shape])
    column = tensor[:, tf.newaxis]
    if feature.dtype == tf.string:
        present = tf.strings.length(column) > 0
    else:
        present = ~tf.math.is_nan(tf.cast(column, tf.float32))
    indices = tf.where(present)
    return tf.SparseTensor(indices, tf.gather_nd(column, indices), tf.shape(column, tf.int64))
