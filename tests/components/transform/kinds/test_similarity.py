"""Similarity of two texts beside scikit-learn: cosine of TF-IDF, and of mean word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.metrics.pairwise import paired_cosine_distances

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.similarity import Similarity

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
Texts = Sequence[bytes | None]
LEFT: Texts = [b"red red shoe", "Größe groß".encode(), b"the cat", None, b"", "東京 タワー".encode(), b"a b c d"]
RIGHT: Texts = [b"Red boot, red", "GRÖSSE größe".encode(), b"the THE cat!", b"the", b"x", "タワー 東京".encode(), None]
SERVED = {"left": [b"blue shoe", b"zebra", b"zebra yak", None], "right": [b"blue boot", b"zebra", b"emu", b"zebra"]}
MATCH = Similarity("left", "right", "match")


def strings(texts: Texts) -> list[str]:
    return [text.decode() if text else "" for text in texts]


def by_scikit_learn(vectorizer: TfidfVectorizer, left: Texts = LEFT, right: Texts = RIGHT) -> np.ndarray:
    """The cosine of each row, 0 where a text has no token."""
    vectorizer.fit([*strings(LEFT), *strings(RIGHT)])
    one, other = (vectorizer.transform(strings(texts)) for texts in (left, right))
    return np.asarray(one.multiply(other).sum(1)).ravel()  # the rows have length 1, or 0


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ((LowerCase(), Tokens()), {"token_pattern": r"(?u)\w+"}),
        ((LowerCase(), Tokens(ngrams=(1, 2))), {"token_pattern": r"(?u)\w+", "ngram_range": (1, 2)}),
        ((LowerCase(), Tokens("characters", (2, 3))), {"analyzer": "char", "ngram_range": (2, 3)}),
    ],
)
def test_training_rows_are_as_similar_as_for_scikit_learn(
    steps: tuple[LowerCase | Tokens, ...], options: dict[str, object], transform: Transform
) -> None:
    found = transform({"left": LEFT, "right": RIGHT}, [Similarity("left", "right", "match", clean=steps)])["match"]
    assert (found.shape, found.dtype) == ((len(LEFT), 1), np.float32)
    np.testing.assert_allclose(found[:, 0], by_scikit_learn(TfidfVectorizer(**options)), atol=1e-6)


def test_a_missing_or_empty_text_is_similar_to_none_and_a_text_to_itself(transform: Transform) -> None:
    texts = [b"one two", None, b"", b"?!", "émile zola".encode()]
    found = transform({"left": texts, "right": texts}, [MATCH])["match"][:, 0]
    np.testing.assert_allclose(found, [1, 0, 0, 0, 1], atol=1e-7)


def test_an_unseen_word_weighs_like_a_word_of_no_training_text(transform: Transform) -> None:
    training = {"left": LEFT, "right": RIGHT}
    found = transform(training, [MATCH], served=SERVED)["match"][:, 0]
    words = CountVectorizer(token_pattern=r"(?u)\w+").fit([*strings(LEFT), *strings(RIGHT), "blue zebra yak emu"])
    weighed = TfidfTransformer().fit(words.transform([*strings(LEFT), *strings(RIGHT)]))
    one, other = (weighed.transform(words.transform(strings(SERVED[side]))) for side in ("left", "right"))
    np.testing.assert_allclose(found, np.asarray(one.multiply(other).sum(1)).ravel(), atol=1e-6)
    np.testing.assert_allclose(found[1:], [1, 0, 0], atol=1e-6)


def test_tokens_outside_a_small_vocabulary_still_count(transform: Transform) -> None:
    columns = {"left": [b"a b", b"a c", b"a d"], "right": [b"a b", b"a x", b"y d"]}
    [found] = transform(columns, [Similarity("left", "right", "match", size=1)]).values()
    known, unseen = 1 + np.log(7 / 6), 1 + np.log(7)  # five of six texts hold "a"; others weigh as if none held them
    both = known**2 + unseen**2
    np.testing.assert_allclose(found[:, 0], [1, known**2 / both, unseen**2 / np.sqrt(both * 2 * unseen**2)], rtol=1e-6)
    rare = transform(columns, [Similarity("left", "right", "match", min_count=2)])["match"]
    assert rare[2, 0] < found[2, 0]  # two texts hold "d", so it weighs less than an unseen word


def test_lists_are_compared_as_they_are(transform: Transform) -> None:
    columns = {"left": [[b"New York", b"a"], [], [b"a"]], "right": [[b"a", b"New York"], [b"a"], [b"A"]]}
    found = transform(columns, [Similarity("left", "right", "match", values="all", clean=())])["match"]
    np.testing.assert_allclose(found[:, 0], [1, 0, 0], atol=1e-7)


def test_word_vectors_are_averaged_and_unknown_words_left_out(transform: Transform, tmp_path: Path) -> None:
    vectors = {"red": [1, 0, 0], "crimson": [1, 1, 0], "cold": [-1, 0, 0], "größe": [0, 0, 2]}
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(f"{word} {' '.join(map(str, of))}" for word, of in vectors.items()))
    left = [b"red", b"red unheard", "größe red".encode(), b"unheard", None, b"red cold"]
    right = [b"Crimson", b"cold", b"red cold crimson", b"red", b"red", b"red"]
    found = transform({"left": left, "right": right}, [Similarity("left", "right", "match", file=str(path))])["match"]
    means = [
        [
            np.mean([vectors[word] for word in text.lower().split() if word in vectors] or [[0.0] * 3], 0)
            for text in side
        ]
        for side in (strings(left), strings(right))
    ]
    expected = 1 - paired_cosine_distances(*means)
    expected[[3, 4, 5]] = 0  # no known word, a missing text, and words that cancel
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


def test_the_order_of_the_columns_does_not_matter(transform: Transform) -> None:
    columns = {"left": LEFT, "right": RIGHT}
    found = transform(columns, [MATCH, Similarity("right", "left", "turned")])
    np.testing.assert_allclose(found["match"], found["turned"], atol=1e-7)


def test_texts_without_a_word_have_no_vocabulary(transform: Transform) -> None:
    with pytest.raises(InfeedError, match="'left' and 'right' is empty"):
        transform({"left": [b"?"], "right": [b"!"]}, [MATCH])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Similarity("x", "x", "y"), "right is 'x'"),
        (lambda: Similarity("x", "y", "z", length=3), "length is 3"),
        (lambda: Similarity("x", "y", "z", values="by_position"), "values is 'by_position'"),
        (lambda: Similarity("x", "y", "z", words="words.txt"), "words is 'words.txt'"),
        (lambda: Similarity("x", "y", "z", file="a.txt", min_count=2), "min_count is 2"),
    ],
)
def test_options_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        make()
