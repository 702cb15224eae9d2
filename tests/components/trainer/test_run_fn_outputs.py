"""A model of several outputs is trained on several labels, and each output is served by its name."""

import functools

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.feed.options import FeedOptions
from infeed.components.trainer.options import Output, TrainOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

ROWS = 96
LABELS = {"price": Output("regression", "euros"), "sold": Output(), "colors": Output("multilabel", threshold=0.4)}

MODELS = """
import keras

def _body(spec):
    x = keras.Input([1], name="x")
    hidden = keras.layers.Dense(8, activation="relu")(x)
    heads = {}
    for name, label in spec.outputs.items():
        if label.task == "regression":
            heads[name] = keras.layers.Dense(1, name=name)(hidden)
        elif label.task == "classification":
            heads[name] = keras.layers.Dense(len(label.classes), name=name)(hidden)  # logits
        else:
            heads[name] = keras.layers.Dense(len(label.classes), "sigmoid", name=name)(hidden)
    return {"x": x}, heads

LOSSES = {
    "price": "mse",
    "sold": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "colors": "binary_crossentropy",
}

def by_name(spec):
    assert (spec.task, spec.classes) == ("", ())
    inputs, heads = _body(spec)
    model = keras.Model(inputs, heads)
    model.compile(keras.optimizers.Adam(0.01), LOSSES, metrics={"price": ["mae"], "sold": ["accuracy"]},
        loss_weights={"price": 0.1, "sold": 1.0, "colors": 1.0})
    return model

def in_a_list(spec):
    inputs, heads = _body(spec)
    model = keras.Model(inputs, [heads[name] for name in ("sold", "price", "colors")])
    model.compile(keras.optimizers.Adam(0.05), LOSSES)
    return model

class Subclassed(keras.Model):
    def __init__(self, spec):
        super().__init__()
        self.heads = {name: keras.layers.Dense(len(label.classes) or 1) for name, label in spec.outputs.items()}

    def call(self, features):
        found = {name: layer(features["x"]) for name, layer in self.heads.items()}
        return {**found, "colors": keras.ops.sigmoid(found["colors"])}

def subclassed(spec):
    model = Subclassed(spec)
    model.compile(keras.optimizers.Adam(0.05), LOSSES)
    return model

def tags(spec):
    assert (spec.task, spec.classes, spec.outputs) == ("multilabel", ("blue", "green", "red"), {})
    x = keras.Input([1], name="x")
    model = keras.Model({"x": x}, keras.layers.Dense(3)(x))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.3), loss, weighted_metrics=["mae"])
    return model

def by_sgd(spec):
    inputs, heads = _body(spec)
    model = keras.Model(inputs, heads)
    model.compile("sgd", LOSSES)
    return model

def no_labels(spec):
    import tensorflow as tf

    assert {name: tuple(one.shape) for name, one in spec.signature[1].items()} == {
        "price": (8,), "sold": (8,), "colors": (8, 3)
    }
    return tf.data.Dataset.from_tensors(({"x": tf.zeros([8, 1])}, {"price": tf.zeros([8])})).repeat(3)

def without_sold(spec):
    inputs, heads = _body(spec)
    model = keras.Model(inputs, {"price": heads["price"], "bought": heads["sold"], "colors": heads["colors"]})
    model.compile(keras.optimizers.Adam(0.02), LOSSES)
    return model

def of_two_colors(spec):
    inputs, heads = _body(spec)
    heads["colors"] = keras.layers.Dense(2, "sigmoid")(inputs["x"])
    model = keras.Model(inputs, heads)
    model.compile(keras.optimizers.Adam(0.02), LOSSES)
    return model
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "sales.py").write_text(MODELS)
    return lambda name: f"{folder}/sales.py:{name}"


@pytest.fixture(scope="module")
def trained(sales, model, train_into, tmp_path_factory):
    """trained("by_name") -> the folders `model` and `run` of that model, which tests share."""

    @functools.cache
    def of(name):
        place, feed = tmp_path_factory.mktemp("trained"), FeedOptions(batch_size=8)
        return train_into(place, sales[0], "all", model(name), label=LABELS, epochs=20, feed=feed)

    return of


def asked(place, rows, example, names=("x", "importance")):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(place / "model"))
    examples = tf.constant([example({name: row[name] for name in names}) for row in rows])
    return {name: tensor.numpy() for name, tensor in loaded.signatures["serving_default"](examples=examples).items()}


@pytest.mark.parametrize(
    "name", ["by_name", *(pytest.param(name, marks=pytest.mark.image) for name in ("in_a_list", "subclassed"))]
)
def test_each_output_learns_its_label_and_is_served_by_its_name(name, sales, trained, example):
    rows = sales[1]
    answer = asked(trained(name), rows, example)
    assert {name: array.shape for name, array in answer.items()} == {
        "price": (ROWS,),
        "sold/probabilities": (ROWS, 2),
        "sold/class": (ROWS, 1),
        "colors/probabilities": (ROWS, 3),
        "colors/class": (ROWS, 3),
    }
    sold = np.array([row["sold"] for row in rows])
    assert (answer["sold/class"][:, 0] == sold).mean() > 0.9
    np.testing.assert_allclose(answer["sold/probabilities"].sum(axis=1), 1, rtol=1e-5)  # logits by the loss of its name
    assert np.corrcoef(answer["price"], [row["euros"] for row in rows])[0, 1] > 0.9
    words = np.array([b"blue", b"green", b"red"], object)
    np.testing.assert_array_equal(answer["colors/class"], np.where(answer["colors/probabilities"] > 0.4, words, b""))


def test_every_loader_serves_several_outputs_alike(sales, trained, saved_models, example):
    rows, place = sales[1], trained("by_name")
    answer = asked(place, rows, example)
    for load in (saved_models.by_python, saved_models.by_session, saved_models.by_cpp):
        found = load(place / "model")["raw"](x=np.array([row["x"] for row in rows], np.float32))
        assert found.keys() == answer.keys()
        np.testing.assert_allclose(found["price"], answer["price"], rtol=1e-5)
        np.testing.assert_array_equal(found["colors/class"], answer["colors/class"])


def test_a_list_of_words_is_a_label_of_several_classes(sales, model, train, example):
    folder, rows = sales
    feed = FeedOptions(batch_size=8, weight="importance")
    options = {"label": "colors", "task": "multilabel", "threshold": 0.45, "epochs": 20}
    place = train(folder, "all", model("tags"), feed=feed, **options)
    answer = asked(place, rows, example, names=["x"])  # the weight of a row is no input
    assert answer.keys() == {"probabilities", "class"}
    predicted = [{word for word in words if word} for words in answer["class"].tolist()]
    assert np.mean([words == set(row["colors"]) for words, row in zip(predicted, rows, strict=True)]) > 0.6


@pytest.mark.image  # here `test_run_fn_class_weights` weighs rows
def test_the_weight_of_a_row_counts_for_every_output(sales, model, train):
    folder, _ = sales
    weights = []
    for weight in (None, "importance"):
        feed = FeedOptions(batch_size=8, weight=weight)
        place = train(
            folder, "all", model("by_sgd"), label=LABELS, epochs=1, feed=feed, callbacks_fn="callbacks", steps=1
        )
        with np.load(place / "run" / "weights.npz") as file:
            weights.append([file[name] for name in file.files])
    assert len(weights[0]) == 8  # a kernel and a bias of the body and of each head
    assert not any(map(np.array_equal, *weights))


@pytest.mark.parametrize(
    ("name", "value"),
    [("without_sold", "bought"), ("of_two_colors", "output 'colors': the model has 2 outputs")],
)
def test_a_model_without_an_output_that_a_label_needs_is_refused(sales, model, train, name, value):
    with pytest.raises(InfeedError, match=value) as raised:
        train(sales[0], "all", model(name), label=LABELS)
    assert raised.value.where == model(name)


def test_a_row_without_one_of_its_labels_is_left_out_of_evaluation_and_an_error_in_training(sales):
    import tensorflow as tf

    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.graph import TransformGraph

    folder, rows = sales
    labels = {**LABELS, "price": Output("regression", "offer")}
    options = TrainOptions("m:f", labels, feed=FeedOptions(batch_size=8))
    graph = TransformGraph(str(folder / "all" / "graph"), options.labels)
    batches = make_feed([f"{folder}/Split-eval/*"], graph, options, training=False).dataset()
    prices = np.concatenate([label["price"].numpy() for _, label in batches])
    np.testing.assert_allclose(prices, [row["euros"] for row in rows[: ROWS // 3] if row["offer"]], rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no label offer"):
        list(make_feed([f"{folder}/Split-train/*"], graph, options, training=True).dataset().take(8))


def test_the_rows_that_pad_a_batch_have_weight_0_and_a_label_of_each_output(sales):
    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.graph import TransformGraph

    options = TrainOptions("m:f", LABELS, feed=FeedOptions(batch_size=24, static_shapes=True))
    graph = TransformGraph(str(sales[0] / "all" / "graph"), options.labels)
    *_, (_, label, weight) = make_feed([f"{sales[0]}/Split-eval/*"], graph, options, training=False).dataset()
    assert {name: one.shape.as_list() for name, one in label.items()} == {
        "price": [24],
        "sold": [24],
        "colors": [24, 3],
    }
    assert weight.numpy().tolist() == [1] * 8 + [0] * 16


def test_an_input_function_gives_a_label_for_each_output(sales, model):
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.own_input import make_input

    options = TrainOptions("m:f", LABELS, input_fn=model("no_labels"), feed=FeedOptions(batch_size=8))
    graph = TransformGraph(str(sales[0] / "all" / "graph"), options.labels)
    with pytest.raises(InfeedError, match=r"the label is \['price'\]") as raised:
        make_input([], graph, options, training=True)
    assert "colors, price, sold" in raised.value.do
