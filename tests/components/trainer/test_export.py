"""What is exported is a copy of the model: the same answers, its weights once, and a model to start from."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from infeed.components.evaluation.predictor import RawColumns
from infeed.components.trainer.options import TrainOptions

pytestmark = [pytest.mark.tfx, pytest.mark.stack]

SCHEMA = """
feature { name: "x" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "word" type: BYTES shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
feature { name: "unused" type: FLOAT }
feature { name: "y" type: INT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
"""
SPECS = {"x": tf.TensorSpec([None, 1], tf.float32), "word": tf.TensorSpec([None, 1], tf.string)}
WIDTH = 2_000


def make_model(width=WIDTH):
    keras.utils.set_random_seed(0)
    x, word = keras.Input([1], name="x"), keras.Input([1], name="word", dtype="string")
    index = keras.layers.StringLookup(vocabulary=["a", "b", "c"])(word)
    embedded = keras.layers.Flatten()(keras.layers.Embedding(4, width)(index))
    joined = keras.layers.Concatenate()([keras.layers.BatchNormalization()(x), embedded])
    output = keras.layers.Dense(1)(keras.layers.Dropout(0.5)(joined))
    model = keras.Model({"x": x, "word": word}, output)
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def serving_model(folder, model):
    from infeed.components.trainer.export import ServingModel
    from infeed.components.trainer.graph import RawExamples
    from infeed.components.trainer.model_inputs import inputs_of

    (folder / "schema.pbtxt").write_text(SCHEMA)
    graph = RawExamples(str(folder / "schema.pbtxt"), "y")
    graph.date_formats = {"word": ["iso"], "left_out": ["iso"]}  # as a transform graph tells them
    options = TrainOptions(model_fn="m:f", label="y", source_options={"csv": {"delimiter": ";"}})
    inputs = inputs_of(model, SPECS | {"unused": tf.SparseTensorSpec([None, None])}, "")
    return ServingModel(model, inputs, graph, options)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model of text and number without any Transform, and where it was exported to."""
    folder, model = tmp_path_factory.mktemp("export"), make_model()
    serving_model(folder, model).save(str(folder / "model"))
    return folder / "model", model


def test_the_answers_are_those_of_the_model(exported):
    folder, model = exported
    given = {"x": tf.constant([1.0, 2.0, 3.0]), "word": tf.constant(["a", "c", "never seen"])}
    loaded = tf.saved_model.load(str(folder))
    answer = loaded.signatures["raw"](**given)  # a client need not send what the model does not take
    probability = tf.sigmoid(model({name: column[:, tf.newaxis] for name, column in given.items()}, training=False))
    np.testing.assert_allclose(answer["probabilities"][:, 1:], probability, rtol=1e-5)
    assert answer["class"].numpy()[:, 0].tolist() == (probability[:, 0] > 0.5).numpy().astype(int).tolist()
    assert set(loaded.signatures) == {"serving_default", "raw"}  # nothing is transformed


def test_the_model_names_its_columns_and_the_options_of_the_files_that_it_learned_from(exported):
    assert RawColumns.of(str(exported[0])) == RawColumns(
        ("word", "x"),
        {"csv": {"delimiter": ";"}},
        {"word": "bytes", "x": "float"},
        {"": "classification"},
        {"word": ["iso"]},
    )


class Counted(keras.layers.Layer):
    """Counts how often the model is called in Python, which is how often it is traced."""

    calls = 0

    def call(self, word, x):
        Counted.calls += 1
        return x + keras.ops.cast(tf.strings.length(word), "float32")


def test_the_signatures_share_one_trace_of_the_model(tmp_path):
    x, word = keras.Input([1], name="x"), keras.Input([1], name="word", dtype="string")
    model = keras.Model({"x": x, "word": word}, keras.layers.Dense(1)(Counted()(word, x)))
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    served = serving_model(tmp_path, model)
    Counted.calls = 0
    served.save(str(tmp_path / "model"))
    assert Counted.calls == 1


def test_each_weight_is_stored_once(exported):
    folder, model = exported
    weights = sum(variable.numpy().nbytes for variable in model.variables)
    stored = sum(file.stat().st_size for file in (folder / "variables").iterdir())
    assert weights < stored < 1.3 * weights
