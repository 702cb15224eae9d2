"""A training that ends in NaN exports nothing, and says when it was NaN and why."""

import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions, MapFunction

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

MODEL = """
import keras, tensorflow as tf

class Loss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        error = keras.losses.mean_squared_error(y_true, y_pred)
        return error if self.name == "finite" else error * float("nan")

def build(spec):
    x = keras.Input([1], name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(spec.hparams["rate"]), Loss(name=spec.hparams["loss"]))
    return model

class Spoil(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            self.model.set_weights([weight * float("nan") for weight in self.model.get_weights()])

def callbacks(spec):
    return {"none": [], "stop": [keras.callbacks.TerminateOnNaN()], "best": [Spoil()]}[spec.hparams["callbacks"]]

def spoil(features):
    return {**features, "x": features["x"] / 0.0}
"""


@pytest.fixture
def trained(table, train, tmp_path):
    """trained(loss, rate, callbacks, **options) trains a linear model of x on n."""
    (tmp_path / "linear.py").write_text(MODEL)

    def run(loss="finite", rate=0.01, callbacks="none", **options):
        options = {"label": "n", "task": "regression", "epochs": 4, **options}
        hparams = {"loss": loss, "rate": rate, "callbacks": callbacks}
        options["callbacks_fn"] = f"{tmp_path}/linear.py:callbacks"
        return train(table[0], "number", f"{tmp_path}/linear.py:build", hparams=hparams, **options)

    return run


@pytest.mark.parametrize("given", [{"loss": "nan"}, {"rate": 1e30}, {"loss": "nan", "callbacks": "stop"}])
def test_nothing_is_exported(given, trained, tmp_path):
    with pytest.raises(InfeedError, match=r"NaN from epoch 1 of") as raised:
        trained(**given)
    assert raised.value.where.endswith("linear.py:build")
    assert "learning rate" in raised.value.do
    assert not (tmp_path / "model").exists()
    assert not list((tmp_path / "run").rglob("checkpoint*/*"))


def test_features_with_values_that_are_not_finite_are_named(trained, tmp_path):
    spoil = MapFunction(f"{tmp_path}/linear.py:spoil", "tensorflow")
    with pytest.raises(InfeedError, match="NaN") as raised:
        trained(feed=FeedOptions(batch_size=16, map_batches=spoil))
    assert "infinite values in x:" in raised.value.do


def test_weights_of_an_earlier_epoch_are_exported_and_the_log_says_so(trained, tmp_path, caplog):
    trained(callbacks="best", patience=1)
    assert (tmp_path / "model" / "saved_model.pb").exists()
    assert "NaN from epoch 3" in caplog.text
