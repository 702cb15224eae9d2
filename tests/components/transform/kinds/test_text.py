"""Texts, tokens and bags, beside Python and scikit-learn."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, strip_accents_unicode

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens, squeeze, strip_accents, tokens, trim
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.text import BagOfWords, bag, tf_idf

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


TEXTS = [
    "  Der Föhn weht, der Wind\tweht.  ",
    "Crème brûlée, s'il vous plaît!",
    "Ελλάδα Ё ё ç Å ő ệ 한국어 日本が",
    "a_b 3,50 x2 don't",
    "",
    "   ",
    "one",
]


def strings(texts: tf.Tensor) -> list[str]:
    return [text.decode() for text in texts.numpy()]


def decoded(ragged: tf.RaggedTensor) -> list[list[str]]:
    return [[token.decode() for token in row] for row in ragged.to_list()]


unicode_texts = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(unicode_texts, min_size=1, max_size=20))
def test_trim_is_that_of_python(texts: list[str]) -> None:
    assert strings(trim(tf.constant(texts))) == [text.strip() for text in texts]


@settings(max_examples=60, deadline=None)
@given(st.lists(unicode_texts, min_size=1, max_size=20))
def test_squeezed_and_trimmed_is_split_and_joined(texts: list[str]) -> None:
    assert strings(trim(squeeze(tf.constant(texts)))) == [" ".join(text.split()) for text in texts]


def test_no_accents_as_scikit_learn_strips_them() -> None:
    latin = [text for text in TEXTS if "한" not in text] + ["Ελλάδα ệ ő Å ё", "ñandú", "e\u0301te\u0301"]
    assert strings(strip_accents(tf.constant(latin))) == [strip_accents_unicode(text) for text in latin]


@settings(max_examples=60, deadline=None)
@given(st.lists(unicode_texts, min_size=1, max_size=20))
def test_every_character_with_marks_loses_them(texts: list[str]) -> None:
    def bare(letter: str) -> str:
        letters = unicodedata.normalize("NFD", letter)
        rest = "".join(one for one in letters if not unicodedata.combining(one))
        return letter if rest == letters else unicodedata.normalize("NFC", rest)

    assert strings(strip_accents(tf.constant(texts))) == ["".join(map(bare, text)) for text in texts]


def test_syllables_of_hangul_stay() -> None:
    assert strings(strip_accents(tf.constant(["한국어"]))) == ["한국어"]


def test_bytes_that_are_no_utf8_end_as_the_replacement_character() -> None:
    assert strip_accents(tf.constant([b"a\xffb"])).numpy().tolist() == ["a\ufffdb".encode()]


@settings(max_examples=40, deadline=None)
@given(st.lists(unicode_texts, min_size=1, max_size=20))
def test_white_space_splits_as_in_python(texts: list[str]) -> None:
    assert decoded(tokens(tf.constant(texts), "whitespace")) == [text.split() for text in texts]


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 3)])
def test_ngrams_of_words_are_those_of_scikit_learn(ngrams: tuple[int, int]) -> None:
    split = CountVectorizer(token_pattern=r"(?u)\w+", lowercase=False, ngram_range=ngrams).build_analyzer()
    found = decoded(tokens(tf.constant(TEXTS), "words", ngrams))
    assert found == [split(text) for text in TEXTS]


def test_ngrams_of_characters_have_nothing_between() -> None:
    assert decoded(tokens(tf.constant(["añb", "x", ""]), "characters", (1, 2))) == [
        ["a", "ñ", "b", "añ", "ñb"],
        ["x"],
        [],
    ]


INDICES = [[1, 1, 4, 0], [], [3], [0, 1, 2, 3, 4, 4]]


def counts() -> np.ndarray:
    return np.array([np.bincount(np.array(row, int), minlength=5) for row in INDICES])


def test_a_bag_counts() -> None:
    ragged = tf.ragged.constant(INDICES, tf.int64)
    assert bag(ragged, 5).numpy().tolist() == counts().tolist()
    assert bag(ragged, 5, binary=True).numpy().tolist() == np.minimum(counts(), 1).tolist()
    assert bag(ragged, 5).dtype == tf.float32


def test_negative_indices_have_no_place_and_are_tokens_all_the_same() -> None:
    indices = tf.ragged.constant([[-1, 1], [-1, -1], [0]], tf.int64)
    assert bag(indices, 2).numpy().tolist() == [[0, 1], [0, 0], [1, 0]]
    assert tf_idf(indices, [2, 2], 2, smooth=False).numpy().tolist() == [[0, 0.5], [0, 0], [1, 0]]


def test_a_bag_of_no_rows_and_of_no_tokens() -> None:
    assert bag(tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int64), tf.zeros([0], tf.int64)), 3).shape == (0, 3)
    assert bag(tf.ragged.constant([[], []], tf.int64, ragged_rank=1), 3).numpy().tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize("smooth", [True, False])
def test_tf_idf_weighs_as_scikit_learn_but_by_the_share_of_tokens(smooth: bool) -> None:
    documents = np.count_nonzero(counts(), axis=0)
    found = tf_idf(tf.ragged.constant(INDICES, tf.int64), documents, len(INDICES), smooth=smooth)
    idf = TfidfTransformer(smooth_idf=smooth, norm=None).fit(counts()).idf_
    lengths = np.maximum(counts().sum(1, keepdims=True), 1)
    np.testing.assert_allclose(found.numpy(), counts() / lengths * idf, rtol=1e-6)


def test_a_token_that_no_row_has_counts_as_of_one() -> None:
    found = tf_idf(tf.ragged.constant([[0, 1, 2]], tf.int64), [0, 1, 4], 4, smooth=False)
    np.testing.assert_allclose(found.numpy(), [np.array([1 + np.log(4), 1 + np.log(4), 1]) / 3], rtol=1e-6)
