"""The saved model: transform graph, normalisation and network in one, with three signatures.

    serving_default     serialized tf.Examples, string [batch] -> predictions
    raw                 one tensor a raw feature, [batch] or [batch, n] -> predictions; named like the feature, with
                        `_` for what cannot stand in an argument's name (`image/encoded` is `image_encoded`)
    transform_features  serialized tf.Examples with the label -> transformed features, for Evaluator

Predictions of a classification are `probabilities` float32 [batch, classes], `class` string [batch] (its index, int64,
where the label has no vocabulary); of a regression `prediction` float32 [batch].
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from infeed.components.trainer.data import normalise_images
from infeed.components.trainer.graph import TransformGraph
from infeed.components.trainer.options import TrainOptions


class ServingModel(tf.Module):
    """Holds what the signatures use, so that saving finds every variable, table and asset."""

    def __init__(self, model: keras.Model, graph: TransformGraph, options: TrainOptions) -> None:
        super().__init__()
        self._model = model
        self._transform_layer = graph.layer
        self._graph = graph
        self._options = options
        self._classes = tf.constant(graph.classes) if graph.classes else None
        self._is_regression = options.task == "regression"
        self._arguments = argument_names(graph.serving_spec)
        # Saved with the model, for clients that know the features' own names; parallel lists, string [features].
        self.raw_features = tf.Variable(list(self._arguments), trainable=False)
        self.raw_arguments = tf.Variable(list(self._arguments.values()), trainable=False)

    def save(self, path: str) -> None:
        """Writes the SavedModel with its signatures."""
        signatures = {
            "serving_default": self._serving_default(),
            "raw": self._raw(),
            "transform_features": self._transform_features(),
        }
        tf.saved_model.save(self, path, signatures=signatures)

    def _predict(self, raw: dict[str, Any]) -> dict[str, tf.Tensor]:
        features = self._graph.transform(raw)
        for name in self._graph.not_inputs:
            features.pop(name, None)
        features = normalise_images(features, self._options)
        output = tf.cast(self._model(features, training=False), tf.float32)  # mixed precision may end in float16
        if self._is_regression:
            return {"prediction": tf.reshape(output, [-1])}
        best = tf.argmax(output, axis=-1)
        return {"probabilities": output, "class": best if self._classes is None else tf.gather(self._classes, best)}

    def _serving_default(self) -> Any:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
        def serving_default(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._predict(tf.io.parse_example(examples, self._graph.serving_spec))

        return serving_default

    def _transform_features(self) -> Any:
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")], autograph=False)
        def transform_features(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            features: dict[str, tf.Tensor] = self._graph.transform(tf.io.parse_example(examples, self._graph.raw_spec))
            return features

        return transform_features

    def _raw(self) -> Any:
        spec, arguments = self._graph.serving_spec, self._arguments

        @tf.function(autograph=False)
        def raw(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._predict({name: _as_parsed(tensors[arguments[name]], spec[name]) for name in spec})

        return raw.get_concrete_function(
            **{arguments[name]: _tensor_spec(arguments[name], spec[name]) for name in spec}
        )


def argument_names(features: Iterable[str]) -> dict[str, str]:
    """Feature name -> name of the signature's argument: an identifier that TensorFlow takes, no two alike."""
    names: dict[str, str] = {}
    for feature in sorted(features):
        stem = name = re.sub(r"^(?![A-Za-z])", "f_", re.sub(r"\W", "_", feature, flags=re.ASCII))
        number = 2
        while name in names.values():
            name, number = f"{stem}_{number}", number + 1
        names[feature] = name
    return names


def _tensor_spec(name: str, feature: Any) -> tf.TensorSpec:
    shape = feature.shape if isinstance(feature, tf.io.FixedLenFeature) else [None]
    if list(shape) in ([], [1], [None]):
        shape = []
    return tf.TensorSpec([None, *shape], feature.dtype, name=name)


def _as_parsed(tensor: tf.Tensor, feature: Any) -> Any:
    """A client's dense tensor in the form that parsing gives: of sparse features, NaN and "" are missing values."""
    if isinstance(feature, tf.io.FixedLenFeature):
        return tf.reshape(tensor, [-1, *feature.shape])
    column = tensor[:, tf.newaxis]
    if feature.dtype == tf.string:
        present = tf.strings.length(column) > 0
    else:
        present = ~tf.math.is_nan(tf.cast(column, tf.float32))
    indices = tf.where(present)
    return tf.SparseTensor(indices, tf.gather_nd(column, indices), tf.shape(column, tf.int64))
