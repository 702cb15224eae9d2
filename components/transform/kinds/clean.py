"""Steps that clean a column before its feature is computed, and `Fill`, a feature that only cleans.

    ZScore("age", clean=(FillWith("median"), Clip(0.0, 100.0)))
    Vocabulary("review", clean=(LowerCase(), StripAccents(), Tokens()), length=64)    word indices, padded by 0

Constants come from the training rows after the previous steps. For lists, they come from all positions together. Text
is UTF-8. Steps that examine characters replace invalid bytes by U+FFFD.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np

from infeed.components.base.annotations import Tagged
from infeed.components.base.checks import as_tuples, at_least, check_fields, require
from infeed.components.base.errors import InfeedError
from infeed.components.transform.analyses import Analysis, Array, Frequencies, Moments, Quantiles
from infeed.components.transform.feature import Clean, Feature, FlatColumn, Tables, Tensor, Values, is_finite, tf
from infeed.components.transform.kinds.dates import DatePart

# White space as in `str.isspace`. RE2's `\s` covers only ASCII.
_SPACE = r"[\s\v\x1c-\x1f\x{85}\pZ]"
# Text between words: everything but letters, their marks, digits and the underscore.
_BETWEEN_WORDS = r"[^\pL\pM\pN_]+"
_NOTHING = -1  # a mark on its own, which is removed
_STATISTICS: dict[Any, type[Analysis]] = {"mean": Moments, "median": Quantiles, "mode": Frequencies}


@dataclass(frozen=True)
class FillWith(Clean):
    """Replace missing values by a constant of the column's type, or by the "mean", "median" or "mode".

    Mean and median require numbers. The mode is the most frequent string or integer. Ties go to the later in byte
    order. The mean converts an integer column to floats. Text cannot be filled with the literal word "mean": use index
    0 of a `Vocabulary`.
    """

    value: float | str
    kind: Literal["fill_with"] = field(default="fill_with", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        is_value = isinstance(self.value, str) or is_finite(self.value)
        require(is_value, self, "value", 'use a finite number, a string, "mean", "median" or "mode"')

    @property
    def needs(self) -> tuple[type[Analysis], ...]:  # type: ignore[override]
        return (_STATISTICS[self.value],) if self.value in _STATISTICS else ()

    @property
    def takes(self) -> tuple[str, ...]:
        if self.value == "mode":
            return "int", "bytes"
        return ("bytes",) if isinstance(self.value, str) and not self.needs else ("int", "float")

    def gives(self, type_: str) -> str:
        whole = isinstance(self.value, str) or float(self.value).is_integer()
        return "float" if type_ == "int" and (self.value == "mean" or not whole) else type_

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        value = self._value(found[0], column) if found else self.value
        values = column.values
        if values.dtype == tf.int64 and not float(value).is_integer():
            values = tf.cast(values, tf.float32)
        value = tf.constant(int(value) if values.dtype == tf.int64 else value, values.dtype)
        return column._replace(values=tf.where(column.present, values, value), present=tf.ones_like(column.present))

    def _value(self, found: Any, column: FlatColumn) -> Any:
        if not found.count:
            what = f"column {column.name!r} has no values, so there is no {self.value} to fill it with"
            raise InfeedError(what, where=f"{self}", do="fill it with a constant, or leave the column out")
        if isinstance(found, Frequencies):
            return found.mode
        return found.mean if isinstance(found, Moments) else found.at([0.5])[0]


@dataclass(frozen=True)
class Clip(Clean):
    """Clip numbers to `low` and `high`. None disables a bound."""

    low: float | None = None
    high: float | None = None
    kind: Literal["clip"] = field(default="clip", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = getattr(self, name)
            require(bound is None or is_finite(bound), self, name, "use a finite number, or None")
        require(self.low is not None or self.high is not None, self, "low", "set low, high or both")
        ordered = self.low is None or self.high is None or self.low <= self.high
        require(ordered, self, "high", "use a number of at least low")

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        values = column.values
        whole = values.dtype == tf.int64
        if self.low is not None:
            values = tf.maximum(values, tf.constant(math.ceil(self.low) if whole else self.low, values.dtype))
        if self.high is not None:
            values = tf.minimum(values, tf.constant(math.floor(self.high) if whole else self.high, values.dtype))
        return column._replace(values=tf.where(column.present, values, column.values))


@dataclass(frozen=True)
class Trim(Clean):
    """Remove Unicode white space at the ends of text. Text of only white space becomes missing.

    Attributes: inner: whether to also replace each inner run of white space by one space.
    """

    inner: bool = False
    kind: Literal["trim"] = field(default="trim", kw_only=True, repr=False)
    takes = ("bytes",)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        values = trim(squeeze(column.values) if self.inner else column.values)
        return column._replace(values=values, present=column.present & (values != ""))


@dataclass(frozen=True)
class LowerCase(Clean):
    """Convert text to lower case, for all Unicode letters."""

    kind: Literal["lower_case"] = field(default="lower_case", kw_only=True, repr=False)
    takes = ("bytes",)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        return column._replace(values=tf.strings.lower(column.values, encoding="utf-8"))


@dataclass(frozen=True)
class StripAccents(Clean):
    """Remove the marks of letters: é becomes e, and Å becomes A.

    Characters are decomposed (Unicode NFD), marks (combining class other than 0) are removed, and the rest is composed
    (NFC). Similar characters without a decomposition, such as ø, are unchanged.
    """

    kind: Literal["strip_accents"] = field(default="strip_accents", kw_only=True, repr=False)
    takes = ("bytes",)

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        return column._replace(values=strip_accents(column.values))


@dataclass(frozen=True)
class Tokens(Clean):
    """Split text into a list of tokens. Missing text has no tokens.

    Attributes:
      unit: "words" are runs of letters, marks, digits and underscores; "whitespace" splits at white space; "characters"
        are Unicode characters.
      ngrams: (least, most) numbers of consecutive tokens to join, by a space or, for characters, by nothing. Shorter
        n-grams come first. N-grams do not span texts of a list.
    """

    unit: Literal["words", "whitespace", "characters"] = "words"
    ngrams: tuple[int, int] = (1, 1)
    kind: Literal["tokens"] = field(default="tokens", kw_only=True, repr=False)
    takes = ("bytes",)
    makes_lists = True

    def __post_init__(self) -> None:
        as_tuples(self, "ngrams")
        check_fields(self)
        is_range = len(self.ngrams) == 2 and 1 <= self.ngrams[0] <= self.ngrams[1]
        require(is_range, self, "ngrams", "use (least, most), such as (1, 2)")

    def apply(self, column: FlatColumn, found: Sequence[Any]) -> FlatColumn:
        made = tokens(tf.where(column.present, column.values, ""), self.unit, self.ngrams)  # tokens of each text
        splits = made.row_splits if column.splits is None else tf.gather(made.row_splits, column.splits)
        return column._replace(values=made.values, present=tf.ones_like(made.values, tf.bool), splits=splits)


AnyClean = Annotated[FillWith | Clip | Trim | LowerCase | StripAccents | Tokens | DatePart, Tagged("kind")]


@dataclass(frozen=True)
class Prepared(Feature):
    """Base of features of one column, with cleaning steps and support for lists.

    Attributes:
      clean: cleaning steps, in order.
      values: content of a row. "one": a single value; several values are an error. "all": a list with common
          constants. "by_position": a list with separate constants for each position.
      length: number of values of a list to keep. Shorter rows are padded with 0 or "". None gives a ragged feature.
    """

    clean: tuple[AnyClean, ...] = field(default=(), kw_only=True)
    values: Values = field(default="one", kw_only=True)
    length: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        as_tuples(self, "clean")
        super().__post_init__()
        at_least(self, 1, "length")
        is_clean = all(isinstance(step, Clean) for step in self.clean)
        require(is_clean, self, "clean", "use a list of steps such as FillWith(0.0) and Clip(0.0, 1.0)")
        lists = self.length is None or self.values != "one" or any(step.makes_lists for step in (*self.clean, self))
        require(lists, self, "length", 'leave it out, or set values="all" if rows hold lists')

    def check_key(self, key: str | None) -> None:
        """Raise OptionError unless `key` is None, or names a column and constants are not by position."""
        require(key is None or bool(key), self, "key", "use the name of a column, or None")
        one = key is None or self.values != "by_position"
        require(one, self, "key", 'leave it out, or do not set values="by_position"')


@dataclass(frozen=True)
class Fill(Prepared):
    """Column without changes, [batch, 1] of its type, with `value` for missing values."""

    column: str
    value: float | str
    output: str | None = None
    kind: Literal["fill"] = field(default="fill", kw_only=True, repr=False)
    shared = ("value",)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_value = isinstance(self.value, str) or is_finite(self.value)
        require(is_value, self, "value", "use a finite number or a string")

    @property
    def takes(self) -> tuple[str, ...]:
        if isinstance(self.value, str):
            return ("bytes",)
        return ("int", "float") if float(self.value).is_integer() else ("float",)

    def apply(self, column: FlatColumn, found: Sequence[Any], tables: Tables) -> Any:
        dtype = column.values.dtype
        value = tf.constant(int(self.value) if dtype == tf.int64 else self.value, dtype)
        return tf.where(column.present, column.values, value)


def trim(texts: Tensor) -> Tensor:
    """Remove white space at both ends."""
    return tf.strings.regex_replace(texts, rf"^{_SPACE}+|{_SPACE}+$", "")


def squeeze(texts: Tensor) -> Tensor:
    """Replace each run of white space by one space."""
    return tf.strings.regex_replace(texts, rf"{_SPACE}+", " ")


def strip_accents(texts: Tensor) -> Tensor:
    """Remove marks from letters: é becomes e."""
    characters = tf.strings.unicode_decode(texts, "UTF-8")  # [n, (characters)] int32
    accented, bare = _bare_letters()
    at = tf.minimum(tf.searchsorted(accented, characters.values), len(accented) - 1)
    known = tf.equal(tf.gather(accented, at), characters.values)
    letters = characters.with_values(tf.where(known, tf.gather(bare, at), characters.values))
    letters = tf.ragged.boolean_mask(letters, letters.with_values(letters.values != _NOTHING))
    return tf.strings.unicode_encode(letters, "UTF-8")


@cache
def _bare_letters() -> tuple[Array, Array]:
    """Return the code points of characters with marks, ascending, and the characters without marks, int32 [n].

    A character is decomposed (Unicode's canonical form NFD), marks (characters with a combining class other than 0)
    are dropped, and the rest is composed again (NFC), which preserves Hangul syllables.
    """
    marked = {}
    for code in range(0x20000):  # later code points have no marks
        letters = unicodedata.normalize("NFD", chr(code))
        rest = "".join(letter for letter in letters if not unicodedata.combining(letter))
        if rest != letters:
            marked[code] = ord(unicodedata.normalize("NFC", rest)) if rest else _NOTHING
    return np.array(list(marked), np.int32), np.array(list(marked.values()), np.int32)


def tokens(texts: Tensor, unit: str, ngrams: tuple[int, int] = (1, 1)) -> Tensor:
    """Return the tokens of each text, ragged [n, (tokens)] string.

    Args:
      unit: "words" (runs of letters, digits and underscores), "whitespace" (text between white space) or
        "characters".
      ngrams: (least, most) numbers of consecutive tokens to join, by a space, or for characters by nothing. Shorter
          n-grams come first. A text with fewer than `least` tokens has none.
    """
    if unit == "characters":
        parts = tf.strings.unicode_split(texts, "UTF-8")
    elif unit == "whitespace":
        parts = tf.strings.split(squeeze(texts))
    else:
        parts = tf.strings.split(tf.strings.strip(tf.strings.regex_replace(texts, _BETWEEN_WORDS, " ")))
    if ngrams == (1, 1):
        return parts
    separator = "" if unit == "characters" else " "
    return tf.strings.ngrams(parts, tuple(range(ngrams[0], ngrams[1] + 1)), separator=separator)
