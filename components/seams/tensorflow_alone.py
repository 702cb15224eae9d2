"""TensorFlow without Keras, for workers that only run graphs: to import this module is to import TensorFlow.

TensorFlow loads Keras when it is imported, which takes a third of the time, and works where Keras is not installed.
This module hides Keras from TensorFlow. Afterwards `tf.keras` and `tensorflow.keras` load Keras at their first use.
"""

from __future__ import annotations

import importlib.util
import os
import sys

if "tensorflow" not in sys.modules and "keras" not in sys.modules and "TF_USE_LEGACY_KERAS" not in os.environ:
    sys.modules["keras"] = None  # type: ignore[assignment]  # Python takes it as not installed
    try:
        import tensorflow
    finally:
        del sys.modules["keras"]
    # TensorFlow lists such folders for `from tensorflow.keras import ...`, with None for one that is missing.
    keras = importlib.util.find_spec("keras")
    places = (keras.submodule_search_locations if keras else None) or ()
    folders = [os.path.join(place, "_tf_keras") for place in places]
    tensorflow.__path__ = [*folders, *filter(None, tensorflow.__path__)]
