import contextlib

import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    """A fitted model of Keras 3, with variables that are trained and such that are not."""
    import keras

    keras.utils.set_random_seed(0)
    x = keras.Input([3], name="x")
    hidden = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(keras.layers.Dense(4)(x)))
    model = keras.Model(x, keras.layers.Dense(1)(hidden))
    model.compile("adam", "mse")
    draw = np.random.default_rng(0)
    model.fit(draw.normal(size=(32, 3)), draw.normal(size=32), verbose=0)
    return model


def save(model, folder, context):
    """As TFX's examples save their models."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def answer(x):
        return {"outputs": model(x)}

    with context:
        tf.saved_model.save(model, str(folder), signatures={"serving_default": answer})
    return folder


@pytest.mark.parametrize("loader", ["by_python", "by_session", "by_cpp"])
def test_every_loader_answers_as_the_model_in_memory(model, saved_models, tmp_path, loader):
    from infeed.components.trainer.session_export import loadable_by_sessions

    folder = save(model, tmp_path / "model", loadable_by_sessions())
    x = np.ones((2, 3), np.float32)
    served = getattr(saved_models, loader)(folder)["serving_default"](x=x)
    np.testing.assert_allclose(served["outputs"], model(x), atol=1e-5)


def test_what_keras_has_of_its_own_is_put_back(monkeypatch):
    import keras

    from infeed.components.trainer.session_export import loadable_by_sessions

    before = vars(keras.Variable).copy()
    with loadable_by_sessions():
        (name,) = [name for name, value in vars(keras.Variable).items() if before.get(name) is not value]
    assert name not in vars(keras.Variable)
    monkeypatch.setattr(keras.Variable, name, own := object())
    with loadable_by_sessions():
        assert getattr(keras.Variable, name) is not own
    assert vars(keras.Variable)[name] is own


def test_keras_itself_still_saves_what_no_session_can_load(model, saved_models, tmp_path):
    """The day that this fails, `loadable_by_sessions` can go."""
    signatures = saved_models.by_cpp(save(model, tmp_path / "model", contextlib.nullcontext()))
    with pytest.raises(RuntimeError, match="Could not find variable"):
        signatures["serving_default"](x=np.ones((2, 3), np.float32))
