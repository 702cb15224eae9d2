import keras
import pytest

from infeed.components.errors import InfeedError
from infeed.components.trainer.model import ModelSpec, build_model
from infeed.components.trainer.options import TrainOptions

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


def test_one_sigmoid_for_two_classes_is_refused(tmp_path):
    body = [
        "model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1, activation='sigmoid')])",
        "model.compile('sgd', 'binary_crossentropy')",
        "return model",
    ]
    spec = ModelSpec({}, "classification", ("no", "yes"), {}, {})
    with pytest.raises(InfeedError, match=r"gives 1 numbers an example, and there are 2 classes"):
        build_model(options(tmp_path, body), spec)


def test_something_other_than_a_keras_model_is_refused(tmp_path):
    with pytest.raises(InfeedError, match=r"returned builtins\.int, not a keras\.Model"):
        build_model(options(tmp_path, ["return 3"]), SPEC)
