"""Proposals of features for the columns of a table, with reasons, from statistics alone.

    for proposal in infer_features(manifest.schema, statistics_of(root, "train"), label="income"):
        print(proposal.column, proposal.features, proposal.reason)

The proposals are a starting point: statistics show the content of a column, not its meaning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from shlex import quote
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from infeed.components.dataset.statistics.column_statistics import ColumnStatistics
from infeed.components.dataset.time_formats import ISO, formats_of
from infeed.components.transform.feature import Feature
from infeed.components.transform.kinds.clean import LowerCase, Tokens
from infeed.components.transform.kinds.dates import DatePart
from infeed.components.transform.kinds.encode import Vocabulary
from infeed.components.transform.kinds.label import Label, Task
from infeed.components.transform.kinds.scale import ZScore

Looks = Literal["", "sentences", "dates", "amounts", "numbers"]

MAX_VOCABULARY = 10_000  # rarer words occur too seldom to learn an embedding
MAX_WORDS = 64  # maximum number of words of a text or list
MAX_PLACES = 256  # maximum length of a list of numbers, each scaled separately
MAX_INTEGER_CLASSES = 20  # an integer label with more distinct values is a quantity
_CLASSES_OF_A_ROW, _ROWS_OF_A_CLASS = 10, 2  # more integer classes than the first have the second average rows
# A text column with more than half of its values distinct identifies rows and does not describe them.
_IDENTIFIER_SHARE = 0.5
_MIN_IDENTIFIERS = 100
_FEW_VALUES, _FEW_SHARE = 10, 0.1  # with fewer values than both limits, all of them may be in one split
_MIN_NUMBERED = 20  # with fewer rows, integers may be consecutive by chance
SAMPLE = 1_000  # number of distinct text values to examine
OWN_VALUE = "nearly every row has a distinct value"
_GIVE_VALUES = "pass some of its values: infer_features(..., values={column: values})"
_WORDS_OF_A_SENTENCE = 4
_MOST = 0.8
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d.*)?")
_AMOUNT = re.compile(r"[-+(]?\s*[$€£¥]?\s*\d{1,3}([,' ]?\d{3})*([.,]\d+)?\s*(%|[$€£¥]|[A-Z]{3})?\)?")


class Proposal(NamedTuple):
    """The features of one column.

    Attributes:
      features: proposed features. Empty if the column is skipped.
      reason: reason for the proposal.
      advice: how to make the column more useful, or "".
    """

    column: str
    features: tuple[Feature, ...]
    reason: str
    advice: str = ""


class TextLook(NamedTuple):
    """Format of the texts in a column."""

    looks: Looks
    example: str = ""  # example value. For numbers, a value that is not a number
    format: str = ""  # format of dates, if all sampled dates share one
    is_alone: bool = False  # whether all values but the example are numbers

    @property
    def advice(self) -> str:
        """Return how to prepare such a column for training, or ""."""
        advice = {
            "dates": f"write {self.example!r} as numbers, or set its format with DatePart(format=...)",
            "amounts": f"read cells such as {self.example!r} as numbers: {_flag('numbers', {'COLUMN': self.example})}",
            "numbers": f"if {self.example!r} means a missing value, use {_flag('nulls', ['', self.example])}",
        }
        return "" if self.format or (self.looks == "numbers" and not self.is_alone) else advice.get(self.looks, "")


def _flag(option: str, value: object) -> str:
    return f"--set {quote(f'{option}={json.dumps(value, ensure_ascii=False)}')}"


def infer_features(
    schema: Mapping[str, str],
    statistics: Mapping[str, ColumnStatistics],
    label: str | None = None,
    task: Task | None = None,
    values: Mapping[str, Sequence[bytes]] = MappingProxyType({}),
    keep: Collection[str] = (),
    has_nulls: bool = True,
) -> list[Proposal]:
    """Return one proposal per column, in the order of the schema.

    Output names are unique and have no slash, which Keras does not allow.

    Args:
      schema: column -> type in a tf.Example, "int", "float" or "bytes".
      statistics: statistics of the training rows, by column. A column without statistics is empty.
      label: the label column.
      task: task of the label. None calls `infer_task`.
      values: text column -> distinct values of random rows, to detect sentences, dates and codes. Defaults to the
          counted values, but statistics of more than 10,000 distinct values count only frequent ones, or none.
      keep: text columns to keep as sentences, although nearly every row has a distinct value.
      has_nulls: whether the format of the table has the option `nulls` for words that mean a missing value, as CSV has.
    """
    names = _Names(schema, label)
    proposals = []
    for column, type_ in schema.items():
        found = statistics.get(column) or ColumnStatistics.none(column, type_)  # type: ignore[arg-type]
        if column == label:
            learned = Label(column, task=task or infer_task(found))
            proposals.append(Proposal(column, (learned,), "it is the label"))
        elif useless := _why_useless(found):
            proposals.append(Proposal(column, (), useless))
        elif found.lengths.maximum > 1:
            proposals.append(_of_lists(found, names))
        elif found.type == "bytes":
            texts = values.get(column) or counted_values(found)
            proposals.append(_of_text(found, names, texts, column in keep, has_nulls))
        else:
            scaled = ZScore(column, output=names.of(column))
            proposals.append(Proposal(column, (scaled,), "it holds numbers, which are scaled"))
    return proposals


def infer_task(label: ColumnStatistics) -> Literal["classification", "regression"]:
    """Return "classification" for text and up to 20 distinct integers, else "regression".

    More than 10 distinct integers are classes only if each occurs twice on average.
    """
    if label.type == "bytes":
        return "classification"
    distinct = label.counts.distinct
    few = distinct <= MAX_INTEGER_CLASSES and are_whole(label)
    # Of few rows, the values of a quantity are few as well, but they seldom repeat.
    repeat = distinct <= _CLASSES_OF_A_ROW or values_in(label) >= _ROWS_OF_A_CLASS * distinct
    return "classification" if few and repeat else "regression"


def are_whole(column: ColumnStatistics) -> bool:
    """Return whether all counted numbers are integers, such as 1.0.

    False if a float column has too many values to count.
    """
    if column.type != "float":
        return column.type == "int"
    values = np.asarray(column.counts.values)
    return column.counts.exact and bool((values == np.floor(values)).all())


def values_in(column: ColumnStatistics) -> int:
    """Return the number of values that are not missing, NaN or infinite."""
    return column.values if column.type == "bytes" else column.finite


class _Names:
    """Allocator of unique output names."""

    def __init__(self, columns: Iterable[str], label: str | None) -> None:
        self._columns = {name for name in columns if "/" not in name} | ({label} if label else set())
        self._given: set[str] = set()

    def of(self, column: str, suffix: str = "") -> str:
        name = column.replace("/", "_") + suffix
        own = name == column
        while name in self._given or (not own and name in self._columns):
            name += "_"
        self._given.add(name)
        return name


def _why_useless(column: ColumnStatistics) -> str:
    """Return why the column is useless for learning, or ""."""
    if not values_in(column):
        return "it is empty"
    if column.present < min(_FEW_VALUES, _FEW_SHARE * column.rows):
        return f"only {column.present:,} of {column.rows:,} rows have a value"
    if column.counts.distinct + column.counts.uncounted == 1 and values_in(column) == column.rows:
        return "every row has the same value"
    if _numbers_rows(column):
        return "it numbers the rows"
    if column.invalid_utf8 > (1 - _MOST) * column.values:
        return "it holds bytes that are not text"
    return ""


def _numbers_rows(column: ColumnStatistics) -> bool:
    """Return whether the column holds consecutive integers, once each, judged by their sum and sum of squares."""
    is_single = column.values == column.rows and column.lengths.maximum <= 1
    if column.type != "int" or column.rows < _MIN_NUMBERED or not is_single:
        return False
    first, last = int(column.minimum or 0), int(column.maximum or 0)
    return (
        last - first + 1 == column.rows
        and column.total.fraction == Fraction((first + last) * column.rows, 2)
        and column.squares.fraction == _sum_of_squares(last) - _sum_of_squares(first - 1)
    )


def _sum_of_squares(last: int) -> Fraction:
    """Return 1 + 4 + 9 + ... + last^2 as a polynomial, which is also correct for negative numbers."""
    return Fraction(last * (last + 1) * (2 * last + 1), 6)


def _of_lists(column: ColumnStatistics, names: _Names) -> Proposal:
    least, most, name = column.lengths.minimum, column.lengths.maximum, column.name
    if column.type != "float":
        length = min(most, MAX_WORDS)
        feature: Feature = Vocabulary(name, output=names.of(name), size=MAX_VOCABULARY, values="all", length=length)
        return Proposal(name, (feature,), f"its rows hold lists: the first {length} values of each become indices")
    if least == most <= MAX_PLACES and not column.missing:
        feature = ZScore(name, output=names.of(name), values="by_position", length=most)
        return Proposal(name, (feature,), f"its rows hold lists of {most} numbers: each position is scaled separately")
    lists = f"lists of {least:,} to {most:,} numbers" if least < most else f"lists of {most:,} numbers"
    return Proposal(
        name, (), f"its rows hold {lists}", "set the number of values to keep: ZScore(values=..., length=...)"
    )


def counted_values(column: ColumnStatistics) -> list[bytes]:
    """Return some of the counted values, most frequent first."""
    return [value for value, _ in islice(column.counts.items(), SAMPLE)]


def _of_text(column: ColumnStatistics, names: _Names, values: Sequence[bytes], keep: bool, has_nulls: bool) -> Proposal:
    name, look = column.name, look_at(values)
    look = look if has_nulls else look._replace(is_alone=False)
    if look.looks == "dates" and look.format:
        return Proposal(
            name, _of_dates(name, look, names), f"it holds dates such as {look.example}, which are split into parts"
        )
    different = column.counts.distinct + column.counts.uncounted
    if different <= max(_MIN_IDENTIFIERS, values_in(column) * _IDENTIFIER_SHARE):
        word = Vocabulary(name, output=names.of(name), size=MAX_VOCABULARY)
        return Proposal(name, (word,), "it holds words, which become indices", look.advice)
    if keep or look.looks == "sentences" or column.counts.uncounted > values_in(column) / 2:
        steps = (LowerCase(), Tokens())
        words = Vocabulary(name, output=names.of(name), size=MAX_VOCABULARY, clean=steps, length=MAX_WORDS)
        return Proposal(name, (words,), f"it holds sentences: the first {MAX_WORDS} words of each become indices")
    if not values:
        return Proposal(name, (), "it has too many distinct values to count", _GIVE_VALUES)
    reason = f"{look.example!r} in it is not a number" if look.looks == "numbers" else OWN_VALUE
    return Proposal(name, (), reason, look.advice)


def _of_dates(column: str, look: TextLook, names: _Names) -> tuple[Feature, ...]:
    def words(part: Literal["month", "weekday", "hour"]) -> Feature:
        return Vocabulary(column, output=names.of(column, f"_{part}"), clean=(DatePart(part, look.format),))

    days = ZScore(column, output=names.of(column, "_days"), clean=(DatePart("days", look.format),))
    return (days, words("month"), words("weekday"), *([words("hour")] if ":" in look.example else []))


def look_at(values: Sequence[bytes]) -> TextLook:
    """Classify a column by a sample of its distinct values."""
    texts = [value.decode("utf-8", "replace").strip() for value in values]
    if not texts:
        return TextLook("")
    others = [text for text in texts if not is_number(text)]
    if len(others) <= len(texts) / 2:
        return TextLook("numbers", others[0], is_alone=len({*others}) == 1) if others else TextLook("")
    for looks, pattern in (("dates", _DATE), ("amounts", _AMOUNT)):
        found = [text for text in texts if pattern.fullmatch(text)]
        if len(found) >= _MOST * len(texts):
            return TextLook(looks, found[0], _format_of(found) if looks == "dates" else "")  # type: ignore[arg-type]
    words = sum(len(text.split()) for text in texts) / len(texts)
    return TextLook("sentences", texts[0]) if words >= _WORDS_OF_A_SENTENCE else TextLook("")


def _format_of(dates: Sequence[str]) -> str:
    """Return the only format that matches all dates. "" if there is none, or day and month are ambiguous."""
    fits = formats_of(dates)
    return fits[0] if ISO in fits or len(fits) == 1 else ""


def is_number(text: str) -> bool:
    """Return whether Python parses a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
