"""Detection of text columns that hold numbers, their format, and whether they are read as numbers by default.

The shapes of the cells of a whole table, for example `$9,999.99`, are counted exactly. A shape replaces each digit by
9, except leading zeros, as in `0.5` or a code such as 007.

A column is read as numbers if every cell fits one format and no other meaning is plausible. For other columns, there
is advice: the format of the cells, and the options that read them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from infeed.components.dataset.options import IngestOptions
from infeed.components.example_gen.formats import has_option
from infeed.components.example_gen.sources.kinds import NumberFormat
from infeed.pipelines.config import Source

MOST_SHAPES = 200  # maximum shapes of one column. Numbers of one format have fewer
_MOST_OTHERS = 20  # maximum distinct cells kept that are not numbers
_LONGEST = 40  # maximum bytes of a number with its unit
_MANY = 1_000  # number of cells after which counting of a text column may stop
_NUMBER = "^[^0-9]{0,8}[0-9][0-9., '\u00a0\u2009\u202f\u2019]*[^0-9]{0,16}$"
_SHAPING = (("[\u00a0\u2009\u202f]", " "), ("\u2019", "'"), ("[0-9]", "9"), ("9{4,}", "9999"))


@dataclass(frozen=True)
class CellShapes:
    """Counts of the cells of one text column."""

    # Count and first cell of each shape that may be a number.
    shapes: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)  # some of the other cells, with counts
    more: int = 0  # number of cells in neither mapping
    given_up: bool = False  # whether counting has stopped, because the column is certainly text

    @property
    def cells(self) -> int:
        """Number of cells that are not missing."""
        return sum(count for count, _ in self.shapes.values()) + sum(self.others.values()) + self.more

    def __add__(self, other: CellShapes) -> CellShapes:
        if self.given_up or other.given_up:
            return CellShapes(given_up=True)
        shapes, others, more = dict(self.shapes), dict(self.others), self.more + other.more
        for shape, (count, example) in other.shapes.items():
            before, first = shapes.get(shape, (0, example))
            shapes[shape] = before + count, first
        for cell, count in other.others.items():
            if cell in others or len(others) < _MOST_OTHERS:
                others[cell] = others.get(cell, 0) + count
            else:
                more += count
        found = CellShapes(shapes, others, more)
        text = found.cells - sum(count for count, _ in shapes.values())
        is_text = found.cells > _MANY and text > found.cells / 2
        return CellShapes(given_up=True) if is_text or len(shapes) > MOST_SHAPES else found


def shapes_of(batch: pa.RecordBatch, but: Iterable[str] = ()) -> dict[str, CellShapes]:
    """Count the shapes of each text column of a batch, except columns in `but`."""
    left_out = set(but)
    return {
        name: _of_column(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name not in left_out and (types.is_string(column.type) or types.is_large_string(column.type))
    }


def _of_column(cells: pa.Array) -> CellShapes:
    counted = pc.value_counts(cells.drop_null())
    values, counts = counted.field(0).cast(pa.string()), counted.field(1)
    short = pc.less_equal(pc.binary_length(values), _LONGEST)
    may_be = pc.and_(short, pc.match_substring_regex(values, _NUMBER))
    how_many = counts.to_numpy()
    number, other = (np.flatnonzero(part.to_numpy(zero_copy_only=False)) for part in (may_be, pc.invert(may_be)))
    kept = other[np.argsort(-how_many[other], kind="stable")][:_MOST_OTHERS]
    others = dict(zip(values.take(pa.array(kept)).to_pylist(), how_many[kept].tolist(), strict=True))
    more = int(how_many[other].sum() - how_many[kept].sum())
    numbers = values.take(pa.array(number))
    shapes = pc.replace_substring_regex(numbers, "^([^0-9]*)0", "\\1\x01")
    for pattern, by in _SHAPING:
        shapes = pc.replace_substring_regex(shapes, pattern, by)
    encoded = pc.replace_substring(shapes, "\x01", "0").dictionary_encode()
    which = encoded.indices.to_numpy()
    _, firsts = np.unique(which, return_index=True)
    sums = np.bincount(which, weights=how_many[number], minlength=len(firsts)).astype(np.int64)
    examples = numbers.take(pa.array(firsts, pa.int64())).to_pylist()
    found = dict(zip(encoded.dictionary.to_pylist(), zip(sums.tolist(), examples, strict=True), strict=True))
    return CellShapes() + CellShapes(found, others, more)  # the addition enforces the bounds


# Separators of thousands and decimals, likeliest first.
_SIGNS = (("", "."), (",", "."), ("", ","), (".", ","), (" ", ","), (" ", "."), ("'", "."), ("'", ","))
_SHAPE = re.compile(
    r"\(? *[+\u2212-]? *(?P<before>[^09()+\u2212.,'-]*?) *[+\u2212-]? *"
    r"(?P<body>[.,]?[09](?:[9., ']*9)?)(?P<after>[^09()]*)\)?"
)
_CURRENCY = (
    r"[A-Z]{0,3}[$\u20ac\xa3\xa5\u20b9\u20a9\u20bd\u20ba\u20aa\u0e3f]|[A-Z]{3}|Fr\.?|kr\.?|R|Rs\.?|z\u0142|K\u010d"
)
_BEFORE = re.compile(_CURRENCY)
# Units that may follow a number without a space. Words need a space, so that codes such as 12A stay text.
_AFTER = re.compile(
    rf"{_CURRENCY}|%|\u2030|\xb0[CF]?|[kcm\xb5]?[mgl]|[kcm]?m[\xb2\xb323]|lbs?|oz|mi|ft|in|km/h|kmh|mph|[kMG]?W|[kM]Wh|"
    r"[kMG]?Hz|[kKMGT]B|hp|cc|bar|h?Pa|ms|min|hrs?|h|s|px"
)
_PLAIN = re.compile(r"[09]*(?:\.9*)?")  # numbers that Python parses unchanged
_WORD = re.compile(r"[^\W\d_][\w./\xb2\xb3]{0,15}")
_CLEAR_PREFIX = ("$", "US$", "\xa3")  # currencies of countries that write 1,234.5
_LEAST_SHARE = 0.5  # minimum share of cells with one format to mention it
_SHOWN = 4  # maximum columns listed by name
_FEW = 3  # maximum distinct cells that may mean a missing value
# Words for a missing value in R, pandas, SAS and databases.
_MISSING = frozenset(
    ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None", "none", "NONE", "?", "-", ".")
)


class _Body(NamedTuple):
    """Number of a shape, without its unit."""

    digits: str
    cells: int
    example: str


@dataclass(frozen=True)
class NumberColumn:
    """Cells of a text column."""

    name: str
    formats: tuple[NumberFormat, ...]  # matching formats. Several if they are ambiguous
    cells: int  # number of present cells
    matching: int  # number of cells that fit
    written: int  # number of cells that the format parses but Python does not. 0 for plain numbers
    example: str  # one of those cells
    misfits: Mapping[str, int]  # some cells that do not fit, with counts
    safe: bool = True  # whether the cells cannot be pairs of codes, such as 1,2

    @property
    def settled(self) -> bool:
        """Whether the column is read as numbers by default."""
        return bool(self.written) and self.matching == self.cells and self.safe and len(self.formats) == 1

    @property
    def missing(self) -> frozenset[str]:
        """Words for a missing value, if all other cells are numbers."""
        words = frozenset(self.misfits)
        return words if words <= _MISSING and self.matching + sum(self.misfits.values()) == self.cells else frozenset()

    def advice(self, source: Source, settings: Mapping[str, Any], *, may_miss: bool = True) -> str:
        """Return a description of the cells and how to read them. "" if they are already read.

        `may_miss` is whether the column may have missing values. The label must not.
        """
        if self.settled or (self.matching == self.cells and not self.written):
            return ""
        ways = []
        for one in self.formats:
            signs = {"thousands": one.thousands, "decimal": one.decimal if one.decimal != "." else ""}
            if source != "csv" or one.before or one.after:
                ways.append(_flag("numbers", {self.name: str(one)}))
            else:
                ways.append(" ".join(_flag(name, sign) for name, sign in signs.items() if sign))
        looks = f"{self.written:,} of {self.cells:,} cells look like {self.example!r}"
        if not self.written:
            looks = f"{self.matching:,} of {self.cells:,} cells are numbers"
        if self.matching == self.cells:
            if len(ways) > 1:
                example = pa.array([self.example])
                values = " or ".join(str(one.plain(example)[0].as_py()) for one in self.formats)
                looks += f", which may be {values}"
            return f"{looks}: read them with {' or with '.join(ways)}"
        return f"{looks}, and {self._misfits(source, settings, ways[0], may_miss)}"

    def _misfits(self, source: Source, settings: Mapping[str, Any], way: str, may_miss: bool) -> str:
        number, shown = self.cells - self.matching, ", ".join(map(repr, list(self.misfits)[:_FEW]))
        typed = _flag("types", {self.name: "float"}) if source == "csv" and "numbers" not in way else ""
        limit = f" --bad-row-limit {number}" if number > IngestOptions().bad_row_limit else ""
        reject = " ".join(filter(None, (way, typed, f"--on-bad-row reject{limit}")))
        do = "do" if self.written else "are"
        words = f"{number:,} such as {shown} {do} not: to set their rows aside, use {reject}"
        is_word = number == sum(self.misfits.values()) and not re.search(r"\d", "".join(self.misfits))
        if not may_miss or source != "csv" or not is_word or len(self.misfits) > _FEW:
            return words
        nulls = _flag("nulls", list(dict.fromkeys([*settings.get("nulls", [""]), *self.misfits])))
        return f"{words}; if they mean a missing value, use {' '.join(filter(None, (way, nulls)))}"


def number_columns(
    shapes: Mapping[str, CellShapes], source: Source, settings: Mapping[str, Any]
) -> dict[str, NumberColumn]:
    """Return the text columns that are mostly numbers.

    An ambiguous column takes the format of the unambiguous columns if they agree.
    """
    if not has_option(source, "numbers"):
        return {}
    given = {*settings.get("types", {}), *settings.get("numbers", {})}
    looks = (_look(name, one) for name, one in shapes.items() if name not in given and not one.given_up)
    found = {one.name: one for one in looks if one and one.matching >= _LEAST_SHARE * one.cells}
    commas = source != "csv" or settings.get("delimiter", ",") == ","
    sure = [(one, one.formats[0]) for one in found.values() if one.written and len(one.formats) == 1]
    # A format shows the decimal separator if it separates thousands, or if its decimal comma is not that of a pair.
    shown = [form for one, form in sure if form.thousands or (form.decimal == "," and not _is_pair(one))]
    known = {form.decimal for form in shown}
    decimal = known.pop() if len(known) == 1 else None
    return {name: _settle(one, decimal, commas) for name, one in found.items()}


def read_as(columns: Mapping[str, NumberColumn]) -> dict[str, str]:
    """Return the option `numbers` for the columns that are read as numbers."""
    return {name: str(one.formats[0]) for name, one in columns.items() if one.settled}


def missing_words(columns: Mapping[str, NumberColumn], classes: Collection[Any]) -> list[str]:
    """Return the words among numbers that mean a missing value, except words that are in `classes`."""
    found = frozenset[str]().union(*(one.missing for one in columns.values()))
    return sorted(word for word in found if word.encode() not in classes)


def missing_remark(columns: Mapping[str, NumberColumn], words: Sequence[str]) -> str:
    """Describe the columns whose `words` are read as missing values, and how to keep the words. Or ""."""
    if not words:
        return ""
    names = [f"{name} ({sum(one.misfits.values()):,} cells)" for name, one in columns.items() if one.missing]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    read = f"{', '.join(map(repr, words))} beside numbers in {', '.join([*names[:_SHOWN], *more])}"
    return f"{read}: read as a missing value in all columns; {_flag('nulls', [''])} keeps the words"


def remark(columns: Mapping[str, NumberColumn], names: Sequence[str]) -> str:
    """Describe the columns that are read as numbers by default, and how to keep the text. Or ""."""
    if not names:
        return ""
    told = [f"{name} ({columns[name].cells:,} cells such as {columns[name].example!r})" for name in names[:_SHOWN]]
    more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    keep = _flag("numbers", {names[0]: None})
    return f"{', '.join([*told, *more])}: read as numbers; {keep} keeps the text"


def _look(name: str, of: CellShapes) -> NumberColumn | None:
    """Return the formats of most cells of a column."""
    by_unit: dict[tuple[str, str], list[_Body]] = {}
    for shape, (count, example) in of.shapes.items():
        if (found := _SHAPE.fullmatch(shape)) and _is_unit(found["before"].strip(), found["after"]):
            unit = found["before"].strip(), found["after"].strip()
            by_unit.setdefault(unit, []).append(_Body(found["body"], count, example))
    if not by_unit:
        return None
    # A column has the unit of most cells. Cells with another unit do not fit.
    unit, bodies = max(by_unit.items(), key=lambda pair: sum(body.cells for body in pair[1]))
    fitting = {signs: fits for signs in _SIGNS if (fits := _fits(bodies, *signs))}
    most = max((sum(body.cells for body in fits) for fits in fitting.values()), default=0)
    best = {signs: fits for signs, fits in fitting.items() if sum(body.cells for body in fits) == most}
    formats = tuple(NumberFormat(*signs, *unit) for signs in best)
    if not most or _is_code(formats[0], bodies):
        return None
    fits = next(iter(best.values()))
    written = [body for body in fits if any(unit) or not _PLAIN.fullmatch(body.digits)]
    shown = max(written or fits, key=lambda body: (len(re.findall("[^09]", body.digits)), len(body.digits)))
    fitting_examples = {body.example for body in fits}
    misfits = Counter({example: count for count, example in of.shapes.values() if example not in fitting_examples})
    return NumberColumn(
        name,
        formats,
        of.cells,
        most,
        sum(body.cells for body in written),
        shown.example,
        dict((misfits + Counter(of.others)).most_common()),
    )


def _is_unit(before: str, after: str) -> bool:
    """Return whether the text around a number is a unit and not part of a code or a sentence."""
    behind = after.strip()
    if before and (behind or not _BEFORE.fullmatch(before)):
        return False
    return not behind or bool(_AFTER.fullmatch(behind)) or (after.startswith(" ") and bool(_WORD.fullmatch(behind)))


def _fits(bodies: list[_Body], thousands: str, decimal: str) -> list[_Body]:
    """Return the bodies that are numbers with these separators. Empty if none distinguishes the separators."""
    group, point = re.escape(thousands), re.escape(decimal)
    whole = rf"(?:9{{1,3}}(?:{group}999)+|0|9{{1,4}})" if thousands else r"(?:0|9{1,4})"
    pattern = re.compile(rf"{whole}(?:{point}9+)?|{point}9+")
    fits = [body for body in bodies if pattern.fullmatch(body.digits)]
    uses_group = not thousands or any(re.match(rf"9+{group}", body.digits) for body in fits)
    uses_point = "." in (decimal, thousands) or any(re.search(rf"{point}9+$", body.digits) for body in fits)
    return fits if uses_group and uses_point else []


def _is_code(form: NumberFormat, bodies: list[_Body]) -> bool:
    """Return whether the digit groups, in a constant number, may be phone numbers or network addresses."""
    if form.thousands not in (" ", ".") or form.before or form.after or any("," in body.digits for body in bodies):
        return False
    groups = {body.digits.count(form.thousands) for body in bodies}
    return len(groups) == 1 and max(groups) > 1


def _is_pair(column: NumberColumn) -> bool:
    """Return whether all cells look like `1,2`, which may be two codes."""
    return re.fullmatch(r"\d,\d", column.example) is not None


def _settle(column: NumberColumn, decimal: str | None, commas: bool) -> NumberColumn:
    """Return the column with the format that other columns, its unit or the delimiter suggest.

    `decimal` is the decimal separator of the certain columns. `commas` is whether decimal commas are common here.
    """
    formats = column.formats
    if len(formats) == 1:
        return replace(column, safe=decimal == "," or not (commas and _is_pair(column)))
    signs = Counter(sign for form in formats for sign in (form.thousands, form.decimal) if sign)
    # Every format has a comma: it separates thousands where commas separate cells, and in dollars and pounds.
    if signs[","] == len(formats) and decimal is None and (commas or formats[0].before in _CLEAR_PREFIX):
        decimal = "."
    chosen = tuple(form for form in formats if form.decimal == decimal)
    return replace(column, formats=chosen) if len(chosen) == 1 else column


def _flag(name: str, value: Any) -> str:
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"--set {quote(f'{name}={written}')}"
