"""Features of text: bags of tokens.

BagOfWords("review", clean=(LowerCase(), Tokens(ngrams=(1, 2))), size=10_000, weights="tf_idf")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from infeed.components.base.checks import require
from infeed.components.transform.analyses import Array, ByKey, as_word
from infeed.components.transform.feature import FlatColumn, Tables, Tensor, as_strings, tf
from infeed.components.transform.kinds.encode import Looked

_FIRST, _AGAIN = b"first", b"again"


@dataclass(frozen=True)
class BagOfWords(Looked):
    """Count or weigh the tokens of the vocabulary in a row, float32 [batch, n + `oov`].

    Index i is token i + 1 of `Vocabulary`, the most frequent first. Indices from n on are shared by tokens outside the
    vocabulary, which `oov=0` drops. A missing text is all 0.

        "counts"   occurrences in the row
        "binary"   1 if the token occurs
        "tf_idf"   occurrences / tokens of the row * (1 + log((rows + 1) / (rows with it + 1)))

    The last is the formula of `tft.tfidf`; `smooth=False` drops both "+ 1" in the logarithm. Tokens of the row include
    those outside the vocabulary, and rows include those without a token. It requires `oov=0`.
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
        """Return the width of the vector for a vocabulary of `values` values."""
        return values + self.oov

    def analyzed(self, column: FlatColumn) -> FlatColumn:
        """Return the tokens with keys that mark the first occurrence in a row, which counts the row."""
        if self.weights != "tf_idf":
            return column
        return column._replace(keys=tf.where(first_in_row(as_strings(column), column.row_splits), _FIRST, _AGAIN))

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        counts = found[0].overall if isinstance(found[0], ByKey) else found[0]
        words = self.words(counts)
        places = self.index(column, counts, tables) - 1  # -1 has no place
        rows = tf.RaggedTensor.from_row_splits(places, column.row_splits, validate=False)
        if self.weights != "tf_idf":
            return bag(rows, self.cardinality(len(words)), binary=self.weights == "binary")
        first = dict(found[0].of.items())[_FIRST].counts
        rows_with = {as_word(value): number for value, number in first.items()}
        return tf_idf(rows, [rows_with[word] for word in words], counts.rows, smooth=self.smooth)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return result

    def domain(self, found: Sequence[Any]) -> None:
        return None


def bag(indices: Tensor, size: int, *, binary: bool = False) -> Tensor:
    """Count each index in each row, float32 [batch, size], or mark its presence by 1.

    Indices are int64 [batch, (tokens)], 0 to `size` - 1. Negative indices are not counted.
    """
    rows = indices.nrows(out_type=tf.int64)
    cells = tf.where(indices.values < 0, indices.values, indices.value_rowids() * size + indices.values)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(cells, tf.float32), cells, rows * size)
    return tf.reshape(tf.minimum(counts, 1.0) if binary else counts, [rows, size])


def tf_idf(indices: Tensor, documents: Sequence[int] | Array, rows: int, *, smooth: bool = True) -> Tensor:
    """Compute term frequency times inverse document frequency, float32 [batch, size], as in `tft.tfidf`.

        tf(t, row) = occurrences of t in the row / tokens in the row; 0 in a row without tokens
        idf(t)     = 1 + log((rows + 1) / (documents(t) + 1))     smooth
                   = 1 + log(rows / documents(t))                 not smooth; documents(t) is at least 1

    Args:
      indices: int64 [batch, (tokens)], 0 to size - 1. Negative for a token outside the vocabulary.
      documents: [size], number of analyzed rows with each index.
      rows: number of analyzed rows, including rows without a token.
    """
    counts = bag(indices, len(documents))
    lengths = tf.cast(indices.row_lengths(), tf.float32)[:, tf.newaxis]
    rows_with = np.asarray(documents, np.float64)
    share = (rows + 1) / (rows_with + 1) if smooth else rows / np.maximum(rows_with, 1)
    return tf.math.divide_no_nan(counts, lengths) * np.asarray(1 + np.log(share), np.float32)


def first_in_row(tokens: Tensor, splits: Tensor) -> Tensor:
    """Return bool [n]: whether a token of [n] is the first of its kind in its row."""
    rows = tf.ragged.row_splits_to_segment_ids(splits)
    _, which = tf.unique(tf.strings.join([tf.strings.as_string(rows), tokens], "\x00"), tf.int64)
    count = tf.size(tokens, tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(count), which, count)
    return tf.gather(first, which) == tf.range(count)
