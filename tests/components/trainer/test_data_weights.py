import pytest
import tensorflow as tf

from infeed.components.errors import InfeedError
from infeed.components.feed.columns import load_columns
from infeed.components.feed.row_batches import RowBatches
from infeed.components.trainer.data import with_class_weights

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

BATCHES = tf.data.Dataset.from_tensors(({"x": [1.0, 2.0, 3.0]}, tf.constant([0, 2, 1], tf.int64)))


def test_an_example_weighs_what_its_class_does_and_else_one():
    features, label, weight = next(iter(with_class_weights(BATCHES, {"c": 5.0, "a": 0.5}, ["a", "b", "c"])))
    assert features["x"].numpy().tolist() == [1, 2, 3]
    assert label.numpy().tolist() == [0, 2, 1]
    assert weight.numpy().tolist() == [0.5, 5, 1]


def test_weights_that_examples_have_already_are_multiplied():
    own = BATCHES.map(lambda features, label: (features, label, tf.constant([1.0, 2.0, 3.0])))
    assert next(iter(with_class_weights(own, {"c": 5.0}, ["a", "b", "c"])))[2].numpy().tolist() == [1, 10, 3]


def test_a_step_that_gathers_its_rows_weighs_them():
    columns = load_columns(BATCHES)
    rows = with_class_weights(RowBatches(columns, lambda steps: None), {"c": 5.0}, ["a", "b", "c"])
    assert rows.take(tf.constant([2, 1], tf.int64))[2].numpy().tolist() == [1, 5]


def test_without_weights_the_dataset_is_left_alone():
    assert with_class_weights(BATCHES, {}, ["a"]) is BATCHES


def test_a_class_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InfeedError, match=r"there is no class 'd'(.|\n)*a, b, c"):
        with_class_weights(BATCHES, {"d": 2.0}, ["a", "b", "c"])
