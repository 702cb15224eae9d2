from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

BOUNDARIES = {"a": [-1.0, 0.0, 1.0, 4.0], "b": [0.0, 2.0], "gone": [0.0, 1.0]}
A = np.array([[-5.0], [-0.5], [0.0], [2.5], [9.0]], np.float32)


def test_a_number_is_encoded_by_where_it_lies_between_its_boundaries() -> None:
    import keras
    import tensorflow as tf

    from infeed.components import ModelSpec
    from infeed.templates.tabular.model import build_model

    inputs = {"a": tf.TensorSpec([1], tf.float32), "b": tf.TensorSpec([1], tf.float32)}
    model = build_model(ModelSpec(inputs, "regression", (), {}, {"boundaries": BOUNDARIES}))
    [encoding] = [layer for layer in model.layers if isinstance(layer, keras.layers.EinsumDense)]
    places = keras.Model(model.inputs, encoding.input).predict([{"a": A, "b": A / 2}], verbose=0)
    of_a = [[0, 0, 0], [0.5, 0, 0], [1, 0, 0], [1, 1, 0.5], [1, 1, 1]]
    np.testing.assert_allclose(places[:, 0], of_a)
    np.testing.assert_allclose(places[:, 1], [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0.625, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize("steps", [0, 100])  # 0: unknown, as before a run
def test_the_learning_rate_falls_to_0_over_the_planned_steps(steps: int) -> None:
    import tensorflow as tf

    from infeed.components import ModelSpec
    from infeed.templates.tabular.model import build_model

    spec = ModelSpec({"a": tf.TensorSpec([1], tf.float32)}, "regression", (), {}, {"learning_rate": 0.5}, steps)
    optimizer = build_model(spec).optimizer
    assert float(optimizer.learning_rate) == pytest.approx(0.5)
    optimizer.iterations.assign(100)
    assert float(optimizer.learning_rate) == pytest.approx(0.0 if steps else 0.5)
