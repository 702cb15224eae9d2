"""Loaded SavedModel for evaluation: batch predictions, and labels, weights and features of rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.utils import model_util

from infeed.components.base.errors import InfeedError
from infeed.components.dataset.example_types import item_counts
from infeed.components.evaluation.batches import Batch, Values, flat_values
from infeed.components.evaluation.pairs import Array, BeyondError, Observed
from infeed.components.evaluation.predictor import OutputRowsError, Predictor, RefusedBatchError, Signature, of_output

# Default name of features if the eval config has none. As in TFMA, it is optional.
_PREPROCESSING = ("transformed_features", "transformed_labels")
# Default names of the output if the eval config has none. As in TFMA, the first existing one is used.
_PREDICTIONS = ("scores", "outputs", "predictions", "logistic", "probabilities", "logits")


@dataclass(frozen=True)
class ModelAnswer:
    """Model results for a batch: transformed features and outputs of its signature, name -> [rows, ...]."""

    features: Mapping[str, Array]
    outputs: Mapping[str, Array]


class EvaluatedModel:
    """Model of one ModelSpec.

    Args:
      spec: TFMA's ModelSpec. Its name is "" if there is only one.
      default_metrics: whether to include the compiled metrics of a Keras model.

    Raises:
      BeyondError: the model is of an unsupported kind.
      InfeedError: the model or one of its signatures does not exist.
    """

    def __init__(self, spec: Any, path: str, *, default_metrics: bool = True) -> None:
        self.spec, self.path = spec, path
        given = {field.name for field, _ in spec.ListFields()}
        for name in ("prediction_keys", "example_weight_keys", "padding_options"):
            if name in given:
                raise BeyondError(f"model_specs.{name} is set")
        if not tf.io.gfile.exists(f"{path}/saved_model.pb"):
            do = "use a model exported by a Trainer or Keras"
            raise InfeedError(f"{self._called} is not a SavedModel", where=path, do=do)
        kind = model_util.get_model_type(spec, path)
        if kind == constants.TF_KERAS and default_metrics:
            raise BeyondError("the model may include compiled Keras metrics (include_default_metrics)")
        if kind not in (constants.TF_GENERIC, constants.TF_KERAS):
            raise BeyondError(f"model_specs.model_type is {kind!r}")
        self.predictor = Predictor.load(path, ["serve"], self._called)
        loaded = self.predictor.loaded
        name = spec.signature_name or model_util.get_default_signature_name_from_model(loaded)
        if not spec.signature_name and model_util.is_callable_fn(loaded):
            raise BeyondError(f"{self._called} is called without a signature")
        self._predict = self._signature(name, "signature_name")
        asked = list(spec.preprocessing_function_names)
        there = asked or [name for name in _PREPROCESSING if name in loaded.signatures]
        self._transforms = [self._signature(name, "preprocessing_function_names") for name in there]

    @property
    def _called(self) -> str:
        return f"the {self.spec.name} model" if self.spec.name else "the model"

    def _signature(self, name: str, option: str) -> Signature:
        """Return a signature that takes serialized tf.Examples."""
        if "@" in name:
            raise BeyondError(f"{name!r} is a function of TFMA's")
        loaded = self.predictor.loaded
        if name not in loaded.signatures:
            if hasattr(loaded, name):
                raise BeyondError(f"{name!r} is an attribute of {self._called}, not a signature")
            there = sorted(one for one in loaded.signatures if not one.startswith("__"))
            what = f"{self._called} has no signature {name!r}"
            do = f"use one of its signatures: {', '.join(there) or 'it has none'}"
            raise InfeedError(what, where=f"{self.path}, eval_config.model_specs.{option}", do=do)
        signature = self.predictor.signature(name)
        if not signature.takes_examples:
            raise BeyondError(f"signature {name!r} takes {', '.join(signature.inputs)}, not serialized tf.Examples")
        return signature

    def check_names(self, columns: Mapping[str, Any]) -> None:
        """Raise BeyondError if TFMA would pass a column to a signature because an input has the same name."""
        for signature in (self._predict, *self._transforms):
            (name,) = signature.inputs
            if model_util.find_input_name_in_features(set(columns), name):
                raise BeyondError(f"an input of {self._called} and a column are both named {name!r}")

    def answer(self, batch: Batch, *, predict: bool) -> ModelAnswer:
        """Return features and, if requested, predictions. Raise InfeedError if TensorFlow cannot compute them."""
        records = tf.constant(batch.records, tf.string)
        features: dict[str, Array] = {}
        for transform in self._transforms:
            features.update(self._call(transform, records))
        return ModelAnswer(features, self._call(self._predict, records) if predict else {})

    def predictions(self, records: Sequence[bytes], output: str = "") -> Array:
        """Return the predictions of an output for serialized tf.Examples, [records, classes]."""
        return self._predictions(ModelAnswer({}, self._call(self._predict, tf.constant(records, tf.string))), output)

    def _call(self, signature: Signature, records: tf.Tensor) -> dict[str, Array]:
        try:
            return signature(dict.fromkeys(signature.inputs, records))
        except OutputRowsError as error:
            raise BeyondError(error.what) from error
        except RefusedBatchError as error:
            if not isinstance(error.__cause__, tf.errors.InvalidArgumentError):
                raise
            do = "evaluate the model on examples with the columns of its training data"
            do += "; pipelines for other data need another root (`--root`)" if self.spec.is_baseline else ""
            raise InfeedError(
                f"{self._called} does not take these examples: {error.what}", where=self.path, do=do
            ) from error

    def observe(self, batch: Batch, answer: ModelAnswer, outputs: Sequence[str]) -> Observed:
        """Return the rows in the form that metrics take, with labels and predictions of these outputs."""
        weights = self.spec.example_weight_key and self._column(batch, answer, "example_weight_key")
        if not isinstance(weights, str) and (weights.shape[1] != 1 or weights.dtype.kind not in "iuf"):
            raise BeyondError("a row has several weights, or none that is a number")
        only = None if isinstance(weights, str) else weights[:, 0]
        found: dict[str, Observed] = {}
        for name in outputs:
            labels = self._column(batch, answer, "label_key", self.label_of(name))
            if labels.dtype.kind not in "iufb":
                raise BeyondError(f"the labels in {self.label_of(name)!r} are text")
            found[name] = Observed(len(batch.records), labels, self._predictions(answer, name), only)
        return replace(found.pop("", Observed(len(batch.records), None, None, only)), outputs=found)

    @property
    def labels(self) -> tuple[str, ...]:
        """Features that are labels."""
        return tuple(dict.fromkeys([*filter(None, [self.spec.label_key]), *self.spec.label_keys.values()]))

    def label_of(self, output: str) -> str:
        """Return the feature that is the label of an output. Raise InfeedError if the eval config has none."""
        name = self.spec.label_key or dict(self.spec.label_keys).get(output)
        if name:
            return str(name)
        do, of = "set its column", f" of the output {output!r}" if output else ""
        if output or self.spec.label_keys:
            do = f"set it in label_keys, and name the outputs in metrics_specs.output_names: {', '.join(self.labels)}"
        raise InfeedError(f"the eval config names no label{of}", where="eval_config.model_specs.label_key", do=do)

    def _column(self, batch: Batch, answer: ModelAnswer, option: str, name: str = "") -> Array:
        """Return a column as [rows, n], from the transformed features or else from the examples."""
        name = name or getattr(self.spec, option)
        if name in answer.features:
            return _two_dimensional(answer.features[name], name)
        if name not in batch.columns:
            there = ", ".join(sorted({*answer.features, *batch.columns}))
            what = f"there is no column {name!r} in the examples or the outputs of {self._called}"
            raise InfeedError(what, where=f"eval_config.model_specs.{option}", do=f"use one of {there}")
        lists = batch.columns[name]
        counts = item_counts(lists)
        if (counts != counts[0]).any() or not counts[0]:
            row = int(np.argmin(counts))
            what = f"column {name!r} has {counts[row]} values here, but up to {counts.max()} elsewhere"
            do = "fill the missing values, or use another column in eval_config.model_specs"
            raise InfeedError(what, where=batch.where(row), do=do)
        return flat_values(lists).reshape(len(counts), counts[0])

    def _predictions(self, answer: ModelAnswer, output: str = "") -> Array:
        outputs = of_output(answer.outputs, output)
        if not outputs:
            what = f"{self._called} has no output {output!r}, only {', '.join(sorted(answer.outputs))}"
            raise InfeedError(what, where="eval_config.metrics_specs.output_names", do="use one of its outputs")
        asked = [self.spec.prediction_key] if self.spec.prediction_key else _PREDICTIONS
        name = next(iter(outputs)) if len(outputs) == 1 else next((one for one in asked if one in outputs), "")
        if not name:
            what = f"{self._called} has the outputs {', '.join(sorted(outputs))}, and none is chosen"
            do = "select the output that holds probabilities or predictions"
            raise InfeedError(what, where="eval_config.model_specs.prediction_key", do=do)
        if outputs[name].dtype.kind not in "iuf":
            raise BeyondError(f"the predictions in {name!r} are text")
        return _two_dimensional(outputs[name], name)


def _two_dimensional(array: Array, name: str) -> Array:
    if array.ndim > 2:
        raise BeyondError(f"{name!r} has {array.ndim - 1} dimensions in each row")
    return array.reshape(len(array), -1)


def feature_values(batch: Batch, answers: Sequence[ModelAnswer], name: str) -> Values | None:
    """Return the values of a feature from the models' transformed features or else the examples.

    None if no record has it.
    """
    found = [Values.of(answer.features[name]) for answer in answers if name in answer.features]
    if found:
        return functools.reduce(Values.joined, found)
    if name not in batch.columns:
        return None
    lists = batch.columns[name]
    return Values(np.repeat(np.arange(len(batch.records)), item_counts(lists)), flat_values(lists))
