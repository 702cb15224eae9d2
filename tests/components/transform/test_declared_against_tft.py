"""Declared features beside tft's own functions of the same meaning, analyzed on the same rows by tft on Beam.

Covers `kinds/text` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.engine.beam_runner import local_runner
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.encode import Bucketize, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.scale import MinMax, ZScore
from infeed.components.transform.kinds.text import BagOfWords

pytestmark = [pytest.mark.tfx, pytest.mark.slow, pytest.mark.image]  # here `kinds` compares with NumPy

ROWS = 400
REVIEWS = [b"Good, good coffee", None, b"the coffee was good", b"", b"bad tea", b"the tea was so so"]
WORDS = 7  # different ones in all reviews
RNG = np.random.default_rng(11)
COLUMNS: Mapping[str, Any] = {
    "age": RNG.normal(40, 12, ROWS).astype(np.float32),
    "trips": RNG.integers(0, 10**9, ROWS),
    # Of 30 words most occur equally often as others: the order of those decides.
    "word": np.array([b"word %d" % number for number in RNG.integers(0, 30, ROWS)], object),
    "city": RNG.choice(np.array([b"Basel", b"Bern", b"Chur"], object), ROWS),
    "review": RNG.choice(np.array(REVIEWS, object), ROWS),
}
STEPS = (LowerCase(), Tokens())
CUT = 13
FEATURES = [
    ZScore("age"),
    ZScore("trips"),
    ZScore("age", output="age_of_city", key="city"),
    MinMax("age", output="age_range", low=-2.0, high=3.0),
    MinMax("age", output="range_of_city", key="city"),
    Vocabulary("word"),
    Vocabulary("word", output="top", size=10, oov=4),
    Vocabulary("word", output="frequent", min_count=CUT, oov=0),
    OneHot("city"),
    Hash("word", 7, output="hashed"),
    Bucketize("age", 4, output="bucket"),
    BagOfWords("review", clean=STEPS, weights="tf_idf"),
    BagOfWords("review", output="few_words", clean=STEPS, size=4, weights="tf_idf", smooth=False),
]


def preprocessing_fn(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same by tft. Its indices begin with 0, ours keep 0 for what is missing."""
    import tensorflow as tf
    import tensorflow_transform as tft

    age, word, city = inputs["age"], inputs["word"], inputs["city"]
    index = tft.compute_and_apply_vocabulary

    def weighed(words: int, smooth: bool) -> Any:
        """[rows, words], without the place that tft keeps for tokens out of the vocabulary."""
        places, weights = tft.tfidf(index(tokens, top_k=words, num_oov_buckets=1), words + 1, smooth=smooth)
        cells = tf.stack([places.indices[:, 0], places.values], 1)
        bags = tf.scatter_nd(cells, weights.values, [places.dense_shape[0], words + 1])
        return tf.ensure_shape(bags, [None, words + 1])[:, :words]

    texts = tf.strings.regex_replace(tf.strings.lower(inputs["review"][:, 0]), r"\W+", " ")
    tokens = tf.strings.split(texts).to_sparse()
    return {
        "age": tft.scale_to_z_score(age),
        "trips": tft.scale_to_z_score(inputs["trips"]),
        "age_of_city": tft.scale_to_z_score_per_key(age[:, 0], city[:, 0])[:, tf.newaxis],
        "age_range": tft.scale_by_min_max(age, -2.0, 3.0),
        "range_of_city": tft.scale_to_0_1_per_key(age[:, 0], city[:, 0])[:, tf.newaxis],
        "word": index(word, num_oov_buckets=1, vocab_filename="word") + 1,
        "top": index(word, top_k=10, num_oov_buckets=4) + 1,
        "frequent": index(word, frequency_threshold=CUT, default_value=-1) + 1,
        "city": tf.one_hot(index(city, num_oov_buckets=1)[:, 0] + 1, 5),
        "hashed": tft.hash_strings(word, 7) + 1,
        "bucket": tft.bucketize(age, 4, epsilon=0.001) + 1,
        "review": weighed(WORDS, smooth=True),
        "few_words": weighed(4, smooth=False),
    }


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What tft makes of the rows, and its vocabulary."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    folder = tmp_path_factory.mktemp("tft")
    types = {"f": tf.float32, "i": tf.int64, "O": tf.string}
    spec = {name: tf.io.FixedLenFeature([1], types[column.dtype.kind]) for name, column in COLUMNS.items()}
    columns = {name: [b"" if cell is None else cell for cell in cells] for name, cells in COLUMNS.items()}
    rows = [dict(zip(columns, ([cell] for cell in row), strict=True)) for row in zip(*columns.values(), strict=True)]
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    with local_runner(), beam.Pipeline() as pipeline, tft_beam.Context(temp_dir=str(folder)):
        analyzed = (pipeline | beam.Create(rows), metadata) | tft_beam.AnalyzeDataset(preprocessing_fn)
        _ = analyzed | tft_beam.WriteTransformFn(str(folder / "graph"))
    graph = tft.TFTransformOutput(str(folder / "graph"))
    raw = {name: tf.constant(cells, types[COLUMNS[name].dtype.kind])[:, tf.newaxis] for name, cells in columns.items()}
    made = {name: one.numpy() for name, one in graph.transform_raw_features(raw).items()}
    return made | {"words": np.array(graph.vocabulary_by_name("word"))}


@pytest.fixture(scope="module")
def ours(transform: Callable[..., dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What ours make of them."""
    return transform({name: column.tolist() for name, column in COLUMNS.items()}, FEATURES)


@pytest.mark.parametrize("name", ["word", "top", "frequent", "city", "hashed"])
def test_indices_and_vectors_equal_tfts(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("name", ["age", "trips", "age_of_city", "age_range", "range_of_city"])
def test_scaled_numbers_equal_tfts(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-5, atol=2e-6)  # tft computes in float32


@pytest.mark.parametrize("name", ["review", "few_words"])
def test_tf_idf_weighs_as_tft_does(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6)


def test_buckets_differ_from_tfts_by_the_error_of_its_sketch(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> None:
    assert np.mean(ours["bucket"] != theirs["bucket"]) <= 0.01


def test_a_vocabulary_lists_the_words_that_tfts_lists(tmp_path: Path, theirs: Mapping[str, Any]) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.columns import TracedPass, analyze
    from infeed.components.transform.declared import write_graph

    spec = {"word": tf.io.FixedLenFeature([1], tf.string)}
    schema = tft.DatasetMetadata.from_feature_spec(spec).schema
    feature, rows = Vocabulary("word"), {"word": tf.constant(COLUMNS["word"].tolist())[:, tf.newaxis]}
    (tmp_path / "vocabularies").mkdir()
    found = analyze([feature], lambda one: TracedPass(one).over([rows]), {})
    write_graph(str(tmp_path / "graph"), [feature], schema, found, str(tmp_path / "vocabularies"))
    output = tft.TFTransformOutput(str(tmp_path / "graph"))
    assert output.vocabulary_by_name("word") == theirs["words"].tolist()
    assert output.num_buckets_for_transformed_feature("word") == feature.cardinality(len(theirs["words"]))
    assert output.raw_feature_spec() == spec
