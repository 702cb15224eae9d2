"""The user's model: what its function is given, the checks on what it gives back, and what its output means.

A classification is read by what the model was compiled for. A loss of the cross-entropy family says whether the output
is probabilities or logits; without one, an activation that makes probabilities does. One output tells two classes by a
threshold. What is neither known to be a probability nor one of several scores is no class, and is not called one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.seams import keras as keras_seam
from infeed.components.trainer.model_inputs import ModelInputs, feed_by_name, inputs_of, symbolic_output
from infeed.components.trainer.options import TrainOptions
from infeed.components.trainer.packing import Packing

_CROSSENTROPIES = (
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "sparse_categorical_crossentropy",
)


@dataclass(frozen=True)
class ModelSpec:
    """What the model has to fit.

    Attributes:
      inputs: the features as the model gets them, without the batch dimension.
      task: "classification" or "regression".
      classes: the class names in index order; empty for a regression.
      vocabulary_sizes: for each feature that is an index into a vocabulary, how many words that has.
      hparams: the user's own, as given in the options, with those of a Tuner on top.
      steps: planned training steps, for a schedule of the learning rate; 0 if unknown.
    """

    inputs: Mapping[str, tf.TensorSpec]
    task: str
    classes: tuple[str, ...]
    vocabulary_sizes: Mapping[str, int]
    hparams: Mapping[str, Any]
    steps: int = 0


def make_model(
    options: TrainOptions, spec: ModelSpec, features: Mapping[str, tf.TypeSpec], packing: Packing | None = None
) -> tuple[keras.Model, ModelInputs]:
    """The user's model, which picks what it takes from batches of the features, and how it does that.

    Args:
      options: name the model function.
      spec: what the function is given.
      features: type of each feature that batches of training, evaluation and serving have, [batch, ...].
      packing: of the features in batches of training and evaluation; None if they are not packed.

    Raises:
      InfeedError: as `build_model`, or the model wants other features, or its output cannot tell the classes apart.
    """
    model = build_model(options, spec)
    inputs = inputs_of(model, features, options.model_fn)
    check_output(symbolic_output(model, inputs, features), model.loss, spec.classes, options.model_fn)
    feed_by_name(model, inputs, packing or Packing())
    return model, inputs


def build_model(options: TrainOptions, spec: ModelSpec) -> keras.Model:
    """Calls the user's function.

    Raises:
      InfeedError: there is no such function, or it gives something other than a compiled Keras 3 model.
    """
    function = user_code.load(options.model_fn, "model_fn")
    policy = keras.config.dtype_policy()
    if options.mixed_precision:
        keras.config.set_dtype_policy(f"mixed_{options.mixed_precision}")
    try:
        model = function(spec)
    finally:
        keras.config.set_dtype_policy(policy)  # layers keep the policy they were made under
    if not isinstance(model, keras.Model):
        raise InfeedError(
            f"the function returned {type(model).__module__}.{type(model).__name__}, not a keras.Model",
            where=options.model_fn,
            do="return a Keras 3 model (`import keras`); models of tf_keras are not supported",
        )
    if not model.compiled:
        raise InfeedError(
            "the model is not compiled",
            where=options.model_fn,
            do="call model.compile(optimizer=..., loss=..., metrics=...) before returning it",
        )
    if options.xla is not None:
        model.jit_compile = options.xla
    return model


@dataclass(frozen=True)
class Head:
    """How an output is read.

    Attributes:
      task: "classification" or "regression".
      logits: whether the loss takes the output for logits; None where it does not say.
      classes: names in index order; empty where nobody named them.
      threshold: where one output tells two classes apart, the probability above which it is the second.
    """

    task: str
    logits: bool | None
    classes: tuple[str, ...] = ()
    threshold: float = 0.5

    def predictions(self, output: Any) -> dict[str, tf.Tensor]:
        """Named predictions of a batch.

        Args:
          output: of the model, [batch] or [batch, n].

        Returns:
          Of a regression, `prediction` float32 [batch] ([batch, n] of n outputs). Of a classification, `probabilities`
          float32 [batch, classes], or `scores` where nobody knows whether they are that, and `class` [batch, 1]:
          string, or the index int64 where classes have no names; TFX's BulkInferrer fails on text that is [batch].
          One output that is no probability is a `prediction`.
        """
        output = _only(output)
        logits = False if keras_seam.is_activated(output) else self.logits
        numbers = tf.cast(output, tf.float32)  # mixed precision may end in float16
        if numbers.shape.rank == 1:
            numbers = numbers[:, tf.newaxis]
        one = numbers.shape[-1] == 1
        if self.task == "regression" or (one and logits is None):
            return {"prediction": tf.squeeze(numbers, -1) if one else numbers}
        if one:
            second = tf.sigmoid(numbers) if logits else numbers
            both = tf.concat([1.0 - second, second], axis=-1)
            return {"probabilities": both, "class": self._named(second > self.threshold)}
        numbers = tf.nn.softmax(numbers) if logits else numbers
        name = "scores" if logits is None else "probabilities"
        return {name: numbers, "class": self._named(tf.argmax(numbers, axis=-1)[:, tf.newaxis])}

    def _named(self, index: tf.Tensor) -> tf.Tensor:
        index = tf.cast(index, tf.int64)
        return tf.gather(tf.constant(self.classes), index) if self.classes else index


def takes_logits(loss: Any) -> bool | None:
    """Whether a compiled loss takes the output for logits; None where it is none that says so.

    Args:
      loss: as given to `compile`: a name, a function, a keras.losses.Loss, or a list or dict of one of these.
    """
    if isinstance(loss, Mapping | list | tuple):
        (loss,) = loss.values() if isinstance(loss, Mapping) else loss
    if isinstance(loss, functools.partial):
        return bool(loss.keywords["from_logits"]) if "from_logits" in loss.keywords else takes_logits(loss.func)
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if getattr(loss, "from_logits", None) is not None:
        return bool(loss.from_logits)
    return False if getattr(loss, "__name__", "") in _CROSSENTROPIES else None


def check_output(output: Any, loss: Any, classes: Sequence[str], where: str) -> None:
    """Raises InfeedError where a model has several outputs, or a classifier's cannot tell the classes apart.

    Args:
      output: symbolic, [batch, n].
      loss: as given to `compile`.
      classes: names; empty of a regression, or where nobody named them.
      where: the function that made the model.
    """
    shape = _only(output, where).shape
    size = shape[-1] if len(shape) > 1 else 1
    categorical = "categorical" in _name(loss)
    if not classes or size == len(classes) or (size == 1 and len(classes) == 2 and not categorical):
        return
    binary = ', or, for two classes, in one sigmoid with the loss "binary_crossentropy"' if len(classes) == 2 else ""
    raise InfeedError(
        f"the model gives {size} number{'s' * (size != 1)} an example, and there are {len(classes)} classes"
        + (f"; its loss is {_name(loss)}" if size == 1 else ""),
        where=where,
        do=f"end it in len(spec.classes) probabilities, with the loss sparse_categorical_crossentropy{binary}",
    )


def _name(loss: Any) -> str:
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or type(loss).__name__)


def _only(output: Any, where: str = "the model") -> Any:
    """The output of a model that has one, whatever it is wrapped in."""
    outputs = tf.nest.flatten(output)
    if len(outputs) != 1:
        raise InfeedError(
            f"the model gives {len(outputs)} outputs",
            where=where,
            do="end it in one output, or train it with a run_fn of your own, which exports what it likes",
        )
    return outputs[0]
