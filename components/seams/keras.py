"""Keras 3 on TensorFlow: a `fit` that calls our step functions, and variables that sessions can load."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from infeed.components.seams.seam import Seam

_VERSIONS = ("3.12.4", "3.15.0")
STEPS = Seam(
    "keras",
    "a fit that runs our train and test steps",
    (
        "keras:Model._maybe_symbolic_build(iterator, data_batch)",
        "keras:Model._post_build()",
        "keras:Model._symbolic_build(iterator, data_batch)",
        "keras:Model.make_test_function(force)",
        "keras:Model.make_train_function(force)",
    ),
    _VERSIONS,
    "Keras' own fit trains, on one device and without checkpoints",
)
SESSIONS = Seam(
    "keras",
    "SavedModels of a user's own code that sessions can load",
    ("keras:Variable._export_to_saved_model_graph(object_map, tensor_map, options)",),
    _VERSIONS,
    "models that run_fn saves with tf.saved_model.save may fail in TensorFlow Serving and BulkInferrer; "
    "use model.export",
)
_EXPORT = "_export_to_saved_model_graph"  # a hook of TensorFlow's that Keras defines


def build_variables(model: Any, element_spec: Any) -> None:
    """Create the variables of model, metrics, loss and optimizer from the spec of a batch."""
    model._symbolic_build(data_batch=element_spec)


def build_by(model: Any, build: Callable[[Any, Callable[[Any], None]], None]) -> None:
    """Make Keras build the model by `build(batch, own)`, where `own` is Keras' function for a batch or its spec."""
    own = model._symbolic_build

    def symbolic_build(iterator: Any = None, data_batch: Any = None) -> None:
        build(data_batch, lambda batch: own(iterator, batch))

    model._symbolic_build = symbolic_build


def finish_build(model: Any) -> None:
    """Tell Keras that all variables of the model exist."""
    model._post_build()


def keep_first_batch(model: Any) -> None:
    """Prevent `fit` from building the model, because Keras would take a batch from the iterator and drop it."""
    model._maybe_symbolic_build = lambda iterator=None, data_batch=None: None


def run_steps_by(model: Any, train: Callable[[Any], Any], test: Callable[[Any], Any]) -> None:
    """Set the functions that `fit` calls for a step of training and of evaluation: iterator -> logs."""
    model.train_function, model.test_function = train, test


def is_activated(output: Any) -> bool:
    """Report whether an output comes from sigmoid or softmax.

    Keras marks these outputs, so that its losses can correct a wrong `from_logits`. Without the mark, the loss decides.
    """
    return hasattr(output, "_keras_logits")


@contextmanager
def without_end_warning() -> Iterator[None]:
    """Hide Keras' warning that the data ran out, which does not apply: Keras cannot count batches on devices."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        yield


@contextmanager
def loadable_by_sessions() -> Iterator[None]:
    """Save Keras variables so that sessions can load them, as TensorFlow Serving and BulkInferrer do.

    A Keras variable holds a TensorFlow variable, and `tf.saved_model.save` creates a second one for it. A session
    restores the second, but the signatures read the first, which stays empty: `Could not find variable dense/kernel`.
    Only TensorFlow 2's Python loader fills both (keras-team/keras#19274, tensorflow/serving#2226). This context saves
    each Keras variable as the TensorFlow variable that it holds. `model.export` and models of tf_keras need no context.
    """
    import keras  # as late as the user's module would

    if keras.backend.backend() != "tensorflow" or not SESSIONS.usable():
        yield
        return
    own = vars(keras.Variable).get(_EXPORT)  # None if the class inherits it
    setattr(keras.Variable, _EXPORT, _export_as_one)
    try:
        yield
    finally:
        if own is None:
            delattr(keras.Variable, _EXPORT)
        else:
            setattr(keras.Variable, _EXPORT, own)


def _export_as_one(variable: Any, object_map: Any, tensor_map: Any, options: Any, **kwargs: Any) -> list[Any]:
    resources: list[Any] = variable.value._export_to_saved_model_graph(object_map, tensor_map, options, **kwargs)
    object_map[variable] = object_map[variable.value]
    return resources
