"""What a model is trained on, what `transform_features` gives and what serving makes of rows are the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tf_examples import serialize

from infeed.components.engine.engine import Here
from infeed.components.transform.kinds.clean import Clip, FillWith
from infeed.components.transform.kinds.encode import Bucketize, Cross, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.label import Label
from infeed.components.transform.kinds.scale import Log, MinMax, Robust, ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

ROWS = 1000
FEATURES = [
    ZScore("x", clean=(FillWith("median"), Clip(0.0, 50.0))),
    ZScore("x", output="of_city", key="city"),
    *(MinMax("x", output="range"), Robust("x", output="robust"), Log("x", output="log")),
    *(Vocabulary("city"), OneHot("city", output="city_vector"), Hash("city", 7, output="city_hash")),
    Bucketize("x", 5, output="bucket"),
    Cross(("city", "n"), "city_n", size=20),
    *(OneHot("tags", values="all"), Vocabulary("tags", output="tag_list", values="all", length=3)),
    Label("y"),
]
SCHEMA = """
feature { name: "x" type: FLOAT presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "n" type: INT presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "city" type: BYTES presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "tags" type: BYTES presence { min_count: 1 } }
feature { name: "y" type: INT shape { dim { size: 1 } } presence { min_fraction: 1 min_count: 1 } }
"""


def records() -> list[bytes]:
    """Rows of every type, with gaps, lists and rare values."""
    random = np.random.default_rng(5)

    def row(number: int) -> bytes:
        given = {
            "x": random.lognormal(2, 1) if random.random() > 0.1 else None,
            "city": b"city %d" % random.zipf(1.5) if random.random() > 0.1 else None,
            "n": int(random.integers(0, 9)),
            "tags": random.choice([b"a", b"b", b"c"], random.integers(0, 5)).tolist(),
        }
        return serialize({**given, "y": number % 2})

    return [row(number) for number in range(ROWS)]


def showing(spec: dict[str, Any]) -> Any:
    """A model whose prediction is what it is given, all inputs side by side."""
    import keras

    inputs = {name: keras.Input(one.shape[1:], name=name, dtype=one.dtype.name) for name, one in spec.items()}
    flat = [keras.ops.cast(inputs[name], "float32") for name in sorted(inputs)]
    model = keras.Model(inputs, keras.layers.Concatenate()(flat))
    model.compile("adam", "mse")
    return model


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Who makes features of the rows -> all of them side by side, float32 [rows, n], the rows in one order."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from infeed.components.feed.options import FeedOptions
    from infeed.components.trainer.data import make_feed
    from infeed.components.trainer.export import ServingModel
    from infeed.components.trainer.graph import TransformGraph
    from infeed.components.trainer.model_inputs import inputs_of
    from infeed.components.trainer.options import TrainOptions
    from infeed.components.transform import declared

    folder, serialized = tmp_path_factory.mktemp("skew"), records()
    split = folder / "examples" / "Split-train"
    split.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(split / "data.gz"), "GZIP") as writer:
        for record in serialized:
            writer.write(record)
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    read = declared.Examples([str(folder / "examples")], ["train"], schema)
    declared.write(str(folder / "graph"), FEATURES, read, Here())

    graph = TransformGraph(str(folder / "graph"), "y")
    feed = FeedOptions(batch_size=100, cache_dir=str(folder / "cache"))
    options = TrainOptions("models:showing", "y", task="regression", epochs=1, feed=feed)
    batches = make_feed([str(split / "*")], graph, options, training=True).dataset()
    spec = batches.element_spec[0]
    model = showing(spec)
    ServingModel(model, inputs_of(model, spec, ""), graph, options).save(str(folder / "model"))

    def side_by_side(features: dict[str, Any]) -> np.ndarray:
        return np.concatenate([features[name].numpy().astype(np.float32) for name in sorted(spec)], axis=1)

    signatures = tf.saved_model.load(str(folder / "model")).signatures
    made = {
        "training": np.concatenate([side_by_side(batch) for batch, _ in batches.take(ROWS // 100)]),
        "transform_features": side_by_side(signatures["transform_features"](tf.constant(serialized))),
        "serving_default": signatures["serving_default"](tf.constant(serialized))["prediction"].numpy(),
    }
    return {who: array[np.lexsort(array.T)] for who, array in made.items()}


@pytest.mark.parametrize("who", ["training", "serving_default"])
def test_a_thousand_rows_are_the_same_wherever_features_are_made(who: str, values: dict[str, np.ndarray]) -> None:
    assert values[who].shape[0] == ROWS
    assert len(np.unique(values[who], axis=0)) > ROWS / 2
    np.testing.assert_array_equal(values[who], values["transform_features"])
