"""Ragged features go the whole way, from Transform through feed and model to what is served, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_examples import serialize

from infeed.components.engine.engine import Here
from infeed.components.feed.options import FeedOptions
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.label import Label

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

SCHEMA = """
feature { name: "review" type: BYTES presence { min_count: 1 } value_count { min: 1 max: 1 } }
feature { name: "tags" type: BYTES presence { min_count: 1 } }
feature { name: "verdict" type: BYTES presence { min_fraction: 1 min_count: 1 } shape { dim { size: 1 } } }
"""
FEATURES = [
    Vocabulary("review", clean=(LowerCase(), Tokens())),
    Vocabulary("tags", values="all"),
    Label("verdict"),
]
# Of the words of a review and of its tags the mean of their vectors; of none a vector of zeros.
MODEL = """
import keras
import tensorflow as tf

class MeanVector(keras.layers.Layer):
    def __init__(self, words):
        super().__init__()
        self._table = self.add_weight((words + 2, 4), keras.initializers.RandomNormal(seed=words))

    def call(self, ids):
        vectors = ids.with_flat_values(tf.gather(tf.convert_to_tensor(self._table), ids.flat_values))
        return tf.math.divide_no_nan(tf.reduce_sum(vectors, 1), tf.cast(ids.row_lengths(), tf.float32)[:, tf.newaxis])

class Reader(keras.Model):
    def __init__(self, spec):
        super().__init__()
        self.means = [MeanVector(spec.vocabulary_sizes[name]) for name in ("review", "tags")]
        self.head = keras.layers.Dense(len(spec.classes), "softmax", kernel_initializer=keras.initializers.Zeros())

    def call(self, features):
        return self.head(tf.concat([self.means[0](features["review"]), self.means[1](features["tags"])], 1))

def reader(spec):
    model = Reader(spec)
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def reviews() -> list[dict[str, list[bytes]]]:
    """One word decides; there are reviews without a word, and rows without tags."""
    draw, fillers = np.random.default_rng(3), [b"the", b"a", b"film", b"was", b"it"]
    rows = []
    for number in range(192):
        verdict = [b"Good", b"bad"][number % 2]
        words = [*draw.choice(fillers, draw.integers(0, 6)).tolist(), verdict]
        tags = draw.choice([b"new", b"long", b"short"], draw.integers(0, 3)).tolist()
        review = [b" ".join(words)] if number % 12 else []
        rows.append({"review": review, "tags": tags, "verdict": [verdict.lower()]})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Examples of the reviews, and their transform graph below `class`."""
    import tensorflow as tf
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    from infeed.components.transform import declared

    folder, rows = tmp_path_factory.mktemp("reviews"), reviews()
    for split, part in (("train", rows[64:]), ("eval", rows[:64])):
        (folder / f"Split-{split}").mkdir()
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data.gz"), "GZIP") as writer:
            for row in part:
                writer.write(serialize(row))
    schema = text_format.Parse(SCHEMA, schema_pb2.Schema())
    read = declared.Examples([str(folder)], ["train"], schema)
    declared.write(str(folder / "class" / "graph"), FEATURES, read, Here())
    (folder / "user.py").write_text(MODEL)
    return folder


def in_memory(place: Path, features: Mapping[str, Any]) -> np.ndarray:
    """What the fitted weights make of the features, by NumPy: float32 [rows, 2]."""
    with np.load(place / "run" / "weights.npz") as file:
        of_review, of_tags, kernel, bias = (file[name] for name in file.files)

    def means(table: np.ndarray, ids: list[list[int]]) -> np.ndarray:
        return np.array([table[row].mean(0) if row else np.zeros(table.shape[1]) for row in ids])

    vectors = [means(of_review, features["review"].to_list()), means(of_tags, features["tags"].to_list())]
    powers = np.exp(np.concatenate(vectors, 1) @ kernel + bias)
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(
    "tier", ["columns", *(pytest.param(tier, marks=pytest.mark.image) for tier in ("disk", "stream"))]
)
def test_ragged_ids_are_trained_on_and_served_with_the_numbers_of_the_fitted_weights(
    tier: Any, folder: Path, train: Callable[..., Path]
) -> None:
    import tensorflow as tf

    options = {"label": "verdict", "epochs": 5, "feed": FeedOptions(batch_size=16, tier=tier)}
    place = train(folder, "class", f"{folder}/user.py:reader", callbacks_fn="callbacks", **options)
    rows = reviews()
    served = tf.saved_model.load(str(place / "model")).signatures

    features = served["transform_features"](tf.constant([serialize(row) for row in rows]))
    assert features["review"].row_lengths().numpy().tolist() == [len(b" ".join(row["review"]).split()) for row in rows]
    assert features["tags"].row_lengths().numpy().tolist() == [len(row["tags"]) for row in rows]
    asked = [{name: row[name] for name in ("review", "tags")} for row in rows]
    answer = served["serving_default"](tf.constant([serialize(row) for row in asked]))
    np.testing.assert_allclose(answer["probabilities"], in_memory(place, features), atol=1e-5)
    told = answer["class"].numpy().ravel().tolist()
    assert np.mean([[word] == row["verdict"] for word, row in zip(told, rows, strict=True)]) > 0.9
