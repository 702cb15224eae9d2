"""SavedModels of Keras 3 that sessions can load: those of TensorFlow Serving and of BulkInferrer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EXPORT = "_export_to_saved_model_graph"  # a hook of TensorFlow's that Keras defines


@contextmanager
def loadable_by_sessions() -> Iterator[None]:
    """Inside, what a user's own code saves of Keras 3 can be loaded by sessions: TensorFlow Serving's, BulkInferrer's.

    In `tf.saved_model.save` a Keras variable makes a second one beside the TensorFlow variable that it holds. A session
    restores the second; the signatures read the first, which nobody fills: `Could not find variable dense/kernel`. Only
    TensorFlow 2's Python loader fills both (keras-team/keras#19274, tensorflow/serving#2226). So a Keras variable is
    saved here as the one that it holds. Keras' own `model.export` goes another way, and models of tf_keras are not
    concerned.
    """
    import keras  # as late as the user's module would

    if not hasattr(keras.Variable, _EXPORT):  # another backend than TensorFlow
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
