"""How similar two texts of a row are, such as a query and a title.

Similarity("query", "title", "match")                                                     words, rare ones weigh more
Similarity("left", "right", "same", clean=(LowerCase(), Tokens("characters", (3, 3))))    typing errors cost little
Similarity("question", "answer", "fit", file="glove.6B.100d.txt")                         words of similar meaning count
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import at_least, require
from infeed.components.transform.analyses import Analysis, Frequencies
from infeed.components.transform.feature import FlatColumn, Tables, as_strings, tf
from infeed.components.transform.kinds.clean import AnyClean, LowerCase, Prepared, Tokens
from infeed.components.transform.kinds.encode import vocabulary_of
from infeed.components.transform.kinds.vectors import PretrainedVectors


@dataclass(frozen=True)
class Similarity(Prepared):
    """Compare two texts of a row: the cosine of their vectors, float32 [batch, 1].

    Without `file`, place t of a vector is occurrences of token t in the text * (1 + log((texts + 1) / (texts with it +
    1))), as in scikit-learn's `TfidfVectorizer`. Texts are those of both columns in the training rows, missing ones
    included. The result is in [0, 1]. A token that the vocabulary does not have weighs like one of no training text,
    and counts where both texts have it.

    With `file`, a vector is the mean of the vectors of the tokens that the file has, and the result is in [-1, 1].

    A text that is missing, or without a token that counts, is 0 similar to any other.

    Attributes:
      left, right: the two columns. Their order does not matter.
      clean: the steps that make tokens; by default the words, in lower case.
      size: maximum number of tokens in the vocabulary, those of the most texts; of a file, as in `PretrainedVectors`.
      min_count: minimum number of texts with a token of the vocabulary.
      file, words: word vectors, as in `PretrainedVectors`.
    """

    left: str
    right: str
    output: str
    size: int | None = None
    min_count: int = 1
    file: str | None = None
    words: str | None = None
    clean: tuple[AnyClean, ...] = field(default=(LowerCase(), Tokens()), kw_only=True)
    kind: Literal["similarity"] = field(default="similarity", kw_only=True, repr=False)
    takes = ("int", "bytes")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.left != self.right, self, "right", "name another column")
        require(self.length is None, self, "length", "leave it out: two texts give one number")
        require(self.values != "by_position", self, "values", 'give it as "one" or "all": tokens have no positions')
        at_least(self, 1, "size", "min_count")
        require(self.file or not self.words, self, "words", "leave them out, or give a file")
        require(self.min_count == 1 or not self.file, self, "min_count", "leave it out: the file has the vocabulary")

    @property
    def column(self) -> str:  # type: ignore[override]
        return self.left

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left, self.right

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return () if self.file else (Frequencies,)

    @property
    def files(self) -> tuple[str, ...]:
        return self._vectors.files if self.file else ()

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        """Return the tokens of 2 * batch texts: row i of the left column, then of the right one."""
        parts = []
        for column in columns:
            rows = tf.RaggedTensor.from_row_splits(as_strings(column), column.row_splits, validate=False)
            parts.append(tf.ragged.boolean_mask(rows, rows.with_values(column.present)))
        texts = tf.stack(parts, axis=1).merge_dims(0, 1)
        return FlatColumn(self.output, texts.values, tf.ones_like(texts.values, tf.bool), texts.row_splits)

    def analyzed(self, column: FlatColumn) -> FlatColumn:
        """Return the tokens with the first occurrence in each text present, which counts the texts."""
        from infeed.components.transform.operators.text import first_in_row

        return column._replace(present=first_in_row(column.values, column.splits))

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        from infeed.components.transform.operators import text

        if self.file:
            return text.cosine_of_sums(self._vectors.apply(column, (), tables), column.splits)
        words = vocabulary_of(self, found[0], self.size, self.min_count)
        weights = tf.constant(text.inverse_document_frequency([0, *words.values()], found[0].rows))
        weights = tf.gather(weights, tables.vocabulary(self.output, [*words], column.values) + 1)
        return text.cosine_of_counts(column.values, weights, column.splits)

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return result[:, tf.newaxis]

    @property
    def _vectors(self) -> PretrainedVectors:
        """Return the feature of the tokens' vectors, 0 for those that the file does not have."""
        return PretrainedVectors(self.output, str(self.file), words=self.words, size=self.size, unseen="zero")
