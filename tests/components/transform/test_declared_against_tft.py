"""Declared features beside tft's own functions of the same meaning, analyzed on the same rows by tft on Beam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed.components.transform.kinds.encode import Bucketize, Hash, OneHot, Vocabulary
from infeed.components.transform.kinds.scale import MinMax, ZScore

pytestmark = [pytest.mark.tfx, pytest.mark.slow]

ROWS = 400
RNG = np.random.default_rng(11)
COLUMNS: Mapping[str, Any] = {
    "age": RNG.normal(40, 12, ROWS).astype(np.float32),
    "trips": RNG.integers(0, 10**9, ROWS),
    # Of 30 words most occur equally often as others: the order of those decides.
    "word": np.array([b"word %d" % number for number in RNG.integers(0, 30, ROWS)], object),
    "city": RNG.choice(np.array([b"Basel", b"Bern", b"Chur"], object), ROWS),
}
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
]


def preprocessing_fn(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same by tft. Its indices begin with 0, ours keep 0 for what is missing."""
    import tensorflow as tf
    import tensorflow_transform as tft

    age, word, city = inputs["age"], inputs["word"], inputs["city"]
    index = tft.compute_and_apply_vocabulary
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
    }


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What tft makes of the rows, and its vocabulary."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    folder = tmp_path_factory.mktemp("tft")
    types = {"f": tf.float32, "i": tf.int64, "O": tf.string}
    spec = {name: tf.io.FixedLenFeature([1], types[column.dtype.kind]) for name, column in COLUMNS.items()}
    rows = [dict(zip(COLUMNS, ([cell] for cell in row), strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    with tft_beam.Context(temp_dir=str(folder)):
        data = (rows, tft.DatasetMetadata.from_feature_spec(spec))
        (transformed, _), graph = data | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
        graph | tft_beam.WriteTransformFn(str(folder / "graph"))
    words = tft.TFTransformOutput(str(folder / "graph")).vocabulary_by_name("word")
    return {name: np.array([row[name] for row in transformed]) for name in transformed[0]} | {"words": np.array(words)}


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


def test_buckets_differ_from_tfts_by_the_error_of_its_sketch(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> None:
    assert np.mean(ours["bucket"] != theirs["bucket"]) <= 0.01


def test_a_vocabulary_lists_the_words_that_tfts_lists(tmp_path: Path, theirs: Mapping[str, Any]) -> None:
    import tensorflow as tf
    import tensorflow_transform as tft

    from infeed.components.transform.columns import analyze, reading
    from infeed.components.transform.declared import write_graph

    spec = {"word": tf.io.FixedLenFeature([1], tf.string)}
    schema = tft.DatasetMetadata.from_feature_spec(spec).schema
    feature, rows = Vocabulary("word"), {"word": tf.constant(COLUMNS["word"].tolist())[:, tf.newaxis]}
    (tmp_path / "vocabularies").mkdir()
    found = analyze([feature], reading([rows]), {})
    write_graph(str(tmp_path / "graph"), [feature], schema, found, str(tmp_path / "vocabularies"))
    output = tft.TFTransformOutput(str(tmp_path / "graph"))
    assert output.vocabulary_by_name("word") == theirs["words"].tolist()
    assert output.num_buckets_for_transformed_feature("word") == feature.cardinality(len(theirs["words"]))
    assert output.raw_feature_spec() == spec
