"""What a model function is told, and the checks on what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infeed.components import user_code
from infeed.components.errors import InfeedError
from infeed.components.trainer.options import TrainOptions

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


@dataclass(frozen=True)
class ModelSpec:
    """What the model has to fit.

    Attributes:
      inputs: the features as the model gets them, without the batch dimension.
      task: "classification" or "regression".
      classes: the class names in index order; empty for a regression.
      vocabulary_sizes: for each feature that is an index into a vocabulary, how many words that has.
      hparams: the user's own, as given in the options, with those of a Tuner on top.
    """

    inputs: Mapping[str, tf.TensorSpec]
    task: str
    classes: tuple[str, ...]
    vocabulary_sizes: Mapping[str, int]
    hparams: Mapping[str, Any]


def build_model(options: TrainOptions, spec: ModelSpec) -> keras.Model:
    """Calls the user's function.

    Raises:
      InfeedError: there is no such function, or it gives something other than a compiled Keras 3 model with one number
        a class.
    """
    import keras

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
            do="Return a Keras 3 model (`import keras`); models of tf_keras are not supported.",
        )
    if not model.compiled:
        raise InfeedError(
            "the model is not compiled",
            where=options.model_fn,
            do="Call model.compile(optimizer=..., loss=..., metrics=...) before returning it.",
        )
    _check_output(model, options, spec)
    if options.xla is not None:
        model.jit_compile = options.xla
    return model


def _check_output(model: keras.Model, options: TrainOptions, spec: ModelSpec) -> None:
    """One sigmoid for two classes trains, but serving takes the class with the highest of several probabilities."""
    shape = getattr(model, "output_shape", None)  # a subclassed model does not know it yet
    if spec.classes and isinstance(shape, tuple) and shape[-1] != len(spec.classes):
        raise InfeedError(
            f"the model gives {shape[-1]} numbers an example, and there are {len(spec.classes)} classes",
            where=options.model_fn,
            do="End it in len(spec.classes) probabilities, with the loss sparse_categorical_crossentropy.",
        )
