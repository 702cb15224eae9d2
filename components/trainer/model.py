"""User model: arguments of its function, checks of the model, and the meaning of its output.

For a classification, the compiled loss defines the output. A loss of the cross-entropy family shows whether the output
is probabilities or logits; without such a loss, an activation that makes probabilities does. A single output separates
two classes by a threshold. An output that is neither a known probability nor one of several scores is not a class.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
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
class OutputSpec:
    """Properties of a label that an output of the model must fit.

    Attributes:
      task: "classification", "regression" or "multilabel".
      classes: names of the classes in index order. Empty for a regression, or if they are unknown.
    """

    task: str
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelSpec:
    """Properties of the data that a model must fit.

    Attributes:
      inputs: features that the model receives, without the batch dimension.
      task: "classification", "regression" or "multilabel". Empty if the model has several outputs.
      classes: names of the classes in index order. Empty for a regression, or if the model has several outputs.
      vocabulary_sizes: vocabulary size of each feature that is a vocabulary index.
      hparams: hyperparameters of the options. A Tuner overrides them.
      steps: planned training steps, for a learning rate schedule. 0 if unknown.
      outputs: output name -> its label, if TrainOptions.label names several outputs. The model must return a dict with
          these names, or have them as `output_names`.
    """

    inputs: Mapping[str, tf.TensorSpec]
    task: str
    classes: tuple[str, ...]
    vocabulary_sizes: Mapping[str, int]
    hparams: Mapping[str, Any]
    steps: int = 0
    outputs: Mapping[str, OutputSpec] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, tf.TensorSpec],
        outputs: Mapping[str, OutputSpec],
        vocabulary_sizes: Mapping[str, int],
        hparams: Mapping[str, Any],
        steps: int = 0,
    ) -> ModelSpec:
        """Return the argument of a model function. The only output of a model has the name ""."""
        only = outputs.get("", OutputSpec(""))
        named = {} if "" in outputs else outputs
        return cls(inputs, only.task, only.classes, vocabulary_sizes, hparams, steps, named)


def make_model(
    options: TrainOptions, spec: ModelSpec, features: Mapping[str, tf.TypeSpec], packing: Packing | None = None
) -> tuple[keras.Model, ModelInputs]:
    """Build the user's model so that it selects its inputs from batches. Return it with its inputs.

    Args:
      features: type of each feature in the batches of training, evaluation and serving, [batch, ...].
      packing: packing of the features in batches of training and evaluation. None if unpacked.

    Raises:
      InfeedError: as `build_model`, or a feature of the model is missing, or its output cannot separate the classes.
    """
    model = build_model(options, spec)
    inputs = inputs_of(model, features, options.model_fn)
    labels = spec.outputs or {"": OutputSpec(spec.task, spec.classes)}
    outputs = outputs_of(symbolic_output(model, inputs, features), model, [*labels], options.model_fn)
    losses = losses_of(model, [*labels])
    for name, label in labels.items():
        check_output(outputs[name], losses[name], label, options.model_fn, name)
    feed_by_name(model, inputs, packing or Packing())
    return model, inputs


def build_model(options: TrainOptions, spec: ModelSpec) -> keras.Model:
    """Call the user's function. Raise InfeedError if it does not exist or does not return a compiled Keras 3 model."""
    function = user_code.load(options.model_fn, "model_fn")
    policy = keras.config.dtype_policy()
    if options.mixed_precision:
        keras.config.set_dtype_policy(f"mixed_{options.mixed_precision}")
    try:
        model = function(spec)
    finally:
        keras.config.set_dtype_policy(policy)  # layers keep the policy under which they were created
    if not isinstance(model, keras.Model):
        what = f"the function returned {type(model).__module__}.{type(model).__name__}, not a keras.Model"
        do = "return a Keras 3 model (`import keras`); models of tf_keras are not supported"
        raise InfeedError(what, where=options.model_fn, do=do)
    if not model.compiled:
        do = "call model.compile(optimizer=..., loss=..., metrics=...) before returning it"
        raise InfeedError("the model is not compiled", where=options.model_fn, do=do)
    if options.xla is not None:
        model.jit_compile = options.xla
    return model


def outputs_of(output: Any, model: keras.Model, names: Sequence[str], where: str = "the model") -> dict[str, Any]:
    """Return the outputs of a model by name. The only output has the name "".

    Raise InfeedError if the model has other outputs.
    """
    if [*names] == [""]:
        return {"": _only(output, where)}
    found = output
    if not isinstance(output, dict):
        flat = tf.nest.flatten(output)
        # Keras gives a label by name to one of several outputs, but not to a single one.
        named = getattr(model, "output_names", None) if len(flat) > 1 else None
        found = dict(zip(named or map(str, range(len(flat))), flat, strict=True))
    if set(found) != set(names):
        do = f"return keras.Model(inputs, {{{', '.join(f'{name!r}: ...' for name in names)}}})"
        what = f"the model has the outputs {', '.join(map(str, found))}, but the labels are {', '.join(names)}"
        raise InfeedError(what, where=where, do=do)
    return {name: _only(found[name], where) for name in names}


def losses_of(model: keras.Model, names: Sequence[str]) -> dict[str, Any]:
    """Return the compiled loss of each output: from a dict by name, a list in Keras' order, or one loss for all."""
    loss = model.loss
    if isinstance(loss, Mapping) and names != [""]:
        return {name: loss.get(name) for name in names}
    if isinstance(loss, list | tuple) and names != [""]:
        # Keras flattens a dict of outputs by sorted key.
        order = sorted(names) if isinstance(getattr(model, "output", {}), dict) else model.output_names
        return dict(zip(order, loss, strict=False)) | dict.fromkeys(order[len(loss) :])
    return dict.fromkeys(names, loss)


@dataclass(frozen=True)
class Head:
    """Meaning of a model's output."""

    task: str
    logits: bool | None  # whether the loss treats the output as logits. None if unknown
    classes: tuple[str, ...] = ()  # class names in index order. Empty if unknown
    # Probability above which a single output means the second class, and above which a row has a class of a multilabel.
    threshold: float = 0.5

    def predictions(self, output: Any) -> dict[str, tf.Tensor]:
        """Return the named predictions of a batch.

        Args:
          output: output of the model, [batch] or [batch, n], or [batch, height, width, n] for a class of each pixel.

        Returns:
          For a regression, `prediction` float32 [batch], or [batch, n] for n outputs. For a classification,
          `probabilities` float32 [batch, classes], or `scores` if they may not be probabilities, and `class` [batch,
          1] or [batch, height, width]: string, or the index int64 if classes have no names. TFX's BulkInferrer fails
          on text of shape [batch]. A single output that is no probability is a `prediction`. For a multilabel,
          `probabilities` and `class`, both [batch, classes]: `class` is the class if its probability is above the
          threshold, otherwise "" or -1.
        """
        output = _only(output)
        logits = False if keras_seam.is_activated(output) else self.logits
        numbers = tf.cast(output, tf.float32)  # with mixed precision, the output may be float16
        if numbers.shape.rank == 1:
            numbers = numbers[:, tf.newaxis]
        if self.task == "multilabel":
            if logits is None:
                return {"scores": numbers}
            probabilities = tf.sigmoid(numbers) if logits else numbers
            all_classes = self._named(tf.range(numbers.shape[-1]))
            absent = tf.constant("" if self.classes else -1, all_classes.dtype)
            found = tf.where(probabilities > self.threshold, all_classes, absent)
            return {"probabilities": probabilities, "class": found}
        one = numbers.shape[-1] == 1
        if self.task == "regression" or (one and logits is None):
            return {"prediction": tf.squeeze(numbers, -1) if one else numbers}
        if one:
            second = tf.sigmoid(numbers) if logits else numbers
            both = tf.concat([1.0 - second, second], axis=-1)
            return {"probabilities": both, "class": self._named(second > self.threshold)}
        numbers = tf.nn.softmax(numbers) if logits else numbers
        name = "scores" if logits is None else "probabilities"
        best = tf.argmax(numbers, axis=-1)
        return {name: numbers, "class": self._named(best[:, tf.newaxis] if best.shape.rank == 1 else best)}

    def _named(self, index: tf.Tensor) -> tf.Tensor:
        index = tf.cast(index, tf.int64)
        return tf.gather(tf.constant(self.classes), index) if self.classes else index


def takes_logits(loss: Any) -> bool | None:
    """Return whether a loss treats the output as logits. None if the loss does not define it. See `Model.compile`."""
    if isinstance(loss, Mapping | list | tuple):
        (loss,) = loss.values() if isinstance(loss, Mapping) else loss
    if isinstance(loss, functools.partial):
        return bool(loss.keywords["from_logits"]) if "from_logits" in loss.keywords else takes_logits(loss.func)
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if getattr(loss, "from_logits", None) is not None:
        return bool(loss.from_logits)
    return False if getattr(loss, "__name__", "") in _CROSSENTROPIES else None


def check_output(output: Any, loss: Any, label: OutputSpec, where: str, name: str = "") -> None:
    """Raise InfeedError if a classifier's output, symbolic [batch, n], cannot separate the classes."""
    shape, classes = _only(output, where).shape, label.classes
    size = shape[-1] if len(shape) > 1 else 1
    of = f"output {name!r}: " if name else ""
    what = f"{of}the model has {size} output{'s' * (size != 1)} per example, but there are {len(classes)} classes"
    categorical = "categorical" in _name(loss)
    if label.task == "multilabel":
        do = "end it in len(classes) sigmoids, with the loss binary_crossentropy"
        if classes and size != len(classes):
            raise InfeedError(what, where=where, do=do)
        if categorical:
            raise InfeedError(f"{of}a row has several classes, but the loss is {_name(loss)}", where=where, do=do)
        return
    if not classes or size == len(classes) or (size == 1 and len(classes) == 2 and not categorical):
        return
    binary = ', or for two classes, in one sigmoid with the loss "binary_crossentropy"' if len(classes) == 2 else ""
    raise InfeedError(
        what + (f"; its loss is {_name(loss)}" if size == 1 else ""),
        where=where,
        do=f"end it in len(spec.classes) probabilities, with the loss sparse_categorical_crossentropy{binary}",
    )


def _name(loss: Any) -> str:
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or type(loss).__name__)


def _only(output: Any, where: str = "the model") -> Any:
    """Return the only output of a model, without nesting."""
    outputs = tf.nest.flatten(output)
    if len(outputs) != 1:
        do = "end it in one output, or name the outputs in TrainOptions: label={'a': Output(), 'b': Output()}"
        raise InfeedError(f"the model has {len(outputs)} outputs", where=where, do=do)
    return outputs[0]
