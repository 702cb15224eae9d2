"""Pretrained word vectors: a feature, and readers of word2vec, GloVe, fastText and NumPy files.

PretrainedVectors("review", file="glove.6B.100d.txt", clean=(LowerCase(), Tokens()), pool="mean")
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from infeed.components.base.checks import at_least, require
from infeed.components.base.errors import InfeedError, value_errors
from infeed.components.dataset import files
from infeed.components.transform.feature import FlatColumn, Tables, as_strings, tf
from infeed.components.transform.kinds.clean import Prepared

Floats = npt.NDArray[np.float32]
_LINES = 4_096  # lines parsed at a time, by one call of NumPy
_READ = 1 << 20  # bytes
# Maximum bytes of a table in a graph, because a SavedModel is a protobuf message of at most 2 GiB.
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class PretrainedVectors(Prepared):
    """Encode words as vectors from a file, float32 [batch, dimensions], or as indices of its rows.

    Index 0 is a missing word, 1 to n are the words of the file in order, and n + 1 is a word that is not in the file.
    Lookup is case-sensitive. The vector of a missing word is 0.

    Attributes:
      file: text of word2vec, GloVe or fastText (a word and its numbers per line), or `.npy` [words, dimensions].
          Transform copies the content into the graph.
      words: for `.npy`, a text file with one word per line.
      size: number of words to read from the start of the file, where the frequent words are.
      gives: "vectors", or "indices": int64 as in `Vocabulary`, for a trainable embedding with the initial weights
          `table()`.
      unseen: vector of words that are not in the file: the "mean" of all vectors, or "zero".
      pool: for lists, "mean" averages the vectors of a row, float32 [batch, dimensions], 0 for an empty row. None
          gives ragged float32 [batch, None, dimensions], or [batch, length, dimensions].
    """

    column: str
    file: str
    output: str | None = None
    words: str | None = None
    size: int | None = None
    gives: Literal["vectors", "indices"] = "vectors"
    unseen: Literal["mean", "zero"] = "mean"
    pool: Literal["mean"] | None = None
    kind: Literal["pretrained_vectors"] = field(default="pretrained_vectors", kw_only=True, repr=False)
    takes = ("int", "bytes")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.file, str) and self.file, self, "file", "use the path of a file")
        at_least(self, 1, "size")
        pools = self.pool is None or (self.gives == "vectors" and self.length is None)
        require(pools, self, "pool", 'leave it out, or leave out length and set gives to "vectors"')

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file, self.words) if self.words else (self.file,)

    def table(self) -> Any:
        """Return float32 [1 + n + 1, dimensions], the vector of each index, as initial weights of an embedding."""
        return self._read().table(self.unseen)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        read = self._read()
        index = tables.vocabulary(self.output_name, read.words, as_strings(column))
        index = tf.where(index < 0, tf.constant(len(read.words), tf.int64), index)
        index = tf.where(column.present, index + 1, 0)
        if self.gives == "indices":
            return index
        if (size := read.vectors.nbytes) > _MOST_BYTES:
            what = f"the vectors of {self.file} take {size / 2**30:.1f} GiB, more than a saved graph can hold"
            do = 'read fewer words with size, or set gives to "indices" and keep the table in the model'
            raise InfeedError(what, where=f"{self}", do=do)
        return tf.gather(tf.constant(read.table(self.unseen)), index)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        if self.pool is None or column.splits is None:
            return super().shape(column, result)
        rows = tf.size(column.splits, tf.int64) - 1
        sums = tf.math.unsorted_segment_sum(result, tf.ragged.row_splits_to_segment_ids(column.splits), rows)
        lengths = tf.cast(column.splits[1:] - column.splits[:-1], tf.float32)
        return tf.math.divide_no_nan(sums, lengths[:, tf.newaxis])

    def domain(self, found: Sequence[Any]) -> tuple[int, int] | None:
        return (0, len(self._read().words) + 1) if self.gives == "indices" else None

    def _read(self) -> WordVectors:
        return read_vectors(self.file, self.words, self.size)


@dataclass(frozen=True)
class WordVectors:
    """Distinct words in the order of the file, and their vectors.

    Attributes:
      words: UTF-8, without white space at the ends.
      vectors: float32 [words, dimensions], finite.
    """

    words: list[bytes]
    vectors: Floats

    def table(self, unseen: str = "mean") -> Floats:
        """Return float32 [1 + words + 1, dimensions], the vector of each index.

        Index 0 is zeros, for a missing word. The last index, of unknown words, is the "mean" of all vectors or "zero".
        """
        zeros = np.zeros((1, self.vectors.shape[1]), np.float32)
        mean = self.vectors.mean(0, keepdims=True, dtype=np.float64).astype(np.float32)
        return np.concatenate([zeros, self.vectors, mean if unseen == "mean" else zeros])


@functools.lru_cache(maxsize=2)  # a feature reads the file several times while its graph is traced
def _read_file(path: str, versions: tuple[str, ...], words: str | None, size: int | None) -> WordVectors:
    found = _read_numpy(path, words, size) if path.endswith(".npy") else _read_text(path, size)
    if not len(found.vectors):
        raise InfeedError("there are no vectors", where=path, do="use a file of word vectors")
    seen: set[bytes] = set()
    for number, word in enumerate(found.words, 1):
        if not word or word in seen:
            what = f"word {number} is {word!r}, which {'occurs twice' if word else 'is empty'}"
            raise InfeedError(what, where=path, do="keep one vector per word")
        seen.add(word)
    finite = np.isfinite(found.vectors).all(1)
    if not finite.all():
        word = found.words[int(np.argmin(finite))]
        raise InfeedError(f"the vector of {word!r} is not finite", where=path, do="remove the word from the file")
    return found


def read_vectors(path: str, words: str | None = None, size: int | None = None) -> WordVectors:
    """Read word vectors from a file.

    Args:
      path: text with a word and its numbers on each line, separated by spaces, as in GloVe (word2vec and fastText files
        start with a line of two numbers, rows and dimensions); or `.npy`: floats [words, dimensions].
      words: for `.npy`, a text file with one word per line.
      size: number of words to read from the start, where files have the most frequent words.

    Raises:
      InfeedError: the file does not exist or has no vectors, a line has a wrong number of values or other text, a word
        occurs twice, or the numbers of words and vectors differ.
    """
    if words is not None and not path.endswith(".npy"):
        do = "leave out words, or use a .npy file"
        raise InfeedError(f"words is {words!r}, but the file contains words", where=path, do=do)
    try:
        versions = tuple(files.version(files.stat(one)) for one in (path, words) if one)
        return _read_file(path, versions, words, size)
    except FileNotFoundError as error:
        raise InfeedError(f"there is no file {str(error)!r}", where=path, do="correct the path") from error


def _read_numpy(path: str, words: str | None, size: int | None) -> WordVectors:
    if words is None:
        do = "set words to a text file with one word per line"
        raise InfeedError("the file contains no words", where=path, do=do)
    with files.open_input(path) as file, value_errors(path, "write it with numpy.save", "not an array of numbers: "):
        vectors = np.load(file, allow_pickle=False)
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        what = f"the array is {vectors.dtype} {list(vectors.shape)}"
        raise InfeedError(what, where=path, do="write floats [words, dimensions]")
    lines = files.read_bytes(words).decode("utf-8").splitlines()
    if len(lines) != len(vectors):
        do = "write one vector per word"
        raise InfeedError(f"{len(lines):,} words, and {len(vectors):,} vectors", where=f"{words} and {path}", do=do)
    return WordVectors([line.strip().encode() for line in lines[:size]], vectors[:size].astype(np.float32))


def _read_text(path: str, size: int | None) -> WordVectors:
    words: list[bytes] = []
    blocks: list[Floats] = []
    with files.open_input(path) as file:
        lines = islice(_lines(io.BufferedReader(file, _READ)), size)
        while block := list(islice(lines, _LINES)):
            width = blocks[0].shape[1] if blocks else block[0].count(b" ")
            if width < 1:
                raise InfeedError(f"the first line is {block[0][:80]!r}", where=path, do="use a file of word vectors")
            of_block, vectors = _parsed(block, len(words) + 1, width, path)
            words += of_block
            blocks.append(vectors)
    return WordVectors(words, np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32))


def _lines(file: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines without word2vec's first line, which has the numbers of rows and dimensions."""
    for number, line in enumerate(file):
        line = line.strip()
        is_header = number == 0 and len(line.split()) == 2 and line.replace(b" ", b"").isdigit()
        if line and not is_header:
            yield line


def _parsed(block: list[bytes], first: int, width: int, path: str) -> tuple[list[bytes], Floats]:
    """Split lines into words and their vectors. The first line is vector `first`, and words may contain spaces."""
    words, numbers = list[bytes](), list[bytes]()
    for number, line in enumerate(block, first):
        if (spaces := line.count(b" ")) < width:
            do = "write the same number of values on each line"
            raise InfeedError(f"vector {number:,} has {spaces} numbers, but the first has {width}", where=path, do=do)
        word, *of_word = line.split(b" ", 1) if spaces == width else line.rsplit(b" ", width)
        words.append(word.strip())
        numbers += of_word
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # NumPy reports unparsed text this way
            return words, np.fromstring(b" ".join(numbers), np.float32, sep=" ").reshape(len(block), width)
    except (ValueError, DeprecationWarning) as error:
        what = f"a word from {words[0]!r} to {words[-1]!r} is followed by text other than numbers: {error}"
        do = "write a word and its numbers on each line, separated by single spaces"
        raise InfeedError(what, where=path, do=do) from error
