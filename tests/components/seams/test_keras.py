import contextlib

import numpy as np
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.stack]


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
    from infeed.components.seams.keras import loadable_by_sessions

    folder = save(model, tmp_path / "model", loadable_by_sessions())
    x = np.ones((2, 3), np.float32)
    served = getattr(saved_models, loader)(folder)["serving_default"](x=x)
    np.testing.assert_allclose(served["outputs"], model(x), atol=1e-5)


def test_what_keras_has_of_its_own_is_put_back(monkeypatch):
    import keras

    from infeed.components.seams.keras import loadable_by_sessions

    before = vars(keras.Variable).copy()
    with loadable_by_sessions():
        (name,) = [name for name, value in vars(keras.Variable).items() if before.get(name) is not value]
    assert name not in vars(keras.Variable)

    def own(self, object_map, tensor_map, options, **kwargs):
        raise AssertionError

    monkeypatch.setattr(keras.Variable, name, own)
    with loadable_by_sessions():
        assert getattr(keras.Variable, name) is not own
    assert vars(keras.Variable)[name] is own


def test_keras_itself_still_saves_what_no_session_can_load(model, saved_models, tmp_path):
    """The day that this fails, `loadable_by_sessions` can go."""
    signatures = saved_models.by_cpp(save(model, tmp_path / "model", contextlib.nullcontext()))
    with pytest.raises(RuntimeError, match="Could not find variable"):
        signatures["serving_default"](x=np.ones((2, 3), np.float32))


def test_without_the_hook_keras_saves_as_ever_and_the_log_says_so(take_away, caplog):
    import keras

    from infeed.components.seams.keras import loadable_by_sessions

    before = vars(keras.Variable).copy()
    take_away("keras.SESSIONS")
    with loadable_by_sessions():
        assert vars(keras.Variable) == before
    assert "use model.export" in caplog.text


def test_only_sigmoid_and_softmax_mark_their_output():
    import keras
    import tensorflow as tf

    from infeed.components.seams.keras import is_activated

    x = tf.ones([1, 2])
    assert [is_activated(one(x)) for one in (keras.ops.sigmoid, keras.ops.softmax)] == [True, True]
    assert not is_activated(keras.ops.tanh(x))


def test_the_warning_of_data_that_ends_is_hidden_and_others_are_not():
    import warnings

    import keras
    import tensorflow as tf

    from infeed.components.seams.keras import without_end_warning

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    batch = tf.data.Dataset.from_tensors((np.ones([1, 1]), np.ones([1])))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(batch, steps_per_epoch=2, verbose=0)
        assert any("ran out of data" in str(one.message) for one in seen)
        seen.clear()
        with without_end_warning():
            model.fit(batch, steps_per_epoch=2, verbose=0)
            warnings.warn("another", stacklevel=1)
    told = [str(one.message) for one in seen]
    assert "another" in told
    assert not any("ran out of data" in one for one in told)
