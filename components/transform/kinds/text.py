"""Texts as they are cleaned and taken apart: steps of `clean`, and the bag of words.

    Vocabulary("review", clean=(LowerCase(), StripAccents(), Tokens()), length=64)    indices of words, padded by 0
    BagOfWords("review", clean=(LowerCase(), Tokens(ngrams=(1, 2))), size=10_000, weights="tf_idf")

Text is UTF-8; bytes that are not become U+FFFD wherever characters are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.components.checks import as_tuples, check_choices, require
from infeed.components.transform.feature import Clean, FlatColumn


class TextStep(Clean):
    """A step that takes text."""

    @property
    def takes(self) -> tuple[str, ...]:
        return ("bytes",)


@dataclass(frozen=True)
class Trim(TextStep):
    """Text without white space (Unicode's) at the ends; text of nothing else becomes a missing value.

    Attributes:
      inner: also makes one space of each run of white space within.
    """

    inner: bool = False
    kind: Literal["trim"] = field(default="trim", kw_only=True, repr=False)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        from infeed.components.transform.operators.text import clean

        values = clean(column.values, ("squeeze", "trim") if self.inner else ("trim",))
        return column._replace(values=values, present=column.present & (values != ""))


@dataclass(frozen=True)
class LowerCase(TextStep):
    """Text in lower case, of all letters that Unicode has."""

    kind: Literal["lower_case"] = field(default="lower_case", kw_only=True, repr=False)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        from infeed.components.transform.operators.text import clean

        return column._replace(values=clean(column.values, ("lower",)))


@dataclass(frozen=True)
class StripAccents(TextStep):
    """Letters without their marks: é becomes e, Å becomes A.

    Each character is decomposed (Unicode's form NFD), its marks (of a combining class other than 0) are dropped, and
    the rest is composed again (NFC). Characters that are alike without being decomposed, such as ø and o, stay.
    """

    kind: Literal["strip_accents"] = field(default="strip_accents", kw_only=True, repr=False)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        from infeed.components.transform.operators.text import clean

        return column._replace(values=clean(column.values, ("strip_accents",)))


@dataclass(frozen=True)
class Tokens(TextStep):
    """Text to the list of its tokens, so that the feature is one of lists; a missing text has none.

    Attributes:
      unit: "words" are runs of letters, their marks, digits and underscores; "whitespace" is what white space
        separates; "characters" are Unicode's.
      ngrams: (least, most) tokens in a row that are joined to one, by a space or, of characters, by nothing. All of the
        least length come first. None spans two texts of a list.
    """

    unit: Literal["words", "whitespace", "characters"] = "words"
    ngrams: tuple[int, int] = (1, 1)
    kind: Literal["tokens"] = field(default="tokens", kw_only=True, repr=False)
    makes_lists = True

    def __post_init__(self) -> None:
        as_tuples(self, "ngrams")
        check_choices(self)
        is_range = len(self.ngrams) == 2 and 1 <= self.ngrams[0] <= self.ngrams[1]
        require(is_range, self, "ngrams", "give it as (least, most), such as (1, 2)")

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        import tensorflow as tf

        from infeed.components.transform.operators.text import tokens

        made = tokens(tf.where(column.present, column.values, ""), self.unit, self.ngrams)  # of each text
        splits = made.row_splits if column.splits is None else tf.gather(made.row_splits, column.splits)
        return column._replace(values=made.values, present=tf.ones_like(made.values, tf.bool), splits=splits)
