"""TensorFlow without Keras, in processes of its own: this one has long imported both."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ALONE = "import sys, infeed.components.seams.tensorflow_alone; "


def said(code: str, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**plain, **environment}, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_keras_is_not_loaded_before_it_is_used() -> None:
    code = "print('tensorflow' in sys.modules, 'keras' in sys.modules); import tensorflow as tf; "
    code += "print(tf.keras.layers.Dense(2)(tf.ones([1, 3])).shape)"
    assert said(ALONE + code).splitlines() == ["True False", "(1, 2)"]


def test_modules_of_keras_are_found_below_tensorflow() -> None:
    assert said(ALONE + "from tensorflow.keras.layers import Dense; print(Dense.__name__)") == "Dense"


def test_who_asks_for_keras_2_gets_tensorflow_as_it_is() -> None:
    assert said(ALONE + "print('tensorflow' in sys.modules)", TF_USE_LEGACY_KERAS="1") == "False"
