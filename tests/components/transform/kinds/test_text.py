"""Bags of words beside scikit-learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.text import BagOfWords

pytestmark = [pytest.mark.slow, pytest.mark.stack]  # TensorFlow takes seconds to load

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
