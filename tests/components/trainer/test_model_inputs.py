"""A model gets the features that it names, in whatever form it wants them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.model_inputs import feed_by_name, inputs_of, symbolic_output

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow and Keras take seconds to load

SPECS = {name: tf.TensorSpec([None, 1], tf.float32) for name in "abc"}
BATCH = {name: tf.fill([4, 1], float(value)) for value, name in enumerate("abc")}  # a is 0, b is 1, c is 2


def joined(*inputs):
    return keras.layers.Concatenate()(inputs) if len(inputs) > 1 else keras.layers.Rescaling(1.0)(*inputs)


def named(*names):
    return [keras.Input([1], name=name) for name in names]


class Subclassed(keras.Model):
    def call(self, features):
        return keras.ops.concatenate([features["c"], features["b"]], axis=-1)


class OfOneTensor(keras.Model):
    def call(self, tensor):
        return keras.ops.concatenate([tensor, 2 * tensor], axis=-1)


def of_a_dict():
    b, c = named("b", "c")
    return keras.Model({"b": b, "c": c}, joined(c, b))


def of_a_list():
    c, b = named("c", "b")
    return keras.Model([c, b], joined(c, b))


def of_one():
    (c,) = named("c")
    return keras.Model(c, joined(c))


def nested():
    a, c = named("a", "c")
    return keras.Model([a, {"c": c}], joined(c, a))


def sequential():
    return keras.Sequential([keras.Input([1], name="c"), keras.layers.Rescaling(1.0)])


MODELS = [
    (of_a_dict, [2.0, 1.0], ("a",)),
    (of_a_list, [2.0, 1.0], ("a",)),
    (of_one, [2.0], ("a", "b")),
    (nested, [2.0, 0.0], ("b",)),
    (sequential, [2.0], ("a", "b")),
    (Subclassed, [2.0, 1.0], ()),  # what Python code leaves unused nobody knows
]


@pytest.mark.parametrize(("make", "given", "unused"), MODELS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_model_gets_what_it_names(make, given, unused):
    model = make()
    inputs = inputs_of(model, SPECS, "model.py:build")
    assert model(inputs(BATCH)).numpy()[0].tolist() == given
    assert inputs.unused == unused
    assert symbolic_output(model, inputs, SPECS).shape == (None, len(given))


@pytest.mark.parametrize(("make", "given", "unused"), MODELS, ids=lambda one: getattr(one, "__name__", ""))
def test_keras_own_training_evaluation_and_prediction_pick_too(make, given, unused):
    model = make()
    model.compile("sgd", "mse", metrics=["mse"])
    feed_by_name(model, inputs_of(model, SPECS, "model.py:build"))
    answer = np.tile(given, [4, 1]).astype("float32")
    dataset = tf.data.Dataset.from_tensors((BATCH, answer))
    assert model.fit(dataset, verbose=0).history["loss"] == [0.0]
    assert model.evaluate(dataset, verbose=0)[0] == 0.0
    assert model.predict(dataset, verbose=0).tolist() == answer.tolist()


@pytest.mark.parametrize("make", [OfOneTensor, lambda: keras.Sequential([OfOneTensor()])], ids=["subclass", "unbuilt"])
def test_an_only_feature_goes_as_a_tensor_to_a_model_that_wants_one(make):
    model, specs = make(), {"b": SPECS["b"]}
    inputs = inputs_of(model, specs, "model.py:build")
    assert model(inputs({"b": BATCH["b"]})).numpy()[0].tolist() == [1.0, 2.0]


def test_an_input_without_a_name_takes_an_only_feature():
    tensor = keras.Input([1])
    model = keras.Model(tensor, joined(tensor))
    assert inputs_of(model, {"b": SPECS["b"]}, "").structure == "b"
    with pytest.raises(
        InfeedError, match=r"there is no feature 'keras_tensor(.|\n)*the features, a, b, c(.|\n)*keras\.Input\("
    ):
        inputs_of(model, SPECS, "model.py:build")


@pytest.mark.parametrize("make", [of_a_dict, of_a_list, nested, of_one, sequential, Subclassed])
def test_a_feature_that_is_not_there_is_told_with_both_lists(make):
    specs = {name: SPECS[name] for name in "ab"}
    with pytest.raises(InfeedError, match=r"model expects .*'c'.* no feature 'c'\n(.|\n)*build\n.*features, a, b, or"):
        inputs_of(make(), specs, "model.py:build")


def test_a_model_that_cannot_be_called_is_told_in_its_own_words():
    class Broken(keras.Model):
        def call(self, features):
            raise ValueError("no way")

    with pytest.raises(InfeedError, match=r"ValueError: no way\n(.|\n)*model\.py:build(.|\n)*a dict of a, b, c"):
        inputs_of(Broken(), SPECS, "model.py:build")


def test_sparse_and_ragged_features_are_handed_over_as_they_are():
    class Lists(keras.Model):
        def call(self, features):
            return tf.sparse.to_dense(features["s"])

    model = Lists()
    inputs = inputs_of(model, {"s": tf.SparseTensorSpec([None, 3], tf.float32)}, "model.py:build")
    assert inputs.structure is None


def test_a_model_that_asks_for_the_rows_of_a_ragged_feature_is_built_on_one():
    class Means(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = keras.layers.Dense(3)

        def call(self, features):
            return self.head(tf.cast(features["r"].row_lengths(), tf.float32)[:, tf.newaxis])

    model, specs = Means(), {"r": tf.RaggedTensorSpec([8, None], tf.int64)}
    model.compile("adam", "mse", metrics=["mae"])
    inputs = inputs_of(model, specs, "model.py:build_model")
    assert symbolic_output(model, inputs, specs).shape == (8, 3)
    feed_by_name(model, inputs)
    model._symbolic_build(data_batch=(specs, tf.TensorSpec([8, 3], tf.float32)))
    assert model.optimizer.built
    batch = {"r": tf.ragged.constant([[1, 2], []] * 4, tf.int64)}
    assert model(batch).shape == (8, 3)
    assert {"loss", "mae"} <= model.get_metrics_result().keys()
