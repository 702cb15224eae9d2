"""Features that encode categories and numbers as indices or one-hot vectors.

Indices are int64, [batch, 1] or lists as in `Prepared`. Index 0 always means "missing", so that an embedding has a row
for it. Each class documents its handling of unseen values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.base.checks import as_tuples, at_least, refused, require
from infeed.components.base.errors import InfeedError
from infeed.components.transform.analyses import Analysis, ByKey, Frequencies, Quantiles
from infeed.components.transform.feature import Feature, FlatColumn, Tables, as_strings, each_output, is_finite, tf
from infeed.components.transform.kinds.clean import Prepared

_SEPARATOR = "\x1f"  # joins the parts of a cross: the unit separator of ASCII, which texts do not contain


@dataclass(frozen=True)
class Looked(Prepared):
    """Base of features with a vocabulary of strings or integers.

    Attributes:
      size: maximum number of values. The most frequent are kept.
      oov: number of indices shared by values outside the vocabulary.
      min_count: minimum count of a value in the vocabulary.
    """

    column: str
    output: str | None = None
    size: int | None = None
    oov: int = 1
    min_count: int = 1
    needs = (Frequencies,)
    shared = ("oov",)
    takes = ("int", "bytes")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "size", "min_count")
        at_least(self, 0, "oov")

    def cardinality(self, values: int) -> int:
        """Return the number of indices, the rows of an embedding table, for a vocabulary of `values` values."""
        return 1 + values + self.oov

    def words(self, found: Frequencies) -> list[bytes]:
        """Return the vocabulary in index order, from index 1 on."""
        return [*vocabulary_of(self, found, self.size, self.min_count)]

    def index(self, column: FlatColumn, found: Frequencies, tables: Tables) -> Any:
        """Return indices, int64 [n]."""
        words, tokens = self.words(found), as_strings(column)
        return self._numbered(column, tokens, tables.vocabulary(self.output_name, words, tokens), len(words))

    def indices(self, features: Sequence[Looked], column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        """Return the `index` of k features that are `alike`, int64 [k, n]."""
        words = {one.output_name: one.words(of_one[0]) for one, of_one in zip(features, found, strict=True)}
        tokens = as_strings(column)
        sizes = tf.constant([len(of_one) for of_one in words.values()], tf.int64)[:, tf.newaxis]
        return self._numbered(column, tokens, tables.vocabularies(words, tokens), sizes)

    def _numbered(self, column: FlatColumn, tokens: Any, place: Any, words: Any) -> Any:
        """Convert places in a vocabulary of `words` words to indices. Place -1 means not found."""
        if self.oov:
            others = tf.strings.to_hash_bucket_fast(tokens, self.oov) + words
            place = tf.where(place < 0, others, place)
        return tf.where(column.present, place + 1, 0)


def vocabulary_of(feature: Feature, found: Frequencies, size: int | None, least: int) -> dict[bytes, int]:
    """Return the words of a vocabulary in index order, with their counts. Raise InfeedError if there are none."""
    words = found.ranked(size, least)
    if not words:
        held = f"values such as {found.sample}" if found.sample else "no values"
        what = f"the vocabulary of {' and '.join(map(repr, feature.columns))} is empty: the training rows hold {held}"
        raise InfeedError(what, where=f"{feature}", do="leave the feature out, or lower min_count")
    return words


@dataclass(frozen=True)
class Vocabulary(Looked):
    """Encode string or integer categories as indices.

    Index 0 is a missing value. Indices 1 to n are the n values of the training rows, most frequent first, ties in
    descending byte order. Unseen values share n + 1 to n + `oov`, by their hash as in `tft.apply_vocabulary`. With
    `oov=0`, unseen values count as missing. `size` and `min_count` keep only frequent values. The empty string is
    never in the vocabulary. The transform graph stores the values in index order as a vocabulary asset, which has the
    name of the output.
    """

    kind: Literal["vocabulary"] = field(default="vocabulary", kw_only=True, repr=False)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        return self.index(column, found[0], tables)

    def apply_together(
        self, features: Sequence[Looked], column: FlatColumn, found: Sequence[Any], tables: Tables
    ) -> Any:
        return each_output(self.indices(features, column, found, tables))

    def domain(self, found: Sequence[Any]) -> tuple[int, int]:
        return 0, self.cardinality(len(self.words(found[0]))) - 1


@dataclass(frozen=True)
class OneHot(Looked):
    """Encode categories as one-hot vectors, float32 [batch, 1 + n + `oov`], with the indices of `Vocabulary`.

    A missing value sets index 0. Lists become multi-hot vectors. An empty list becomes all zeros.
    """

    kind: Literal["one_hot"] = field(default="one_hot", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.length is None, self, "length", "leave it out: a list becomes one vector")

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        depth = self.cardinality(len(self.words(found[0])))
        return tf.one_hot(self.index(column, found[0], tables), depth, dtype=tf.float32)

    def apply_together(
        self, features: Sequence[Looked], column: FlatColumn, found: Sequence[Any], tables: Tables
    ) -> Any:
        depths = [one.cardinality(len(one.words(of_one[0]))) for one, of_one in zip(features, found, strict=True)]
        indices = tf.unstack(self.indices(features, column, found, tables))
        return [tf.one_hot(index, depth, dtype=tf.float32) for index, depth in zip(indices, depths, strict=True)]

    def shape(self, column: FlatColumn, result: Any) -> Any:
        return result if column.splits is None else any_of_rows(column, result)


def any_of_rows(column: FlatColumn, vectors: Any) -> Any:
    """Return float32 [batch, depth], 1 if any vector [n, depth] of the row has a 1."""
    rows = tf.size(column.splits, tf.int64) - 1
    of_row = tf.ragged.row_splits_to_segment_ids(column.splits)
    return tf.maximum(tf.math.unsorted_segment_max(vectors, of_row, rows), 0.0)


@dataclass(frozen=True)
class Hash(Prepared):
    """Encode strings or integers as hash indices in `buckets` buckets, without an analysis.

    Index 0 is a missing value. Other values have index 1 + hash modulo `buckets`, as in `tft.hash_strings` (FarmHash's
    Fingerprint64 of the text). Different values may share an index. Unseen values are hashed like all others.
    """

    column: str
    buckets: int
    output: str | None = None
    kind: Literal["hash"] = field(default="hash", kw_only=True, repr=False)
    shared = ("buckets",)
    takes = ("int", "bytes")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "buckets")

    def cardinality(self) -> int:
        """Return the number of indices, which is the number of rows of an embedding table."""
        return 1 + self.buckets

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        index = tf.strings.to_hash_bucket_fast(as_strings(column), self.buckets)
        return tf.where(column.present, index + 1, 0)

    def domain(self, found: Sequence[Any]) -> tuple[int, int]:
        return 0, self.buckets


@dataclass(frozen=True)
class Bucketize(Prepared):
    """Encode numbers as the index of their quantile or range, 1 to `buckets`. A missing value is 0.

    Boundaries are quantiles of the training rows, which are data values with a rank error of at most 1 %, or `edges`,
    one fewer than buckets. A value on a boundary is in the bucket above it. Values outside the range of the training
    rows are in the first or the last bucket. With `key`, boundaries come from the rows with that key.
    """

    column: str
    buckets: int | None = None
    output: str | None = None
    edges: tuple[float, ...] = ()
    key: str | None = field(default=None, kw_only=True)
    kind: Literal["bucketize"] = field(default="bucketize", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        as_tuples(self, "edges")
        super().__post_init__()
        self.check_key(self.key)
        at_least(self, 2, "buckets")
        if (self.buckets is None) == (not self.edges):
            raise refused(self, "buckets", "set either buckets or edges", f"buckets is {self.buckets}")
        ascending = all(map(is_finite, self.edges)) and all(a < b for a, b in itertools.pairwise(self.edges))
        require(ascending, self, "edges", "use finite numbers in ascending order")
        constants = not (self.edges and (self.key or self.values == "by_position"))
        require(constants, self, "edges", 'leave them out, or key and values="by_position"')

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return () if self.edges else (Quantiles,)

    def cardinality(self) -> int:
        """Return the number of indices, which is the number of rows of an embedding table."""
        return 1 + (self.buckets or len(self.edges) + 1)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        values = tf.cast(column.values, tf.float64)
        buckets = self.cardinality() - 1
        fractions = [number / buckets for number in range(1, buckets)]
        if not self.edges and isinstance(found[0], ByKey):
            boundaries = tables.constants_by_key(found[0], lambda one: one.at(fractions), column.keys)
            index = tf.reduce_sum(tf.cast(values[:, tf.newaxis] >= boundaries, tf.int64), axis=1)
        else:
            boundaries = tf.constant(self.edges or found[0].at(fractions), tf.float64)
            index = tf.searchsorted(boundaries, values, side="right", out_type=tf.int64)
        return tf.where(column.present, index + 1, 0)

    def domain(self, found: Sequence[Any]) -> tuple[int, int]:
        return 0, self.cardinality() - 1


@dataclass(frozen=True)
class Cross(Feature):
    """Encode combinations of the values of several columns as categories, int64 [batch, 1].

    The values of a row, as text, are joined by ASCII's unit separator. With `buckets`, the result is hashed as in
    `Hash`. Otherwise, it is looked up in a vocabulary of combinations as in `Vocabulary`. If any value is missing, the
    index is 0. Columns hold strings or integers.
    """

    of: tuple[str, ...]
    output: str
    buckets: int | None = None
    size: int | None = None
    oov: int = 1
    min_count: int = 1
    kind: Literal["cross"] = field(default="cross", kw_only=True, repr=False)
    takes = ("int", "bytes")

    def __post_init__(self) -> None:
        as_tuples(self, "of")
        several = isinstance(self.of, tuple) and len(set(self.of)) == len(self.of) > 1
        require(several, self, "of", "use a list of at least two distinct columns")
        super().__post_init__()
        at_least(self, 1, "buckets", "size", "min_count")
        at_least(self, 0, "oov")

    @property
    def column(self) -> str:  # type: ignore[override]
        return self.of[0]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.of

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return self._joined.needs

    def prepare(self, columns: Sequence[FlatColumn]) -> FlatColumn:
        values = tf.strings.join([as_strings(column) for column in columns], _SEPARATOR)
        present = tf.reduce_all(tf.stack([column.present for column in columns]), axis=0)
        return FlatColumn(self.output, tf.where(present, values, ""), present)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        return self._joined.apply(column, found, tables)

    def domain(self, found: Sequence[Any]) -> tuple[int, int] | None:
        return self._joined.domain(found)

    @property
    def _joined(self) -> Hash | Vocabulary:
        if self.buckets:
            return Hash(self.output, self.buckets)
        return Vocabulary(self.output, size=self.size, oov=self.oov, min_count=self.min_count)
