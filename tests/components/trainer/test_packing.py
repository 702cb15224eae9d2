"""Packed features come back as they were."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.tfx, pytest.mark.slow]


def test_features_come_back_as_they_were() -> None:
    import tensorflow as tf

    from infeed.components.trainer.packing import FEWEST, Packing

    one = tf.io.FixedLenFeature([1], tf.float32)
    specs = {f"x{number}": one for number in range(FEWEST + 1)} | {
        "label": one,
        "word": tf.io.FixedLenFeature([1], tf.int64),
        "words": tf.io.VarLenFeature(tf.string),
    }
    packing = Packing.of(specs, apart=["label"])
    assert [len(names) for names in packing.packs.values()] == [FEWEST + 1]
    features = {name: tf.fill([5, 1], float(number)) for number, name in enumerate(specs) if name != "words"}
    packed = packing.pack(features)
    assert len(packed) == 3  # one of all numbers, the label and the word
    found = packing.unpack(packed)
    assert found.keys() == features.keys()
    for name, tensor in features.items():
        np.testing.assert_array_equal(found[name], tensor, name)
    for name, array in packing.unpack({name: tensor.numpy() for name, tensor in packed.items()}).items():
        np.testing.assert_array_equal(array, features[name], name)  # arrays of NumPy and JAX too
    unpacked = packing.unpack({name: tf.TensorSpec.from_tensor(tensor) for name, tensor in packed.items()})
    assert unpacked == {name: tf.TensorSpec.from_tensor(tensor) for name, tensor in features.items()}


def test_few_features_stay_as_they_are() -> None:
    import tensorflow as tf

    from infeed.components.trainer.packing import FEWEST, Packing

    spec = tf.io.FixedLenFeature([1], tf.float32)
    assert Packing.of({f"x{number}": spec for number in range(FEWEST - 1)}).packs == {}
