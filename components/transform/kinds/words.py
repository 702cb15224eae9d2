"""Features of words and other tokens: bags of them, and vectors that somebody has trained.

BagOfWords("review", clean=(LowerCase(), Tokens(ngrams=(1, 2))), size=10_000, weights="tf_idf")
PretrainedVectors("review", file="glove.6B.100d.txt", clean=(LowerCase(), Tokens()), pool="mean")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from infeed.components.checks import at_least, require
from infeed.components.errors import InfeedError
from infeed.components.transform.analyses import ByKey, as_word
from infeed.components.transform.feature import FlatColumn, Tables, as_strings
from infeed.components.transform.kinds.clean import Prepared
from infeed.components.transform.kinds.encode import Looked

if TYPE_CHECKING:
    from infeed.components.transform.word_vectors import WordVectors

_FIRST, _AGAIN = b"first", b"again"
_MOST_BYTES = 1 << 30  # of a table within a graph: a SavedModel holds 2 GiB, in one message of protobuf
_PAD = 0


@dataclass(frozen=True)
class BagOfWords(Looked):
    """How much of each token of the vocabulary a row has, float32 [batch, n + `oov`].

    Place i is token i + 1 of `Vocabulary`: most frequent first. Places from n on are shared by tokens that are not in
    the vocabulary; with `oov=0` they are in no place. A missing text is a row of 0.

        "counts"   occurrences in the row
        "binary"   1 where it occurs
        "tf_idf"   occurrences / tokens of the row * (1 + log((rows + 1) / (rows with it + 1)))

    The last is the formula of `tft.tfidf`, of which `smooth=False` drops both "+ 1" within the logarithm. Tokens of the
    row are all of them, in the vocabulary or not; rows are all training rows, without a token as well. It takes
    `oov=0`.
    """

    oov: int = 0
    weights: Literal["counts", "binary", "tf_idf"] = "counts"
    smooth: bool = True
    kind: Literal["bag_of_words"] = field(default="bag_of_words", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length is None, self, "length", "leave it out: a row's tokens become one vector")
        require(self.values != "by_position", self, "values", 'give it as "one" or "all": a bag has no positions')
        counted = self.weights != "tf_idf" or self.oov == 0
        require(counted, self, "oov", 'give it as 0, or give weights as "counts" or "binary"')

    def cardinality(self, values: int) -> int:
        """The width of the vector where the vocabulary holds `values` values."""
        return values + self.oov

    def analysed(self, column: FlatColumn) -> FlatColumn:
        """The tokens, with keys that tell the first of its kind in a row from the others: it counts the row."""
        return column if self.weights != "tf_idf" else column._replace(keys=_occurrences(column))

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        import tensorflow as tf

        from infeed.components.transform.operators.text import bag, tf_idf

        counts = found[0].overall if isinstance(found[0], ByKey) else found[0]
        words = self.words(counts)
        places = self.index(column, counts, tables) - 1  # -1 has no place
        splits = tf.range(tf.size(places, tf.int64) + 1) if column.splits is None else column.splits
        rows = tf.RaggedTensor.from_row_splits(places, splits, validate=False)
        if self.weights != "tf_idf":
            return bag(rows, self.cardinality(len(words)), binary=self.weights == "binary")
        return tf_idf(rows, _rows_with(words, found[0]), counts.rows, smooth=self.smooth)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return result

    def domain(self, found: Sequence[Any]) -> None:
        return None


def _occurrences(column: FlatColumn) -> Any:
    """string [n]: "first" or "again" in its row."""
    import tensorflow as tf

    tokens = as_strings(column)
    count = tf.size(tokens, tf.int64)
    rows = tf.range(count) if column.splits is None else tf.ragged.row_splits_to_segment_ids(column.splits)
    _, which = tf.unique(tf.strings.join([tf.strings.as_string(rows), tokens], "\x00"), tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(count), which, count)
    return tf.where(tf.gather(first, which) == tf.range(count), _FIRST, _AGAIN)


def _rows_with(words: Sequence[bytes], found: ByKey[Any]) -> list[int]:
    """Of each word, the training rows that have it."""
    rows = {as_word(value): number for value, number in found.of[_FIRST].counts.items()}
    return [rows[word] for word in words]


@dataclass(frozen=True)
class PretrainedVectors(Prepared):
    """Words to the vectors that a file has for them, float32 [batch, dimensions], or to indices of its rows.

    Index 0 is a missing word, 1 to n are the words of the file in its order, and n + 1 is a word that the file does not
    have; a word that is written otherwise, such as in capitals, is another one. The vector of a missing word is 0.

    Attributes:
      file: text of word2vec, GloVe or fastText (a word and its numbers on a line), or `.npy` [words, dimensions]. It is
        read when Transform runs, and the graph holds what was in it.
      words: of a `.npy`, a text file of its words, one a line.
      size: how many words to read, from the start of the file, where the frequent ones are.
      gives: "vectors"; or "indices", int64 as of a `Vocabulary`, for an embedding of the model that starts from
        `table()` and goes on to learn.
      unseen: the vector of a word that the file does not have: the "mean" of all, or "zero".
      pool: of lists, the "mean" of the vectors of a row's words, float32 [batch, dimensions] and 0 without any; None:
        ragged float32 [batch, None, dimensions], or [batch, length, dimensions].
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

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.file, str) and self.file, self, "file", "give the path of a file")
        at_least(self, 1, "size")
        pools = self.pool is None or (self.gives == "vectors" and self.length is None)
        require(pools, self, "pool", 'leave it out, or leave length out and give gives as "vectors"')

    @property
    def takes(self) -> tuple[str, ...]:
        return "int", "bytes"

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file, self.words) if self.words else (self.file,)

    def table(self) -> Any:
        """float32 [1 + n + 1, dimensions]: the vector of each index, for an embedding to start from.

        Raises:
          InfeedError: the file cannot be read; see `word_vectors.py`.
        """
        return self._read().table(self.unseen)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        import tensorflow as tf

        read = self._read()
        index = tables.vocabulary(self.output_name, read.words, as_strings(column))
        index = tf.where(index < 0, tf.constant(len(read.words), tf.int64), index)
        index = tf.where(column.present, index + 1, 0)
        if self.gives == "indices":
            return index
        if read.vectors.nbytes > _MOST_BYTES:
            raise InfeedError(
                f"the vectors of {self.file} take {read.vectors.nbytes / 2**30:.1f} GiB, more than a saved graph holds",
                where=f"{self}",
                do='read fewer words with size, or give gives as "indices" and let the model hold the table',
            )
        return tf.gather(tf.constant(read.table(self.unseen)), index)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        import tensorflow as tf

        if self.pool is None or column.splits is None:
            return super().shape(column, result)
        rows = tf.size(column.splits, tf.int64) - 1
        sums = tf.math.unsorted_segment_sum(result, tf.ragged.row_splits_to_segment_ids(column.splits), rows)
        lengths = tf.cast(column.splits[1:] - column.splits[:-1], tf.float32)
        return tf.math.divide_no_nan(sums, lengths[:, tf.newaxis])

    def domain(self, found: Sequence[Any]) -> tuple[int, int] | None:
        return (0, len(self._read().words) + 1) if self.gives == "indices" else None

    def _read(self) -> WordVectors:
        from infeed.components.transform.word_vectors import read_vectors

        return read_vectors(self.file, self.words, self.size)
