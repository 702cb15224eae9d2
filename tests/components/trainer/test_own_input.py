"""Inputs of the older world, each feeding a whole training, by the very examples that `docs/inputs.md` shows."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError

pytestmark = pytest.mark.tfx

PAGE = Path(__file__).parents[3] / "docs" / "inputs.md"
EXAMPLES = {
    title: code.replace("400", "4")
    for title, code in re.findall(
        r"^## (.+?)\n(?:(?!^## ).*\n)*?```python\n((?:.*\n)*?)```", PAGE.read_text(), re.MULTILINE
    )
}

# What the page's functions call; the model is the table's: x and z in, the class of x out.
HELPERS = """
import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from infeed.components import Input

def read_batch(seed, rows):
    x = np.random.default_rng(seed).normal(size=[rows, 1]).astype(np.float32)
    return {"x": x, "z": np.zeros_like(x)}, (x[:, 0] < 0).astype(np.int64)

def one_batch(rows):
    return read_batch(0, rows)

def my_dataset(spec):
    return tf.data.Dataset.from_tensor_slices(one_batch(64)).batch(spec.batch_size, drop_remainder=True)

def my_input_fn(files, output, size):
    layer = output.transform_features_layer()
    def transformed(records):
        features = layer(tf.io.parse_example(records, output.raw_feature_spec()))
        label = features.pop("kind")
        return features, tf.reshape(label, [-1])
    return tf.data.TFRecordDataset(tf.io.gfile.glob(files), "GZIP").batch(size, drop_remainder=True).map(transformed)

def batch_number(number, size):
    x = tf.random.stateless_normal([size, 1], tf.stack([7, number]))
    return {"x": x, "z": tf.zeros_like(x)}, tf.cast(x[:, 0] < 0, tf.int64)

def shuffled(spec):
    return tf.data.Dataset.from_tensor_slices(one_batch(64)).shuffle(64, seed=spec.seed).batch(16, drop_remainder=True)

def weighted(spec):
    features, label = one_batch(64)
    weight = np.ones(64, np.float32)
    return tf.data.Dataset.from_tensor_slices((features, label, weight)).batch(16, drop_remainder=True)

def endless(spec):
    return tf.data.Dataset.from_tensors(one_batch(spec.batch_size)).repeat()

def short(spec):
    return tf.data.Dataset.from_tensor_slices(one_batch(60)).batch(16)

def only_x(spec):
    features, label = one_batch(64)
    return tf.data.Dataset.from_tensor_slices(({"x": features["x"]}, label)).batch(16, drop_remainder=True)

def misnamed(spec):
    features, label = one_batch(64)
    return tf.data.Dataset.from_tensor_slices(({"w": features["x"]}, label)).batch(16)

def wide(spec):
    features, label = one_batch(64)
    return tf.data.Dataset.from_tensor_slices(({**features, "x": features["x"].astype(float)}, label)).batch(16)

def number(spec):
    return 3

"""

READER = """
import numpy as np

def generate(size):
    for number in range(4):
        x = np.random.default_rng(number).normal(size=[size, 1]).astype(np.float32)
        yield {"x": x, "z": np.zeros_like(x)}, (x[:, 0] < 0).astype(np.int64)
"""


@pytest.fixture
def inputs(tmp_path):
    """inputs("Tensors") -> "inputs.py:batches" with the page's example; inputs("short") -> a function of the above."""
    (tmp_path / "reader.py").write_text(READER)
    file = tmp_path / "inputs.py"

    def write(name):
        example = EXAMPLES.get(name, "").replace('"reader.py:', f'"{tmp_path}/reader.py:')
        file.write_text(HELPERS + example)
        return f"{file}:batches" if example else f"{file}:{name}"

    return write


@pytest.fixture
def fed(table, train, inputs):
    """fed("Tensors", **options) -> the folder of a training that this input fed."""

    def run(name, **options):
        return train(table[0], "class", "table", input_fn=inputs(name), **{"label": "kind", "epochs": 2, **options})

    return run


@pytest.mark.parametrize(
    "name",
    [
        "A Python generator",
        "A generator in another process",
        "A dataset",
        pytest.param("Tensors", marks=pytest.mark.image),
        pytest.param("A batch for a number", marks=pytest.mark.image),
        "A reader in another process or on another host",
        "weighted",
    ],
)
def test_every_kind_of_input_feeds_the_same_training_and_the_same_report(fed, name):
    place = fed(name)
    profile = json.loads((place / "run" / "input_profile.json").read_text())
    assert [epoch["steps"] for epoch in profile["epochs"]] == [4, 4]
    assert all(epoch["wait_seconds"] > 0 for epoch in profile["epochs"])
    assert profile["plan"]["tier"] == "input_fn"
    assert (place / "model" / "saved_model.pb").exists()


def made(table, function, *, training):
    from infeed.components.feed.options import FeedOptions
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.options import TrainOptions
    from infeed.components.trainer.own_input import make_input

    folder, split = table[0], "train" if training else "eval"
    options = TrainOptions("m:f", "kind", feed=FeedOptions(batch_size=16), input_fn=function)
    graph = TransformGraph(str(folder / "class" / "graph"), "kind")
    return make_input([f"{folder}/Split-{split}/*"], graph, options, training=training)


def assert_same(ours, theirs):
    for (features, label), (other_features, other_label) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(label, other_label)
        for name, value in features.items():
            np.testing.assert_array_equal(value, other_features[name], err_msg=name)


def test_a_users_own_tfx_pipeline_evaluates_on_the_batches_of_the_feed(table, inputs):
    own, ours = (made(table, function, training=False).dataset() for function in (inputs("A dataset"), None))
    assert_same(own, ours)


@pytest.mark.parametrize("name", ["A Python generator", "shuffled", "A batch for a number"])
def test_a_resumed_training_is_given_the_batches_that_come_next(table, inputs, name):
    first, second = (made(table, inputs(name), training=True) for _ in range(2))  # as two processes would
    assert first.plan.steps_per_epoch == 4
    assert_same(second.dataset(start_step=6).take(5), first.dataset().skip(6).take(5))


def test_a_function_may_give_what_the_model_takes_alone(table, train, inputs, example):
    import tensorflow as tf

    place = train(table[0], "class", "only_x", input_fn=inputs("only_x"), label="kind", epochs=1)
    answer = tf.saved_model.load(str(place / "model")).signatures["serving_default"]
    told = answer(examples=tf.constant([example({"x": 5.0})]))
    assert told["class"].numpy()[0, 0] in (b"big", b"small")
    with pytest.raises(InfeedError, match=r"model expects 'x', 'z', but there is no feature 'z'(.|\n)*features, x"):
        train(table[0], "class", "table_of_xz", input_fn=inputs("only_x"), label="kind", epochs=1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("endless", "steps_per_epoch"),
        ("misnamed", r"feature 'w'(.|\n)*x, z"),
        ("wide", r"'x' is float64(.|\n)*float32"),
        ("number", r"the function returned a int(.|\n)*tf.data.Dataset of batches"),
        ("absent", r"defines no function 'absent'"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_the_first_step(fed, function, message):
    with pytest.raises(InfeedError, match=message):
        fed(function)


def test_an_endless_input_may_be_trained_on_for_a_number_of_steps_but_not_evaluated_on(fed):
    with pytest.raises(InfeedError, match="endless"):
        fed("endless", steps=5)


def test_a_short_batch_stops_training_with_the_reason(fed):
    import tensorflow as tf

    with pytest.raises(tf.errors.InvalidArgumentError, match="batches of 16 examples"):
        fed("short")


def test_several_workers_are_told_where_evaluation_might_differ_in_length(monkeypatch):
    import tensorflow as tf

    from infeed.components.feed.inputs import InputSpec
    from infeed.components.feed.options import WorkerContext
    from infeed.components.trainer import own_input

    unknown = tf.data.Dataset.range(4).filter(lambda n: n > 1).map(lambda n: ({"n": n}, n))
    monkeypatch.setattr(own_input.user_code, "load", lambda *name: lambda spec: unknown)
    features, label = unknown.element_spec
    spec = InputSpec((), "", False, 8, WorkerContext(0, 2), 0, {}, (features, label))
    with pytest.raises(InfeedError, match="2 workers"):
        own_input.call_input_fn("m:f", spec)


def test_workers_that_would_wait_for_each_other_are_told_their_numbers_of_batches():
    from infeed.components.trainer.own_input import check_same_length

    check_same_length([4, 4], "training", "m:f")
    with pytest.raises(InfeedError, match="training batches: 4, 5"):
        check_same_length([4, 5], "training", "m:f")
