import keras
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.model import ModelSpec, build_model, make_model, outputs_of
from infeed.components.trainer.options import TrainOptions

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow and Keras take seconds to load

SPEC = ModelSpec({}, "regression", (), {}, {"units": 3})


def options(tmp_path, body):
    file = tmp_path / "model.py"
    file.write_text("import keras\n\n\ndef build(spec):\n" + "\n".join(f"    {line}" for line in body))
    return TrainOptions(model_fn=f"{file}:build", label="y")


def test_the_function_is_given_the_spec_and_its_model_is_returned(tmp_path):
    body = [
        "model = keras.Sequential([keras.Input([2]), keras.layers.Dense(spec.hparams['units'])])",
        "model.compile('sgd', 'mse')",
        "return model",
    ]
    model = build_model(options(tmp_path, body), SPEC)
    assert isinstance(model, keras.Model)
    assert model.output_shape == (None, 3)


def test_a_model_that_is_not_compiled_is_refused(tmp_path):
    with pytest.raises(InfeedError, match=r"the model is not compiled(.|\n)*model\.py:build(.|\n)*model\.compile"):
        build_model(options(tmp_path, ["return keras.Sequential([keras.Input([2])])"]), SPEC)


def test_the_models_output_is_held_against_the_classes(tmp_path):
    body = [
        "model = keras.Sequential([keras.Input([2], name='x'), keras.layers.Dense(3, activation='softmax')])",
        "model.compile('sgd', 'sparse_categorical_crossentropy')",
        "return model",
    ]
    spec, features = ModelSpec({}, "classification", ("no", "yes"), {}, {}), {"x": tf.TensorSpec([None, 2], tf.float32)}
    with pytest.raises(InfeedError, match=r"3 outputs per example, but there are 2 classes(.|\n)*model\.py:build"):
        make_model(options(tmp_path, body), spec, features)


def test_a_model_of_tf_keras_is_refused_by_name(tmp_path):
    body = ["import tf_keras", "return tf_keras.Sequential([tf_keras.layers.Dense(1)])"]
    told = r"returned tf_keras\.\S*, not a keras\.Model(.|\n)*models of tf_keras are not supported"
    with pytest.raises(InfeedError, match=told):
        build_model(options(tmp_path, body), SPEC)


def test_something_other_than_a_keras_model_is_refused(tmp_path):
    with pytest.raises(InfeedError, match=r"returned builtins\.int, not a keras\.Model"):
        build_model(options(tmp_path, ["return 3"]), SPEC)


def test_a_single_output_of_a_label_by_name_is_in_a_dict():
    x = keras.Input([2], name="x")
    y = keras.layers.Dense(1, name="sold")(x)
    assert outputs_of({"sold": y}, keras.Model(x, {"sold": y}), ["sold"])["sold"] is y
    for output in (y, [y]):
        with pytest.raises(InfeedError, match="the labels are sold") as raised:
            outputs_of(output, keras.Model(x, output), ["sold"])
        assert "{'sold': ...}" in raised.value.do
