"""Word vectors that somebody has trained, read from a file: the text of word2vec, GloVe and fastText, or NumPy's."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from infeed.components.dataset import files
from infeed.components.errors import InfeedError

Floats = npt.NDArray[np.float32]
_LINES = 4_096  # parsed at a time: the numbers of all of them are one call of NumPy
_READ = 1 << 20  # bytes


@dataclass(frozen=True)
class WordVectors:
    """Words in the order of the file, each once, and their vectors.

    Attributes:
      words: UTF-8, without white space at the ends.
      vectors: float32 [words, dimensions], finite.
    """

    words: list[bytes]
    vectors: Floats

    def table(self, unseen: str = "mean") -> Floats:
        """float32 [1 + words + 1, dimensions]: the vector of each index.

        Index 0 is zeros, for a missing word; then come the words; the last one is for a word that the file does not
        have.

        Args:
          unseen: the last row is the "mean" of all vectors, or "zero".
        """
        zeros = np.zeros((1, self.vectors.shape[1]), np.float32)
        mean = self.vectors.mean(0, keepdims=True, dtype=np.float64).astype(np.float32)
        return np.concatenate([zeros, self.vectors, mean if unseen == "mean" else zeros])


@functools.lru_cache(maxsize=2)  # a feature asks several times while its graph is made
def _read(path: str, versions: tuple[str, ...], words: str | None, size: int | None) -> WordVectors:
    return _checked(_read_numpy(path, words, size) if path.endswith(".npy") else _read_text(path, size), path)


def read_vectors(path: str, words: str | None = None, size: int | None = None) -> WordVectors:
    """Vectors of a file.

    Args:
      path: text with a word and its numbers on each line, separated by spaces, as GloVe has it (word2vec's and
        fastText's begins with a line of two numbers, rows and dimensions); or `.npy`: floats [words, dimensions].
      words: of a `.npy`, a text file of its words, one a line.
      size: how many to read, from the start: such files put the most frequent words first.

    Raises:
      InfeedError: no such file, no vectors in it, a line of another length or with something else than numbers, a word
        that stands there twice, or another number of words than of vectors.
    """
    if words is not None and not path.endswith(".npy"):
        raise InfeedError(
            f"words is {words!r}, but the file has words of its own",
            where=path,
            do="leave words out, or name a .npy file",
        )
    try:
        versions = tuple(files.version(files.stat(one)) for one in (path, words) if one)
        return _read(path, versions, words, size)
    except FileNotFoundError as error:
        raise InfeedError(f"there is no file {error}", where="word vectors", do="correct the path") from error


def _checked(found: WordVectors, path: str) -> WordVectors:
    if not len(found.vectors):
        raise InfeedError("there are no vectors", where=path, do="name a file of word vectors")
    seen: set[bytes] = set()
    for number, word in enumerate(found.words, 1):
        if not word or word in seen:
            raise InfeedError(
                f"word {number} is {word!r}, which is {'there twice' if word else 'empty'}",
                where=path,
                do="keep one vector for each word",
            )
        seen.add(word)
    finite = np.isfinite(found.vectors).all(1)
    if not finite.all():
        word = found.words[int(np.argmin(finite))]
        raise InfeedError(f"the vector of {word!r} is not finite", where=path, do="leave that word out of the file")
    return found


def _read_numpy(path: str, words: str | None, size: int | None) -> WordVectors:
    if words is None:
        raise InfeedError("the file has no words in it", where=path, do="give words, a text file with one a line")
    with files.open_input(path) as file:
        try:
            vectors = np.load(file, allow_pickle=False)
        except ValueError as error:
            raise InfeedError(f"no array of numbers: {error}", where=path, do="write it with numpy.save") from error
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        raise InfeedError(
            f"the array is {vectors.dtype} {list(vectors.shape)}", where=path, do="write floats [words, dimensions]"
        )
    lines = files.read_bytes(words).decode("utf-8").splitlines()
    if len(lines) != len(vectors):
        raise InfeedError(
            f"{len(lines):,} words, and {len(vectors):,} vectors", where=f"{words} and {path}", do="give each word one"
        )
    return WordVectors([line.strip().encode() for line in lines[:size]], vectors[:size].astype(np.float32))


def _read_text(path: str, size: int | None) -> WordVectors:
    words: list[bytes] = []
    blocks: list[Floats] = []
    with files.open_input(path) as file:
        lines = islice(_lines(io.BufferedReader(file, _READ)), size)
        while block := list(islice(lines, _LINES)):
            width = blocks[0].shape[1] if blocks else block[0].count(b" ")
            if width < 1:
                raise InfeedError(f"the first line is {block[0][:80]!r}", where=path, do="name a file of word vectors")
            pairs = [_split(line, width, number, path) for number, line in enumerate(block, len(words) + 1)]
            words += [word for word, _ in pairs]
            blocks.append(_parsed([numbers for _, numbers in pairs], width, [word for word, _ in pairs], path))
    return WordVectors(words, np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32))


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Without word2vec's first line, the numbers of rows and dimensions."""
    for number, line in enumerate(file):
        line = line.strip()
        is_header = number == 0 and len(line.split()) == 2 and line.replace(b" ", b"").isdigit()
        if line and not is_header:
            yield line


def _split(line: bytes, width: int, number: int, path: str) -> tuple[bytes, bytes]:
    """The word, which may hold spaces, and its numbers."""
    word, *numbers = line.split(b" ", 1) if line.count(b" ") == width else line.rsplit(b" ", width)
    if line.count(b" ") < width:
        raise InfeedError(
            f"vector {number:,} has {line.count(b' ')} numbers, and the first has {width}",
            where=path,
            do="write as many numbers on each line",
        )
    return word.strip(), b" ".join(numbers)


def _parsed(numbers: list[bytes], width: int, words: list[bytes], path: str) -> Floats:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # how NumPy says that it found something else
            return np.fromstring(b" ".join(numbers), np.float32, sep=" ").reshape(len(numbers), width)
    except (ValueError, DeprecationWarning) as error:
        raise InfeedError(
            f"something else than numbers follows a word from {words[0]!r} to {words[-1]!r}: {error}",
            where=path,
            do="write a word and its numbers on each line, separated by single spaces",
        ) from error
