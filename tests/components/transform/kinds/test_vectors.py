"""Pretrained vectors as features, and the files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.vectors import PretrainedVectors, read_vectors

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to load

Transform = Callable[..., dict[str, np.ndarray]]
STEPS = (LowerCase(), Tokens())
VECTORS = {"good": [1.0, 0.0], "coffee": [0.5, 2.0], "tea": [-1.0, 1.0]}


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {one} {two}\n" for word, (one, two) in VECTORS.items()))
    return str(path)


def test_vectors_of_words_missing_ones_and_ones_the_file_lacks(vectors: str, transform: Transform) -> None:
    columns = {"x": [b"tea", None, b"milk", b"good"]}
    features = [PretrainedVectors("x", vectors), PretrainedVectors("x", vectors, output="zero", unseen="zero")]
    found = transform(columns, features)
    mean = np.mean(list(VECTORS.values()), 0)
    np.testing.assert_allclose(found["x"], [VECTORS["tea"], [0, 0], mean, VECTORS["good"]], rtol=1e-6)
    np.testing.assert_allclose(found["zero"][2], [0, 0])
    assert found["x"].dtype == np.float32


def test_indices_lead_to_rows_of_the_table(vectors: str, transform: Transform) -> None:
    feature = PretrainedVectors("x", vectors, gives="indices", size=2)
    found = transform({"x": [b"coffee", None, b"tea", b"good"]}, [feature])["x"]
    assert found.tolist() == [[2], [0], [3], [1]]
    np.testing.assert_allclose(feature.table()[found[:, 0]], [[0.5, 2], [0, 0], [0.75, 1], [1, 0]])


def test_vectors_of_the_words_of_a_text(vectors: str, transform: Transform) -> None:
    columns = {"x": [b"Good, good coffee", None, b"tea"]}
    features = [
        PretrainedVectors("x", vectors, clean=STEPS, pool="mean"),
        PretrainedVectors("x", vectors, output="padded", clean=STEPS, length=2),
    ]
    found = transform(columns, features)
    np.testing.assert_allclose(found["x"], [[2.5 / 3, 2 / 3], [0, 0], [-1, 1]], rtol=1e-6)
    assert found["padded"].tolist() == [[[1, 0], [1, 0]], [[0, 0], [0, 0]], [[-1, 1], [0, 0]]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PretrainedVectors("x", ""), "file is ''"),
        (lambda: PretrainedVectors("x", "f", gives="indices", pool="mean"), "pool is 'mean'"),
        (lambda: PretrainedVectors("x", "f", size=0), "size is 0"),
    ],
)
def test_options_are_checked(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        make()


def test_a_file_that_is_not_there_is_named(transform: Transform) -> None:
    with pytest.raises(InfeedError, match="there is no file"):
        transform({"x": [b"a"]}, [PretrainedVectors("x", "/nowhere/vectors.txt")])


WORDS = ["the", "föhn", ". . .", "x"]
NUMBERS = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)


def lines_of(words: list[str], vectors: np.ndarray) -> str:
    return "".join(f"{w} {' '.join(map(repr, v.tolist()))}\n" for w, v in zip(words, vectors, strict=True))


def written(folder: Path, text: str) -> str:
    path = folder / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("header", ["", "4 5\n"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_text_of_glove_word2vec_and_fasttext(tmp_path: Path, header: str, end: str) -> None:
    found = read_vectors(written(tmp_path, header + lines_of(WORDS, NUMBERS).replace("\n", end)))
    assert [word.decode() for word in found.words] == WORDS
    np.testing.assert_array_equal(found.vectors, NUMBERS)


def test_numpys_file_has_its_words_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", NUMBERS.astype(np.float64))
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    found = read_vectors(str(tmp_path / "v.npy"), str(tmp_path / "words.txt"), size=3)
    assert [word.decode() for word in found.words] == WORDS[:3]
    np.testing.assert_array_equal(found.vectors, NUMBERS[:3])
    assert found.vectors.dtype == np.float32


def test_more_words_than_are_parsed_at_a_time_and_only_the_first(tmp_path: Path) -> None:
    words, vectors = [f"w{n}" for n in range(9_000)], np.arange(18_000, dtype=np.float32).reshape(-1, 2)
    path = written(tmp_path, lines_of(words, vectors))
    np.testing.assert_array_equal(read_vectors(path).vectors, vectors)
    assert read_vectors(path, size=5_000).words == [word.encode() for word in words[:5_000]]


def test_a_table_begins_with_zeros_and_ends_with_the_mean(tmp_path: Path) -> None:
    table = read_vectors(written(tmp_path, lines_of(WORDS, NUMBERS))).table()
    assert table.shape == (6, 5)
    assert (table[0] == 0).all()
    np.testing.assert_array_equal(table[1:-1], NUMBERS)
    np.testing.assert_allclose(table[-1], NUMBERS.mean(0), rtol=1e-5)


def test_a_word_that_the_file_lacks_may_be_zeros(tmp_path: Path) -> None:
    table = read_vectors(written(tmp_path, lines_of(WORDS, NUMBERS))).table("zero")
    assert (table[[0, -1]] == 0).all()


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "a 1 2\n")
    assert read_vectors(path).vectors.tolist() == [[1, 2]]
    written(tmp_path, "a 3 4 5\n")
    assert read_vectors(path).vectors.tolist() == [[3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no vectors"),
        ("3 2\n", "there are no vectors"),
        ("word\n", "first line is b'word'"),
        ("a 1 2\nb 1\n", "vector 2 has 1 numbers, but the first has 2"),
        ("a 1 2\nb 1 x\n", "from b'a' to b'b'"),
        ("a 1 2\na 3 4\n", "word 2 is b'a', which occurs twice"),
        ("a 1 nan\n", "the vector of b'a' is not finite"),
    ],
)
def test_a_file_of_something_else(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InfeedError, match=message):
        read_vectors(written(tmp_path, text))


def test_what_numpys_file_may_be(tmp_path: Path) -> None:
    path, words = str(tmp_path / "v.npy"), str(tmp_path / "words.txt")
    np.save(path, NUMBERS)
    with pytest.raises(InfeedError, match="no words"):
        read_vectors(path)
    Path(words).write_text("a\nb")
    with pytest.raises(InfeedError, match="2 words, and 4 vectors"):
        read_vectors(path, words)
    np.save(path, np.arange(4))
    with pytest.raises(InfeedError, match=r"the array is int64 \[4\]"):
        read_vectors(path, words)
    np.save(path, np.array([{}]), allow_pickle=True)
    with pytest.raises(InfeedError, match="not an array of numbers"):
        read_vectors(path, words)


def test_words_are_only_for_numpys_file(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match="the file contains words"):
        read_vectors(written(tmp_path, "a 1\n"), "words.txt")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InfeedError, match=r"there is no file .*none\.txt"):
        read_vectors(str(tmp_path / "none.txt"))
