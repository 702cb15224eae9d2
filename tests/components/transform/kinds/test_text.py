"""Bags of words beside scikit-learn and tft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from infeed.components.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.text import BagOfWords

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
REVIEWS = [b"Good, good coffee", None, b"the coffee was good", b"", b"bad tea", b"the tea was so so"]
STEPS = (LowerCase(), Tokens())


def counted(ngrams: tuple[int, int] = (1, 1)) -> tuple[np.ndarray, list[bytes]]:
    """scikit-learn's counts, and its words in the order of ours: most frequent first, then the later in byte order."""
    vectorizer = CountVectorizer(token_pattern=r"(?u)\w+", ngram_range=ngrams)
    counts = vectorizer.fit_transform([text.decode() if text else "" for text in REVIEWS]).toarray()
    words = [word.encode() for word in vectorizer.get_feature_names_out()]
    order = sorted(range(len(words)), key=lambda place: (counts[:, place].sum(), words[place]), reverse=True)
    return counts[:, order], [words[place] for place in order]


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2)])
def test_a_bag_counts_as_scikit_learn_does(ngrams: tuple[int, int], transform: Transform) -> None:
    steps = (LowerCase(), Tokens(ngrams=ngrams))
    features = [BagOfWords("x", clean=steps), BagOfWords("x", output="binary", clean=steps, weights="binary")]
    found = transform({"x": REVIEWS}, features)
    counts, _ = counted(ngrams)
    np.testing.assert_array_equal(found["x"], counts)
    np.testing.assert_array_equal(found["binary"], np.minimum(counts, 1))
    assert found["x"].dtype == np.float32


def test_a_bag_of_few_words_has_no_place_for_others_or_shared_ones(transform: Transform) -> None:
    features = [BagOfWords("x", clean=STEPS, size=2), BagOfWords("x", output="shared", clean=STEPS, size=2, oov=1)]
    found = transform({"x": REVIEWS}, features)
    counts, _ = counted()
    np.testing.assert_array_equal(found["x"], counts[:, :2])
    np.testing.assert_array_equal(found["shared"], np.stack([counts[:, 0], counts[:, 1], counts[:, 2:].sum(1)], 1))


def test_lists_of_categories_are_bags_too(transform: Transform) -> None:
    found = transform({"x": [[b"a", b"b", b"a"], [], [b"a"]]}, [BagOfWords("x", values="all")])["x"]
    assert found.tolist() == [[2, 1], [0, 0], [1, 0]]
    numbers = transform({"x": [[7, 7], [8], []]}, [BagOfWords("x", values="all", weights="tf_idf")])["x"]
    np.testing.assert_allclose(numbers, np.array([[1, 0], [0, 1], [0, 0]]) * (1 + np.log(4 / 2)), rtol=1e-6)


@pytest.mark.tfx
def test_tf_idf_weighs_as_tft_does(transform: Transform, tmp_path: Path) -> None:
    cases: dict[str, tuple[int | None, bool]] = {"all": (None, True), "cut": (4, False)}
    features = [
        BagOfWords("x", output=name, clean=STEPS, size=size, weights="tf_idf", smooth=smooth)
        for name, (size, smooth) in cases.items()
    ]
    found, expected = transform({"x": REVIEWS}, features), _of_tft(cases, tmp_path)
    for name in cases:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)


def _of_tft(cases: Mapping[str, tuple[int | None, bool]], folder: Path) -> dict[str, np.ndarray]:
    """[rows, words] each, without the place that tft keeps for tokens out of the vocabulary."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    def weighed(tokens: Any, size: int | None, smooth: bool) -> Any:
        words = len(counted()[1]) if size is None else size
        index = tft.compute_and_apply_vocabulary(tokens, top_k=size, num_oov_buckets=1)
        places, weights = tft.tfidf(index, words + 1, smooth=smooth)
        cells = tf.stack([places.indices[:, 0], places.values], 1)
        bags = tf.scatter_nd(cells, weights.values, [places.dense_shape[0], words + 1])
        return tf.ensure_shape(bags, [None, words + 1])[:, :words]

    def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
        text = tf.strings.regex_replace(tf.strings.lower(inputs["x"]), r"\W+", " ")
        tokens = tf.strings.split(text).to_sparse()
        return {name: weighed(tokens, *case) for name, case in cases.items()}

    rows = [{"x": text or b""} for text in REVIEWS]
    metadata = tft.DatasetMetadata.from_feature_spec({"x": tf.io.FixedLenFeature([], tf.string)})
    with tft_beam.Context(temp_dir=str(folder)):
        (transformed, _), _ = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
    return {name: np.array([row[name] for row in transformed]) for name in cases}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BagOfWords("x", weights="tf_idf", oov=1), "oov is 1"),
        (lambda: BagOfWords("x", clean=STEPS, length=3), "length is 3"),
        (lambda: BagOfWords("x", values="by_position"), "values is 'by_position'"),
    ],
)
def test_options_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        make()


def test_a_vocabulary_of_tokens_is_that_of_the_bag(transform: Transform) -> None:
    columns = {"x": REVIEWS}
    found = transform(columns, [Vocabulary("x", clean=STEPS, length=4), BagOfWords("x", output="bag", clean=STEPS)])
    bags = np.array([np.bincount(row, minlength=found["bag"].shape[1] + 1)[1:] for row in found["x"]])
    np.testing.assert_array_equal(bags[:5], found["bag"][:5])  # the sixth is longer
