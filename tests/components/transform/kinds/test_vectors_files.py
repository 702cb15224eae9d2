"""Files of word vectors, in each form that they come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from infeed.components.base.errors import InfeedError
from infeed.components.transform.kinds.vectors import read_vectors

WORDS = ["the", "föhn", ". . .", "x"]
VECTORS = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)


def lines_of(words: list[str], vectors: np.ndarray) -> str:
    return "".join(f"{w} {' '.join(map(repr, v.tolist()))}\n" for w, v in zip(words, vectors, strict=True))


def written(folder: Path, text: str) -> str:
    path = folder / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("header", ["", "4 5\n"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_text_of_glove_word2vec_and_fasttext(tmp_path: Path, header: str, end: str) -> None:
    found = read_vectors(written(tmp_path, header + lines_of(WORDS, VECTORS).replace("\n", end)))
    assert [word.decode() for word in found.words] == WORDS
    np.testing.assert_array_equal(found.vectors, VECTORS)


def test_numpys_file_has_its_words_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(np.float64))
    (tmp_path / "words.txt").write_text("\n".join(WORDS), encoding="utf-8")
    found = read_vectors(str(tmp_path / "v.npy"), str(tmp_path / "words.txt"), size=3)
    assert [word.decode() for word in found.words] == WORDS[:3]
    np.testing.assert_array_equal(found.vectors, VECTORS[:3])
    assert found.vectors.dtype == np.float32


def test_more_words_than_are_parsed_at_a_time_and_only_the_first(tmp_path: Path) -> None:
    words, vectors = [f"w{n}" for n in range(9_000)], np.arange(18_000, dtype=np.float32).reshape(-1, 2)
    path = written(tmp_path, lines_of(words, vectors))
    np.testing.assert_array_equal(read_vectors(path).vectors, vectors)
    assert read_vectors(path, size=5_000).words == [word.encode() for word in words[:5_000]]


def test_a_table_begins_with_zeros_and_ends_with_the_mean(tmp_path: Path) -> None:
    table = read_vectors(written(tmp_path, lines_of(WORDS, VECTORS))).table()
    assert table.shape == (6, 5)
    assert (table[0] == 0).all()
    np.testing.assert_array_equal(table[1:-1], VECTORS)
    np.testing.assert_allclose(table[-1], VECTORS.mean(0), rtol=1e-5)


def test_a_word_that_the_file_lacks_may_be_zeros(tmp_path: Path) -> None:
    table = read_vectors(written(tmp_path, lines_of(WORDS, VECTORS))).table("zero")
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
    np.save(path, VECTORS)
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
