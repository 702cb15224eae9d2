"""Every kind of output, read through what the model was compiled for."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.base.errors import InfeedError
from infeed.components.trainer.model import Head, OutputSpec, check_output, takes_logits

pytestmark = pytest.mark.slow  # TensorFlow and Keras take seconds to load

TWO = ("no", "yes")


def read(output, **head):
    made = Head(**{"task": "classification", "logits": False, "classes": TWO, **head}).predictions(tf.constant(output))
    return {name: value.numpy().tolist() for name, value in made.items()}


def test_one_probability_tells_two_classes_by_the_threshold():
    assert read([[0.25], [0.75]]) == {"probabilities": [[0.75, 0.25], [0.25, 0.75]], "class": [[b"no"], [b"yes"]]}
    assert read([[0.25], [0.75]], threshold=0.2)["class"] == [[b"yes"], [b"yes"]]


def test_an_output_without_a_second_dimension_is_read_the_same():
    assert read([0.25, 0.75]) == read([[0.25], [0.75]])


def test_classes_without_names_are_numbers():
    assert read([[0.25], [0.75]], classes=())["class"] == [[0], [1]]
    assert read([[0.2, 0.3, 0.5]], classes=())["class"] == [[2]]


def test_logits_become_probabilities():
    logits = [[-1.0, 2.0]]
    assert np.allclose(read(logits, logits=True)["probabilities"], tf.nn.softmax(logits))
    assert np.allclose(read([[2.0]], logits=True)["probabilities"][0][1], tf.sigmoid(2.0))


def test_several_numbers_of_unknown_meaning_are_scores_and_the_highest_is_the_class():
    assert read([[3.0, -1.0]], logits=None) == {"scores": [[3.0, -1.0]], "class": [[b"no"]]}


def test_one_number_of_unknown_meaning_is_no_class():
    assert read([[3.0], [-1.0]], logits=None) == {"prediction": [3.0, -1.0]}


def test_a_regression_is_a_number_or_as_many_as_the_model_gives():
    assert read([[3.0], [4.0]], task="regression", classes=()) == {"prediction": [3.0, 4.0]}
    assert read([[3.0, 4.0]], task="regression", classes=()) == {"prediction": [[3.0, 4.0]]}


def test_half_precision_is_answered_in_float32():
    made = Head("classification", False, TWO).predictions(tf.constant([[0.25, 0.75]], tf.bfloat16))
    assert made["probabilities"].dtype == tf.float32


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
@pytest.mark.parametrize("loss", [True, None])
def test_what_keras_activations_made_is_a_probability_whatever_the_loss_says(activation, loss):
    # Keras' own losses correct a wrong `from_logits` by the mark that this leans on, `_keras_logits`.
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2, activation=activation, dtype="mixed_bfloat16")])
    features = tf.constant([[1.0, 2.0]])
    made = tf.function(lambda x: Head("classification", loss, TWO).predictions(model(x, training=False)))(features)
    assert np.allclose(made["probabilities"], tf.cast(model(features), tf.float32), atol=1e-2)


@pytest.mark.parametrize(
    ("loss", "logits"),
    [
        ("binary_crossentropy", False),
        ("BinaryCrossentropy", False),
        ("sparse_categorical_crossentropy", False),
        (keras.losses.categorical_crossentropy, False),
        (keras.losses.SparseCategoricalCrossentropy(), False),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), True),
        (keras.losses.BinaryFocalCrossentropy(from_logits=True), True),
        (functools.partial(keras.losses.binary_crossentropy, from_logits=True), True),
        (functools.partial(keras.losses.binary_crossentropy, label_smoothing=0.1), False),
        ([keras.losses.BinaryCrossentropy(from_logits=True)], True),
        ({"out": "binary_crossentropy"}, False),
        ("mse", None),
        (keras.losses.Hinge(), None),
        (lambda y, p: p, None),
        (None, None),
    ],
)
def test_whether_a_loss_takes_logits(loss, logits):
    assert takes_logits(loss) is logits


def output(*shape):
    return keras.KerasTensor(shape, "float32")


@pytest.mark.parametrize(
    ("made", "loss", "classes"),
    [
        (output(None, 2), "sparse_categorical_crossentropy", TWO),
        (output(None, 1), "binary_crossentropy", TWO),
        (output(None, 7), "mse", ()),  # nobody named the classes: nothing to compare with
        ({"out": output(None, 3)}, "sparse_categorical_crossentropy", ("a", "b", "c")),
    ],
)
def test_outputs_that_fit(made, loss, classes):
    check_output(made, loss, OutputSpec("classification", classes), "model.py:build")


@pytest.mark.parametrize(
    ("made", "loss", "classes", "error"),
    [
        (output(None, 4), "mse", TWO, r"4 outputs per example, but there are 2 classes\n(.|\n)*model\.py:build"),
        (
            output(None, 1),
            "binary_crossentropy",
            ("a", "b", "c"),
            r"1 output per example(.|\n)* 3 classes",
        ),
        (output(None, 1), "sparse_categorical_crossentropy", TWO, r"its loss is sparse_cat(.|\n)*one sigmoid with"),
        ([output(None, 2), output(None, 2)], "mse", TWO, r"the model has 2 outputs(.|\n)*label="),
    ],
)
def test_outputs_that_cannot_tell_the_classes(made, loss, classes, error):
    with pytest.raises(InfeedError, match=error):
        check_output(made, loss, OutputSpec("classification", classes), "model.py:build")
