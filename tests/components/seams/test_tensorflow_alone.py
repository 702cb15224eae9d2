"""TensorFlow without Keras, in processes of its own: this one has long imported both."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.stack]

ALONE = "import sys, infeed.components.seams.tensorflow_alone; "
# Each in a fork of its own of one process, so that none finds what another has loaded.
FORKED = (
    ALONE
    + """
import os
for code in sys.argv[1:]:
    if not (child := os.fork()):
        exec(code)
        sys.stdout.flush()
        os._exit(0)
    assert not os.waitpid(child, 0)[1], code
"""
)


def said(*command: str, **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", *command], env={**plain, **environment}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_keras_is_not_loaded_before_it_is_used_and_its_modules_are_found_below_tensorflow() -> None:
    uses = "print('tensorflow' in sys.modules, 'keras' in sys.modules); import tensorflow as tf; "
    uses += "print(tf.keras.layers.Dense(2)(tf.ones([1, 3])).shape)"
    imports = "from tensorflow.keras.layers import Dense; print(Dense.__name__)"
    assert said(FORKED, uses, imports).splitlines() == ["True False", "(1, 2)", "Dense"]


def test_who_asks_for_keras_2_gets_tensorflow_as_it_is() -> None:
    assert said(ALONE + "print('tensorflow' in sys.modules)", TF_USE_LEGACY_KERAS="1") == "False"
