"""Import TensorFlow without Keras, for workers that only run graphs.

Importing TensorFlow imports Keras too, which takes a third of the time. TensorFlow also works without Keras, so this
module hides Keras during the import. Afterwards `tf.keras` and `tensorflow.keras` load Keras at their first use.
"""

from __future__ import annotations

import importlib.util
import os
import sys

if "tensorflow" not in sys.modules and "keras" not in sys.modules and "TF_USE_LEGACY_KERAS" not in os.environ:
    sys.modules["keras"] = None  # type: ignore[assignment]  # makes `import keras` raise ImportError
    try:
        import tensorflow
    finally:
        del sys.modules["keras"]
    # `from tensorflow.keras import ...` looks in these folders. TensorFlow has added None in place of the hidden Keras.
    keras = importlib.util.find_spec("keras")
    places = (keras.submodule_search_locations if keras else None) or ()
    folders = [os.path.join(place, "_tf_keras") for place in places]
    tensorflow.__path__ = [*folders, *filter(None, tensorflow.__path__)]
