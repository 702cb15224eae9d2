from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load


def test_a_text_is_the_mean_of_its_words_however_far_it_is_filled_up() -> None:
    import keras
    import tensorflow as tf

    from infeed.components import ModelSpec
    from infeed.templates.text.model import build_model

    keras.utils.set_random_seed(7)
    inputs = {"review": tf.TensorSpec([6], tf.int64)}
    model = build_model(ModelSpec(inputs, "classification", ("bad", "good"), {"review": 5}, {"width": 3}))
    words, filled_up, twice, none = np.array([[1, 2, 0, 0, 0, 0], [0, 1, 0, 0, 0, 2], [1, 2, 1, 2, 0, 0], [0] * 6])
    found = model.predict([{"review": np.stack([words, filled_up, twice, none])}], verbose=0)
    np.testing.assert_allclose(found[1:3], found[[0, 0]], rtol=1e-5)
    np.testing.assert_allclose(found[3], [0.5, 0.5], rtol=1e-5)  # of nothing but the offset, which begins at 0
