"""Convert the cells of a table to the types of a model. The result for a cell does not depend on other rows.

| model takes | cell |
|---|---|
| number | a number, `true`, `false`, or text that ingest reads as a number |
| integer | the same; a fraction is rounded, with a note |
| text | text and bytes; with a note, digits of integers, `true` and `false`, and dates as in training or in ISO 8601 |
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from infeed.components.dataset import example_types
from infeed.components.dataset.time_formats import ISO
from infeed.components.dataset.times import parse
from infeed.components.evaluation.predictor import UNKNOWN, RawColumns
from infeed.components.example_gen.sources.csv_rows import CsvOptions
from infeed.components.example_gen.sources.json_lines import finite
from infeed.components.example_gen.sources.jsonl import JsonNumber
from infeed.components.example_gen.sources.kinds import convert, not_a_number

Column: TypeAlias = pa.Array | list[Any]  # values of a typed format or texts of a CSV; or values of JSON
_INT64 = range(-(1 << 63), 1 << 63)
_TRUTH = {"true": 1, "false": 0}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Cells(NamedTuple):
    """The rows that fit a model."""

    columns: dict[str, list[Any]]  # cells of the rows that fit, by column
    wrong: dict[int, str]  # error of each row that does not fit, by position
    notes: dict[int, str]  # changes made to a row, by position


class _Rounded(int):
    """An integer that differs from its cell."""


class _Spelled(str):
    """Text of a cell that is not text."""

    __slots__ = ()


def fit_cells(
    columns: Mapping[str, Column],
    rows: int,
    specs: Mapping[str, Any],
    texts: CsvOptions,
    exact: Collection[str] = (),
    known: RawColumns = UNKNOWN,
) -> Cells:
    """Convert the columns to the TensorSpecs in `specs`. `texts` has the formats of numbers and of missing cells.

    In the columns `exact`, a fraction is an error if the model takes an integer. In other columns, it is rounded.
    `known` has the spellings of booleans and dates in the training data.
    """
    wrong: dict[int, str] = {}
    notes: dict[int, str] = {}
    fitted = {
        name: _fitted(name, columns[name], spec, texts, wrong, notes, known, exact=name in exact)
        for name, spec in specs.items()
    }
    right = [place for place in range(rows) if place not in wrong]
    return Cells({name: [column[place] for place in right] for name, column in fitted.items()}, wrong, notes)


def _fitted(
    name: str,
    column: Column,
    spec: Any,
    texts: CsvOptions,
    wrong: dict[int, str],
    notes: dict[int, str],
    known: RawColumns,
    *,
    exact: bool,
) -> list[Any]:
    fit = _as_float if spec.dtype.is_floating else _as_int if spec.dtype.is_integer else _as_text
    if isinstance(column, list):
        values: list[Any] = column
    else:  # for numbers, dates and booleans are integers, as in a tf.Example
        as_it_is = fit is _as_text or example_types.is_list(column.type) or spec.shape.rank != 1
        as_it_is = as_it_is or example_types.kind_of(column.type) in ("bytes", None)
        values = (column if as_it_is else example_types.to_values(column)).to_pylist()
    fitted = _converted(name, values, fit, texts)
    # Booleans, dates and times become the text of training.
    if fit is _as_text and (truths := known.truths.get(name)):
        fitted = [_Spelled(truths[of]) if isinstance(of, bool) else one for of, one in zip(values, fitted, strict=True)]
    if fit is _as_text and (forms := known.dates.get(name)):
        for place, of in enumerate(values):
            if isinstance(of, datetime.date):
                fitted[place] = _Spelled(of.isoformat() if ISO in forms else of.strftime(forms[0]))
    if spec.shape.rank != 1:  # a list; only a tf.Example can hold a missing list, so None stays
        fitted = [None if value is None else one for value, one in zip(values, fitted, strict=True)]
    for place, (value, one) in enumerate(zip(values, fitted, strict=True)):
        if isinstance(one, ValueError):
            wrong.setdefault(place, f"column {name!r}: {one}")
        elif isinstance(one, _Rounded) and exact:
            wrong.setdefault(place, f"column {name!r}: {_unfit(value, fit)}")
        elif isinstance(one, _Rounded):
            _add_note(notes, place, name, f"{value} is rounded to {one}, because the model takes whole numbers")
        elif isinstance(one, _Spelled):
            kind = "boolean" if isinstance(value, bool) else "date" if isinstance(value, datetime.date) else "number"
            _add_note(notes, place, name, f"the {kind} {value} is read as the word {str(one)!r}")
    if fit is _as_text and (forms := known.dates.get(name)):
        form = "ISO 8601" if ISO in forms else repr(forms[0])
        # Texts that no format reads as a date. Lists are not checked.
        given = pa.array([_text(one) if one and isinstance(one, str | bytes) else None for one in fitted], pa.string())
        unread = given.is_valid().to_numpy(zero_copy_only=False)
        for one in forms:
            unread = unread & ~parse(given, one).valid
        for place in np.flatnonzero(unread).tolist():
            _add_note(notes, place, name, f"{_text(fitted[place])!r} is no date in {form}, so it is missing")
    return [int(one) if isinstance(one, _Rounded) else one for one in fitted]


def _add_note(notes: dict[int, str], place: int, name: str, note: str) -> None:
    notes[place] = f"{notes[place]}; column {name!r}: {note}" if place in notes else f"column {name!r}: {note}"


def _text(cell: str | bytes) -> str:
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def _converted(name: str, values: list[Any], fit: Callable[[Any], Any], texts: CsvOptions) -> list[Any]:
    """Return the converted values, or for a value that does not fit a ValueError with the reason."""
    # Texts are converted together, as ingest converts a column, and other values one by one.
    is_text = [fit is not _as_text and type(value) is str for value in values]  # JsonNumber is a subclass of str
    cells = pa.array([value for value, text in zip(values, is_text, strict=True) if text], pa.string())
    if not len(cells):
        return [_try(fit, value) for value in values]
    plain, example = texts.plain(name, cells), texts.numbers.get(name)
    found, unfit = convert(plain, pa.float64() if fit is _as_float else pa.int64())
    numbers: list[Any] = found.to_pylist()
    for place in unfit:
        numbers[place] = _try(fit, plain[place].as_py())
        if isinstance(numbers[place], ValueError):
            cell = cells[place].as_py()
            numbers[place] = ValueError(not_a_number(cell, example)) if example else _unfit(cell, fit)
    converted = iter(numbers)
    return [next(converted) if text else _try(fit, value) for value, text in zip(values, is_text, strict=True)]


def _try(fit: Callable[[Any], Any], value: Any) -> Any:
    """Return the converted value, or a ValueError with the reason why there is none."""
    if isinstance(value, list) and None in value:
        return ValueError("a list contains null")
    try:
        return [fit(one) for one in value] if isinstance(value, list) else fit(value)
    except (ValueError, OverflowError, TypeError):  # TypeError of an object or a list of lists
        return _unfit(value, fit)


def _unfit(value: Any, fit: Callable[[Any], Any]) -> ValueError:
    shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    is_plain = isinstance(value, JsonNumber) or not isinstance(value, str | bytes | float | int | list)
    remedy = ""
    if fit is _as_int and isinstance(shown, str):
        # Dates of typed files are numbers in a tf.Example.
        with suppress(ValueError):
            when = datetime.datetime.fromisoformat(shown)
            since = when.replace(tzinfo=when.tzinfo or datetime.timezone.utc) - _EPOCH
            micros = since // datetime.timedelta(microseconds=1)
            remedy = f"; if training had dates here, write {micros}, the microseconds since 1970"
    return ValueError(f"{str(shown) if is_plain else repr(shown)} is not {_WORDS[fit]}{remedy}")


def _as_float(value: Any) -> float:
    value = _truth(value)
    if isinstance(value, JsonNumber):
        return finite(value)
    return math.nan if value is None else float(value.encode() if isinstance(value, str) else value)


def _as_int(value: Any) -> int | None:
    """Convert a value to an integer, rounding fractions. Raises ValueError beyond 64 bits."""
    value = _truth(value)
    if value is None:
        return None
    try:
        whole = int(value.encode() if isinstance(value, str) else value)
    except ValueError:  # the text of a fraction
        value = float(value.encode() if isinstance(value, str) else value)
        whole = int(value)
    if whole not in _INT64:
        raise ValueError(value)
    return _Rounded(round(value)) if isinstance(value, float) and value != whole else whole


def _truth(value: Any) -> Any:
    """Convert the words true and false of a CSV to the numbers of the training data."""
    return _TRUTH.get(value.lower(), value) if isinstance(value, str) else value


def _as_text(value: Any) -> str | bytes:
    """Convert a value to text. Raises ValueError for what has several spellings: numbers such as 1.5, and times."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return _Spelled(str(value).lower())  # as CSV and JSON write it
    if type(value) is datetime.date:
        return _Spelled(value.isoformat())
    if isinstance(value, int) or (isinstance(value, JsonNumber) and value.lstrip("-").isdecimal()):
        return _Spelled(value)
    if isinstance(value, JsonNumber) or not isinstance(value, str | bytes):
        raise ValueError(value)
    return value


_WORDS: dict[Any, str] = {_as_float: "a number", _as_int: "a whole number", _as_text: "text"}
