"""Rate of a model's training step on one constant batch: the limit if input were free."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from infeed.components.base import user_code
from infeed.components.base.errors import InfeedError
from infeed.components.dataset import files
from infeed.components.dataset.input_profile import Ceiling
from infeed.components.feed.meter import Meter
from infeed.components.trainer.loop import measure_ceiling
from infeed.components.trainer.model_inputs import feed_by_name, inputs_of
from infeed.components.trainer.steps import make_train_steps, prepare


def load_model(named: str) -> keras.Model:
    """Load a compiled Keras model from a `.keras` file or a function without arguments: `mine.py:make_model`.

    Raise InfeedError if the file or function does not exist, or does not give a compiled model.
    """
    if named.endswith(".keras"):
        if not files.exists(named):
            raise InfeedError("there is no such file", where=named, do="correct the path")
        try:
            model = keras.models.load_model(named)
        except Exception as error:  # Keras raises many types for damaged files and unknown layers
            do = "save it with model.save. If it has custom layers, use a function: mine.py:make_model"
            raise InfeedError(f"the model cannot be loaded: {_cause(error)}", where=named, do=do) from error
    elif ":" in named:
        make = user_code.load(named, "--model")
        if any(one.default is one.empty for one in inspect.signature(make).parameters.values()):
            do = "write a function without arguments that returns the compiled model: def make_model(): ..."
            raise InfeedError("the function has required arguments", where=named, do=do)
        model = make()
    else:
        do = "use a .keras file or a function: mine.py:make_model. A SavedModel has no training step"
        raise InfeedError("this is not a Keras model", where=named, do=do)
    if not isinstance(model, keras.Model):
        do = "return a compiled keras.Model"
        raise InfeedError(f"the function returned {type(model).__name__}", where=named, do=do)
    if not model.compiled:
        do = "compile it with the optimizer and loss, which are part of the training step"
        raise InfeedError("the model is not compiled", where=named, do=do)
    return model


def measure_step(model: keras.Model, batch: Any, named: str, label: str | None = None, seconds: float = 2.0) -> Ceiling:
    """Train on one batch for about `seconds`. This changes the weights.

    The batch is a tuple for Keras' `fit`, or a dict of features [batch, ...] that includes `label`. The model receives
    features by its input names. Raise InfeedError if a feature is missing, or the model cannot be trained on the
    batch.
    """
    given = _as_fit_takes_it(model, batch, named, label)
    try:
        strategy, meter = tf.distribute.get_strategy(), Meter()
        prepare(model, strategy, tf.nest.map_structure(tf.type_spec_from_value, given))
        rows = int(tf.shape(tf.nest.flatten(given)[-1])[0])
        return measure_ceiling(make_train_steps(model, strategy, meter), meter, strategy, given, rows, seconds=seconds)
    except Exception as error:  # user layers, losses and metrics may raise anything
        do = "check the loss and the inputs; --label names the label feature"
        raise InfeedError(f"the model cannot be trained on a batch: {_cause(error)}", where=named, do=do) from error


def _as_fit_takes_it(model: keras.Model, batch: Any, named: str, label: str | None) -> tuple[Any, ...]:
    if not isinstance(batch, Mapping):
        if label:
            do = "leave out the option: in a tuple, the label is the second element"
            raise InfeedError("the batches have no feature names", where="--label", do=do)
        return batch if isinstance(batch, tuple) else (batch,)
    if label is not None and label not in batch:
        do = f"use one of {', '.join(sorted(batch))}"
        raise InfeedError(f"the batches have no feature {label!r}", where="--label", do=do)
    features = {name: value for name, value in batch.items() if name != label}
    specs = {name: tf.type_spec_from_value(value) for name, value in features.items()}
    feed_by_name(model, inputs_of(model, specs, named))
    return (features,) if label is None else (features, batch[label])


def _cause(error: Exception) -> str:
    """Return the last line of a message that is not about nodes. Errors of graphs first list the nodes."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("[[")]
    return f"{type(error).__name__}: {said[-1] if said else 'no message'}"
